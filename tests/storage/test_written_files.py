"""Files that pyarrow writes for a table: rows, partitions and statistics as Delta and its readers have them."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

from spark_jobs.storage.delta import written_files
from spark_jobs.storage.delta.data_files import stored_rows
from spark_jobs.storage.delta.file_commits import append_files
from spark_jobs.storage.delta.places import TableHandle
from spark_jobs.storage.delta.written_files import Destination, Layout, WrittenFile

INSTANT = pa.timestamp("us", "UTC")
SCHEMA = pa.schema(
    [
        ("era", pa.string()),
        ("name", pa.string()),
        ("n", pa.int64()),
        ("day", pa.date32()),
        ("at", INSTANT),
        ("heat", pa.float64()),
        ("ids", pa.list_(pa.int64())),
    ]
)
BOUNDED = ("name", "n", "day", "at")


@pytest.fixture
def table(tmp_path: Path) -> DeltaTable:
    place = tmp_path / "höme of 50% #1"
    return DeltaTable.create(place, SCHEMA, partition_by=["era"])


def destination(table: DeltaTable, layout: Layout | None = None) -> Destination:
    return Destination(TableHandle(place_of(table)), SCHEMA, ("era",), BOUNDED, layout or Layout())


def _plain(place: str) -> str:
    from urllib.parse import unquote

    return unquote(place)


def rows(count: int, first: int = 0) -> pa.Table:
    numbers = range(first, first + count)
    columns: dict[str, list[Any]] = {
        "era": ["live" if n % 3 else "closing" for n in numbers],
        "name": [f"é{n}" * 20 for n in numbers],
        "n": [None if n % 5 == 0 else n for n in numbers],
        "day": [date(2020, 1, 1 + n % 20) for n in numbers],
        "at": [datetime(1969, 12, 31, 23, 59, 59, 999_001 + n % 900, tzinfo=UTC) for n in numbers],
        "heat": [n / 7 for n in numbers],
        "ids": [list(range(n, n + 3)) for n in numbers],
    }
    return pa.table(columns, schema=SCHEMA)


def place_of(table: DeltaTable) -> str:
    return _plain(table.table_uri.removeprefix("file://"))


def added(table: DeltaTable) -> list[dict[str, Any]]:
    """The files that the newest commit adds, as the log has them."""
    newest = max(Path(place_of(table), "_delta_log").glob("*.json"))
    return [action for line in newest.read_text().splitlines() if "add" in (action := json.loads(line))]


def commit(table: DeltaTable, files: list[WrittenFile]) -> DeltaTable:
    append_files(TableHandle(place_of(table)), files)
    return DeltaTable(place_of(table))


def test_what_is_committed_is_what_was_written(table: DeltaTable) -> None:
    given = rows(40)
    files = destination(table).write([given.slice(0, 15), given.slice(15)])
    assert {file.partition["era"] for file in files} == {"live", "closing"}
    assert sum(file.rows for file in files) == 40
    order = [("name", "ascending")]
    read = commit(table, files).to_pyarrow_table().select(SCHEMA.names).sort_by(order)
    assert read.cast(SCHEMA).equals(given.sort_by(order))


def test_nothing_written_counts_before_its_commit(table: DeltaTable) -> None:
    destination(table).write([rows(9)])
    assert DeltaTable(place_of(table)).to_pyarrow_table().num_rows == 0


def test_no_rows_make_no_file(table: DeltaTable) -> None:
    assert destination(table).write([rows(0)]) == []


def test_the_bounds_in_the_log_hold_every_row(table: DeltaTable) -> None:
    given = rows(40)
    committed = commit(table, destination(table).write([given]))
    for file in pa.table(committed.get_add_actions(flatten=True)).to_pylist():
        own = given.filter(pc.equal(given["era"], file["partition.era"]))
        assert file["num_records"] == own.num_rows
        for name in BOUNDED:
            low, high = (pc.min_max(own[name])[bound].as_py() for bound in ("min", "max"))
            assert file[f"min.{name}"] <= low, name
            assert file[f"max.{name}"] >= high, name
            assert file[f"null_count.{name}"] == own[name].null_count
        assert file.get("min.heat") is None


YEARS = [datetime(1, 1, 1, tzinfo=UTC), datetime(24, 3, 1, tzinfo=UTC), datetime.max.replace(tzinfo=UTC)]


def test_times_of_every_year_have_bounds_that_hold_them(table: DeltaTable) -> None:
    given = rows(3).set_column(0, "era", pa.array(["live"] * 3)).set_column(4, "at", pa.array(YEARS, INSTANT))
    committed = commit(table, destination(table).write([given]))
    (file,) = pa.table(committed.get_add_actions(flatten=True)).to_pylist()
    assert (file["min.at"], file["max.at"]) == (YEARS[0], YEARS[-1].replace(microsecond=999_000))
    assert [json.loads(a["add"]["stats"])["minValues"]["at"] for a in added(table)] == ["0001-01-01T00:00:00.000Z"]
    for at in YEARS:
        (found,) = stored_rows(TableHandle(place_of(table)), ["at"], pc.field("at") == pa.scalar(at, INSTANT)).tables()
        assert found["at"].to_pylist() == [at]


def test_a_column_without_any_value_has_no_bounds(table: DeltaTable) -> None:
    given = rows(2, first=1).set_column(2, "n", pa.nulls(2, pa.int64()))
    committed = commit(table, destination(table).write([given]))
    (file, *_) = pa.table(committed.get_add_actions(flatten=True)).to_pylist()
    assert file.get("min.n") is None
    assert file["null_count.n"] == file["num_records"]


def test_a_file_has_no_more_rows_than_it_may(table: DeltaTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(written_files, "MOST_ROWS_A_FILE", 7)
    files = destination(table, Layout(rows_a_group=3)).write([rows(20), rows(13, first=20)])
    assert sum(file.rows for file in files) == 33
    assert max(file.rows for file in files) == 7


def test_dropped_partitions_go_with_the_commit_that_adds(table: DeltaTable) -> None:
    to = destination(table)
    first = commit(table, to.write([rows(12)]))
    assert first.version() == 1
    live = rows(12, first=12).filter(pc.equal(rows(12, first=12)["era"], "live"))
    append_files(to.handle, to.write([live]), dropped=("era", ["closing"]))
    after = DeltaTable(to.handle.uri)
    assert after.version() == 2
    names = set(after.to_pyarrow_table()["name"].to_pylist())
    kept = rows(12).filter(pc.equal(rows(12)["era"], "live"))
    assert names == {*kept["name"].to_pylist(), *live["name"].to_pylist()}


LIMITED = """
import resource, signal, sys
import numpy as np, pyarrow as pa
from spark_jobs.storage.delta.places import TableHandle
from spark_jobs.storage.delta.written_files import Destination

# a write beyond the limit is an error, as on a full disk, and no signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
table = pa.table({"n": np.random.default_rng(1).random(100_000), "era": ["live", "closing"] * 50_000})
try:
    Destination(TableHandle(sys.argv[1]), table.schema, ("era",)).write([table])
except OSError as error:
    print(error.errno)
"""


@pytest.mark.slow
@pytest.mark.parametrize("limit", [0, 1000, 200_000, 390_000])
def test_a_file_that_does_not_fit_is_one_error_and_no_more(tmp_path: Path, limit: int) -> None:
    command = [sys.executable, "-c", LIMITED, str(tmp_path), str(limit)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr, done.returncode) == (f"{errno.EFBIG}\n", "", 0)


def test_texts_with_separators_of_lines_do_not_end_a_commits_lines(table: DeltaTable) -> None:
    names = ["\x85", "a\u2028b", "\x1c"]
    given = rows(3, first=1)
    place = given.schema.get_field_index("name")
    committed = commit(table, destination(table).write([given.set_column(place, "name", pa.array(names))]))
    files = pa.table(committed.get_add_actions(flatten=True))
    assert (pc.min(files["min.name"]).as_py(), pc.max(files["max.name"]).as_py()) == ("\x1c", "\x85")
