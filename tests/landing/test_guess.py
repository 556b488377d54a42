"""Source files guessed from samples: they load, read the sample that they were made from, and say what they can't."""

from __future__ import annotations

import csv
import gzip
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spark_jobs.cli.app import run
from spark_jobs.errors import ParameterError
from spark_jobs.landing.guess import Guess, guess_source
from spark_jobs.sources import load_source
from tests.effort import tries

ROWS = [
    {
        "Event ID": str(n),
        "meter": "ab"[n % 2],
        "at": f"2024-03-0{1 + n % 3}T0{n}:00:00Z",
        "load": "NA" if n == 3 else f"{n}.5",
        "count": n,
        "zip": f"0{n}234",
        "serial": 9_223_372_036_854_775_807 - n,
        "too great": f"9{n}23372036854775807000",
        "ok": "true" if n % 2 else "false",
        "day": f"2024-03-0{1 + n % 3}",
    }
    for n in range(6)
]
TYPES = {
    "event_id": "int", "meter": "string", "at": "timestamp", "load": "float", "count": "int", "zip": "string",
    "serial": "int", "too_great": "string", "ok": "bool", "day": "date",
}  # fmt: skip


def as_csv(path: Path, rows: list[dict[str, Any]], delimiter: str = ",") -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)
    return path


def types(guess: Guess) -> dict[str, str]:
    return {name: column.type for name, column in guess.source.columns.items()}


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_a_csv_file_tells_types_nulls_names_and_delimiter(tmp_path: Path, delimiter: str) -> None:
    guess = guess_source([as_csv(tmp_path / "meters.csv", ROWS, delimiter)])
    source = guess.source
    assert types(guess) == TYPES
    assert source.dag.schedule == "manual", "a backfill of old files starts no run of today"
    assert (source.name, source.entity, source.event_time, source.timelines) == (
        "meters", "meter", ("at",), {"at": "at"},
    )  # fmt: skip
    assert source.delta_id == ("event_id",)
    assert source.header_name("event_id") == "Event ID"
    assert source.landing.delimiter == delimiter
    assert source.null_values("load") == ("", "NA")
    assert source.start_us == datetime(2024, 3, 1, tzinfo=UTC).timestamp() * 1_000_000
    assert (guess.rows, guess.rejected) == (6, {})


def test_other_formats_tell_the_same(tmp_path: Path) -> None:
    kept = {"load": lambda v: None if v == "NA" else float(v) * 1e16, "ok": lambda v: v == "true"}
    rows = [{k: kept.get(k, lambda v: v)(v) for k, v in row.items()} for row in ROWS]
    lines = "".join(json.dumps(row | {"nested": {"a": [1]}}) + "\n" for row in rows)
    (tmp_path / "m.ndjson.gz").write_bytes(gzip.compress(lines.encode()))
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "m.parquet")
    from_json, from_parquet = (guess_source([tmp_path / name]) for name in ("m.ndjson.gz", "m.parquet"))
    for guess, form in ((from_json, "ndjson"), (from_parquet, "parquet")):
        assert types(guess) == TYPES
        assert (guess.rows, guess.rejected, guess.source.landing.format) == (6, {}, form)


def test_several_files_are_one_sample_and_folders_of_dates_name_it(tmp_path: Path) -> None:
    files = []
    for day in (1, 2):
        folder = tmp_path / "Ship Logs" / f"2024-03-0{day}"
        folder.mkdir(parents=True)
        files.append(as_csv(folder / "a.csv", [{"ship": f"s{n}", "seen": f"2024-03-0{day} 10:0{n}"} for n in (0, 1)]))
    guess = guess_source(files)
    assert (guess.source.name, guess.source.entity, guess.rows) == ("ship_logs", "ship", 4)
    assert guess.source.landing.path == "ship_logs/{date}/*"


def test_times_since_1970_are_times_where_there_are_no_others(tmp_path: Path) -> None:
    rows = [{"sensor": "ab"[n % 2], "sent_at": 1_700_000_000_000 + n, "size": 1_700_000_000_000} for n in range(4)]
    guess = guess_source([as_csv(tmp_path / "s.csv", rows)])
    assert types(guess) == {"sensor": "string", "sent_at": "timestamp", "size": "int"}
    assert guess.source.columns["sent_at"].format == "epoch_ms"
    assert guess.rows == 4


