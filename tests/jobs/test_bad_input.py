"""A drop of everything that can be wrong with files, landed by a real run: each record or file is somewhere with its
reason, the rest lands, and nothing outside the drop is read."""

from __future__ import annotations

import gzip
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

from spark_jobs.config import Settings
from tests.jobs.harness import Reading, Session, run, write_source

GOOD = [Reading(0, minute, "a", minute).line() for minute in (10, 20, 30)]
ROW = json.loads(Reading(0, 40, "b", 4).line())
BROKEN: dict[str, tuple[Any, str]] = {
    # what stands in the line, and the rule that it breaks
    "not a number": ({**ROW, "id": "1", "heat": float("nan")}, "bad_float"),
    "infinite": ({**ROW, "id": "2", "heat": float("inf")}, "bad_float"),
    "infinite text": ({**ROW, "id": "3", "heat": "Infinity"}, "bad_float"),
    "year 0": ({**ROW, "id": "4", "at": "0000-01-01T00:00:00Z"}, "bad_timestamp"),
    "year 10000": ({**ROW, "id": "5", "at": "10000-01-01T00:00:00Z"}, "bad_timestamp"),
    "2^63": ({**ROW, "id": "6", "load": 2**63}, "int_overflow"),
    "text": ({**ROW, "id": "7", "load": "abc"}, "bad_int"),
    "nested": ({**ROW, "id": "8", "load": {"deep": [1]}}, "nested_value"),
    "no entity": ({**ROW, "id": "9", "meter": None}, "missing_entity"),
    "no delta": ({**ROW, "id": None}, "missing_delta_id"),
    "no time": ({**ROW, "id": "10", "at": None}, "missing_time"),
    "a list": ([1, 2], "bad_json"),
}


def fuzzed(rng: random.Random) -> bytes:
    """Lines of a drop with bytes changed, cut out, doubled and put in; line ends too."""
    data = bytearray("".join(f"{line}\n" for line in GOOD * 3).encode())
    for _ in range(rng.randrange(1, 12)):
        at = rng.randrange(len(data))
        what = rng.randrange(4)
        if what == 0:
            data[at] = rng.randrange(256)
        elif what == 1:
            del data[at : at + rng.randrange(40)]
        elif what == 2:
            data[at:at] = rng.randbytes(rng.randrange(20))
        else:
            data[at:at] = data[at : at + rng.randrange(200)]
    return bytes(data)


def records(data: bytes) -> int:
    """Lines that hold anything but white space, however they end."""
    return sum(bool(line.strip(b" \t\r")) for line in data.split(b"\n"))


def lay_out(drop: Path, secret: Path) -> dict[str, int]:
    """Write the drop; per file how many records it has, 1 for one that is rejected whole."""
    rng = random.Random(20240101)
    files: dict[str, bytes] = {f"fuzz{n}.ndjson": fuzzed(rng) for n in range(12)}
    files["broken.ndjson"] = "\n".join([*GOOD, *(json.dumps(value) for value, _ in BROKEN.values())]).encode()
    files["long.ndjson"] = b"\n".join([GOOD[0].encode(), b'{"id": "' + b"x" * 10_000_000 + b'"}', GOOD[1].encode()])
    files["latin.ndjson"] = b"\n".join([GOOD[2].encode(), '{"id": "Zürich"}'.encode("latin-1"), GOOD[0].encode()])
    drop.mkdir(parents=True)
    for name, data in files.items():
        (drop / name).write_bytes(data)
    whole = {"torn.ndjson.gz": gzip.compress(files["broken.ndjson"])[:-6], "empty.ndjson": b""}
    whole["renamed.ndjson"] = GOOD[0].replace('"load"', '"Load"').encode()
    for name, data in whole.items():
        (drop / name).write_bytes(data)
    (drop / "folder.ndjson").mkdir()
    (drop / "out.ndjson").symlink_to(secret)
    (drop / "nowhere.ndjson").symlink_to(drop / "missing")
    counts = {name: records(data) for name, data in files.items()}
    return counts | dict.fromkeys((*whole, "folder.ndjson", "out.ndjson", "nowhere.ndjson"), 1)


def test_whatever_a_drop_holds_every_record_is_somewhere_and_the_rest_lands(
    lake: Session, spark_settings: Settings, tmp_path: Path
) -> None:
    home = write_source(spark_settings.model_copy(update={"home": tmp_path, "landing": tmp_path / "landing"}))
    (tmp_path / "secret").write_text(Reading(0, 99, "secret", 1).line())
    expected = lay_out(home.landing_folder / "meters" / "2024-01-01", tmp_path / "secret")
    run(lake, home, 0, 0)
    ledger = {Path(r.path).name: r for r in lake.table("bronze.files").collect()}
    assert {name: r.rows + r.rejects + r.duplicates for name, r in ledger.items()} == expected

    rejects = [r.asDict() for r in lake.table("bronze.quarantine").collect()]
    assert Counter(Path(r["file"]).name for r in rejects) == {n: r.rejects for n, r in ledger.items() if r.rejects}
    assert all(r["rule"] and r["reason"] and r["replay_state"] == "open" for r in rejects)
    rules = {(Path(r["file"]).name, r["line"]): r["rule"] for r in rejects}
    for line, (name, (_, rule)) in enumerate(BROKEN.items(), len(GOOD) + 1):
        assert rules["broken.ndjson", line] == rule, name
    assert rules["long.ndjson", 2] == "too_long"
    assert rules["latin.ndjson", 2] == "bad_utf8"
    assert [r["reason"] for r in rejects if r["rule"] == "columns_missing"] == [
        "expected each declared column that is not `optional: true`, found no `load` (the file has `Load`)"
    ]
    assert {name: rule for (name, line), rule in rules.items() if line is None} == {
        "torn.ndjson.gz": "truncated_file",
        "empty.ndjson": "empty_file",
        "renamed.ndjson": "columns_missing",
        "folder.ndjson": "not_a_file",
        "out.ndjson": "outside_landing",
        "nowhere.ndjson": rules["nowhere.ndjson", None],
    }
    landed = lake.table("bronze.meters_deltas").select("entity", "delta_id").collect()
    assert {json.loads(line)["id"] for line in GOOD} <= {row.delta_id for row in landed}
    assert "secret" not in {row.entity for row in landed}
    assert len(landed) == sum(r.rows for r in ledger.values())
    assert lake.table("bronze.duplicates").count() == sum(r.duplicates for r in ledger.values())