def test_a_column_that_the_reader_rejects_becomes_text(tmp_path: Path) -> None:
    rows = [{"ship": "ab"[n % 2], "seen": "2024-03-01T10:00", "gone": f"2024-03-01T10:{58 + n}"} for n in range(4)]
    guess = guess_source([as_csv(tmp_path / "s.csv", rows)])
    assert types(guess)["gone"] == "string"
    assert (guess.rows, guess.rejected) == (4, {})


def test_decimals_are_what_a_schema_says_and_a_remark_where_texts_only_look_so(tmp_path: Path) -> None:
    rows = [
        {"till": "ab"[n % 2], "at": f"2024-03-01T10:0{n}", "Net Price": f"{n}.50", "heat": f"{n}.{n}5"[: 3 + n % 2]}
        for n in range(4)
    ]
    guess = guess_source([as_csv(tmp_path / "s.csv", rows)])
    assert types(guess) == {"till": "string", "at": "timestamp", "net_price": "float", "heat": "float"}
    remarked = [line.split(":")[0].strip() for line in guess.text.splitlines() if "decimal(18, 2)" in line]
    assert remarked == ["net_price"]
    schema = pa.schema(
        [("till", pa.string()), ("at", pa.string()), ("Net Price", pa.decimal128(12, 2)), ("tax", pa.decimal128(5, 4))]
    )
    table = pa.table([["a", "b", "b", "a"], [row["at"] for row in rows], [None, 1, 2, 3], [1, 1, 1, 1]], schema=schema)
    pq.write_table(table, tmp_path / "s.parquet")
    guess = guess_source([tmp_path / "s.parquet"])
    assert types(guess) | {"till": "", "at": ""} == {
        "till": "", "at": "", "net_price": "decimal(12, 2)", "tax": "decimal(5, 4)",
    }  # fmt: skip
    assert "sum_tax: sum(tax)" in guess.text
    assert (guess.rows, guess.rejected) == (4, {})


def test_names_that_become_one_stay_two(tmp_path: Path) -> None:
    rows = [{"From": "ab"[n % 2], "a b": n, "a-b": n, "1st": n, "t": "2024-03-01T10:00"} for n in range(4)]
    guess = guess_source([as_csv(tmp_path / "s.csv", rows)])
    named = {name: guess.source.header_name(name) for name in guess.source.columns}
    assert named == {"from_": "From", "a_b": "a b", "a_b_2": "a-b", "c_1st": "1st", "t": "t"}


@pytest.mark.parametrize(
    ("content", "options", "found"),
    [
        (None, {}, "No such file"),
        (b"", {}, "which is empty"),
        (b"\xff\xfe,\0\n\0", {}, "with columns"),
        (b"PAR1 no more", {}, "Parquet"),
        (b"ship,n\na,1\nb,2\n", {}, "a column of times"),
        (b"t,n\n2024-03-01T10:00,1\n2024-03-01T11:00,2\n", {}, "which entity a row changes"),
        (b"ship,t\na,2024-03-01T10:00\n", {"entity": "car"}, "one of the columns ship, t"),
        (b"ship,t\na,2024-03-01T10:00\n", {"time": "ship"}, "one of the columns t"),
    ],
)
def test_what_can_not_be_guessed_is_said(tmp_path: Path, content: bytes | None, options: Any, found: str) -> None:
    path = tmp_path / "s.csv"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ParameterError, match=found) as refused:
        guess_source([path], **options)
    assert refused.value.next_step


@pytest.mark.parametrize("form", ["csv", "ndjson", "parquet"])
def test_the_start_is_the_first_event_of_all_rows_of_all_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.setattr("spark_jobs.landing.sampling.SAMPLE_ROWS", 5)
    years = {"a": [2014] * 7 + [2011], "b": [2014, 2013, 2015, 2014, 2014, 2014, 2012]}
    files = []
    for name, of_file in years.items():
        rows = [{"meter": "ab"[n % 2], "at": f"{year}-03-0{n + 1}T00:00:00Z"} for n, year in enumerate(of_file)]
        files.append(tmp_path / f"{name}.{form}")
        if form == "csv":
            as_csv(files[-1], rows)
        elif form == "parquet":
            pq.write_table(pa.Table.from_pylist(rows), files[-1])
        else:
            files[-1].write_text("".join(json.dumps(row) + "\n" for row in rows))
    for ordered in (files, files[::-1]):
        guess = guess_source(ordered)
        assert guess.source.start_us == datetime(2011, 3, 8, tzinfo=UTC).timestamp() * 1_000_000
        assert (guess.rows, guess.rejected) == (15, {})


def test_the_command_writes_a_file_that_loads_and_overwrites_none(tmp_path: Path, capsys: Any) -> None:
    files = [str(as_csv(tmp_path / f"{name}.csv", rows)) for name, rows in (("meters", ROWS[:3]), ("more", ROWS[3:]))]
    folder = tmp_path / "sources"
    assert run(["init", str(folder), "--from", *files]) == 2
    folder.mkdir()
    capsys.readouterr()
    assert run(["init", str(folder), "--from", *files, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["path"], document["rows"], document["columns"]) == (str(folder / "meters.yml"), 6, TYPES)
    text = (folder / "meters.yml").read_text()
    assert load_source(folder / "meters.yml").entity == "meter"
    assert run(["init", str(folder), "--from", *files]) == 2
    assert (folder / "meters.yml").read_text() == text
    assert run(["init", str(folder), "--from", *files, "--name", "others"]) == 0
    assert load_source(folder / "others.yml").name == "others"
    assert run(["init", str(folder), "--from", *files, "--name", "../up"]) == 2
    assert sorted(path.name for path in tmp_path.rglob("*.yml")) == ["meters.yml", "others.yml"]


def test_checks_are_guessed_marked_and_hold_of_the_sample(tmp_path: Path) -> None:
    rows = [
        {"meter": "ab"[n % 2], "at": f"2024-03-01T{n % 24:02}:00:00Z", "load": n, "note": "" if n % 3 else "x"}
        for n in range(40)
    ]
    guess = guess_source([as_csv(tmp_path / "meters.csv", rows)])
    checks = guess.source.checks
    assert {check.treatment for check in checks.values()} == {"warn"}
    assert set(checks) == {"meter_known", "load_in_range", "meter_given", "at_given", "load_given"}
    assert (checks["meter_known"].values, checks["load_in_range"].min, checks["load_in_range"].max) == (
        ("a", "b"),
        0,
        78,
    )
    lines = [line for line in guess.text.splitlines() if "treatment:" in line and not line.startswith("#")]
    assert len(lines) == len(checks)
    assert all(line.endswith("# guess") for line in lines)
    # of six records nothing is guessed
    assert guess_source([as_csv(tmp_path / "few.csv", rows[:6])]).source.checks == {}


_THIRD = {3: "bad_timestamp"}
SAMPLES: dict[str, tuple[bytes, int, dict[int, str]]] = {
    # the file, the rows that read, and by their lines the rules of those that don't
    "a day that is none.csv": (b"k,at,v\na,2024-02-28,1\na,2024-02-30,2\nb,2024-03-01,3\nb,2024-03-02,3\n", 3,
                               {3: "bad_date"}),
    "24 o'clock.csv": (b"k,at\na,2024-01-01 23:00:00\na,2024-01-01 24:00:00\nb,2024-01-01 22:00:00\n", 2, _THIRD),
    "leap second.csv": (b"k,at\na,2016-12-31T23:59:59Z\na,2016-12-31T23:59:60Z\nb,2016-12-31T23:59:58Z\n", 2, _THIRD),
    "day zero.csv": (b"k,at\na,2016-12-31T23:59:59Z\na,0000-00-00 00:00:00\nb,2016-12-31T23:59:58Z\n", 2, _THIRD),
    "utc.csv": (b"k,at\na,2016-12-31 23:59:59 UTC\nb,2016-12-31 23:59:58.25 UTC\n", 2, {}),
    "offset.csv": (b"k,at\na,2016-12-31 23:59:59 -0800\nb,2016-12-31 23:59:58 -0800\n", 2, {}),
    "too great.ndjson": (b'{"k":"a","at":"2024-03-01","n":1}\n{"k":"a","at":"2024-03-01","n":18446744073709551615}\n'
                         b'{"k":"b","at":"2024-03-01","n":3}\n', 2, {2: "int_overflow"}),
    "mixed.ndjson": (b'{"k":"a","at":"2024-03-01","n":1}\n{"k":"a","at":"2024-03-01","n":"x"}\n'
                     b'{"k":"b","at":"2024-03-01","n":3}\n', 2, {2: "bad_int"}),
    "array.json": (b'[\n{"k":"a","at":"2024-03-01T10:00:00Z"},\n{"k":"b","at":"2024-03-01T10:00:00Z"}\n]\n', 2, {}),
    "slashes.csv": (b"k,at\na,2010/01/01 00:00:00\nb,2010/01/01 01:00:00\n", 2, {}),
    "words.csv": (b"k,at\na,Jan 1 2000\nb,Feb 3 2000\nc,Feb 30 2000\n", 2, {4: "bad_date"}),
    "day first.csv": (b"k,at\na,01/03/2024 10:00\nb,31/03/2024 10:05\n", 2, {}),
    "comma of seconds.csv": (b'k,at\na,"2024-03-01 10:00:00,123"\nb,"2024-03-01 10:05:00,456"\n', 2, {}),
    "fractions of epochs.csv": (b"k,ts\na,1709251200.123\nb,1709251260.5\na,1709254800\n", 3, {}),
    "sep line.csv": (b"sep=;\r\nk;at;v\r\na;2024-03-01 10:00:00;1\r\nb;2024-03-01 10:05:00;7\r\n", 2, {}),
    "no names.csv": (b"k,at,v,,\na,2024-03-01 10:00:00,1,,\nb,2024-03-01 10:05:00,7,,\n", 2, {}),
    "commas.csv": (b"k;at;v\na;2024-03-01 10:00:00;1.234,56\nb;2024-03-01 10:05:00;7,5\n", 2, {}),
    "cp1252.csv": ("k,at\nü,2024-03-01 10:00:00\né,2024-03-01 10:05:00\n".encode("cp1252"), 2, {}),
    "utf16.csv": ("k,at\nü,2024-03-01 10:00:00\né,2024-03-01 10:05:00\n".encode("utf-16"), 2, {}),
    "escapes.csv": (b'k,at\n"a \\"b\\", c",2024-03-01\nb,2024-03-02\n', 2, {}),
    "debezium.ndjson": (b'{"before":null,"after":{"k":"a","at":"2024-03-01"},"op":"c"}\n'
                        b'{"before":null,"after":{"k":"b","at":"2024-03-01"},"op":"c"}\n'
                        b'{"before":null,"after":null,"op":"t"}\n', 2, {3: "truncate"}),
}  # fmt: skip


@pytest.mark.parametrize("name", SAMPLES)
def test_the_guessed_file_reads_the_sample_and_names_what_does_not_read(tmp_path: Path, name: str) -> None:
    data, rows, rejects = SAMPLES[name]
    (tmp_path / name).write_bytes(data)
    guess = guess_source([tmp_path / name], name="x")
    assert (guess.rows, {reject["line"]: reject["rule"] for reject in guess.rejects}) == (rows, rejects)
    assert sum(guess.rejected.values()) == len(rejects)


BAD = st.sampled_from(["", "2024-02-30", "24:00", "x", "NaN", "1e999", "0000-00-00 00:00:00"])
STAMPS = ["2024-03-0{}T10:00:00Z", "0{}/03/2024 10:00", "2024/03/0{}", "17092512{}0.5"]


@settings(max_examples=tries(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(STAMPS), st.sampled_from([",", ";"]), st.sampled_from(["utf-8", "utf-16", "cp1252"]),
    st.lists(st.tuples(st.integers(1, 9), st.one_of(st.integers(-9, 9).map(str), BAD)), min_size=4, max_size=12),
    st.lists(st.tuples(st.integers(0, 3), BAD), max_size=1),
)  # fmt: skip
def test_rows_read_and_rows_rejected_are_all_rows(
    tmp_path: Path,
    stamp: str,
    delimiter: str,
    encoding: str,
    cells: list[tuple[int, str]],
    broken: list[tuple[int, str]],
) -> None:
    rows = [["xé"[n % 2], stamp.format(n), value] for n, value in cells]
    for place, value in broken:
        rows[place][1] = value
    path = tmp_path / "s.csv"
    path.write_bytes("".join(delimiter.join(row) + "\n" for row in [["k", "at", "v"], *rows]).encode(encoding))
    guess = guess_source([path])
    assert guess.rows + sum(guess.rejected.values()) == len(rows)
    assert len(guess.rejects) == sum(guess.rejected.values())
    assert all(2 <= reject["line"] <= len(rows) + 1 and reject["reason"] for reject in guess.rejects)
    assert guess.rows >= len(rows) / 2 - 1
