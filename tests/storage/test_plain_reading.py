"""The second way to read a table finds what the log's bounds hide, and nothing in a sound table."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from spark_jobs.storage.delta.file_commits import append_files, destination
from spark_jobs.storage.delta.log_files import LOG_DIR
from spark_jobs.storage.delta.places import TableHandle
from spark_jobs.storage.delta.plain_reading import differing_files, misread_rows
from spark_jobs.storage.delta.written_files import Layout

COLUMNS = ("n", "at", "day", "text", "empty")


@pytest.fixture
def uri(tmp_path: Path) -> str:
    place = str(tmp_path / "of 50%")
    for number in range(3):
        rows = pa.table(
            {
                "source": ["meters", "gauges"],
                "n": [2**62 + number, -number],
                "at": [datetime(1500 + number, 1, 1, 0, 0, 0, 999_999, UTC), datetime(2024, 1, 1, 0, 0, 0, 1, UTC)],
                "day": [date(1969, 12, 31), date(9999, 1, 1)],
                "text": ["a" * 100, "ü\U0010ffff" * 40],
                "empty": pa.array([None, None], pa.int64()),
            }
        )
        if number == 0:
            write_deltalake(place, rows.slice(0, 0), partition_by=["source"])
        append_files(TableHandle(place), destination(TableHandle(place), ("source",), COLUMNS, Layout()).write([rows]))
    return place


def misread(uri: str, **partitions: str) -> list[tuple[str, str]]:
    found = list(misread_rows(TableHandle(uri), COLUMNS, partitions))
    return [(row.get("file") or row["column"], row["found"]) for row in found]


def differing(uri: str) -> list[tuple[str, str]]:
    return [(row["file"], row["found"]) for row in differing_files(TableHandle(uri), {})]


def with_stats(uri: str, change: object) -> None:
    """Other statistics of the first file of meters in the newest commit."""
    commit = max(path for path in (Path(uri) / LOG_DIR).glob("*.json") if path.stem.isdigit())
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    add = next(action["add"] for action in actions if "source=meters" in action.get("add", {}).get("path", ""))
    add["stats"] = json.dumps(change(json.loads(add["stats"])), ensure_ascii=False)  # type: ignore[operator]
    commit.write_text("\n".join(json.dumps(action, ensure_ascii=False) for action in actions))
    commit.with_name(f".{commit.name}.crc").unlink()


def first_file(uri: str) -> Path:
    return min(Path(uri).glob("source=gauges/*.parquet"))


def test_a_sound_table_reads_alike(uri: str) -> None:
    write_deltalake(uri, DeltaTable(uri).to_pyarrow_table().slice(0, 1), mode="append")
    assert misread(uri) == []
    assert misread(uri, source="meters") == []
    assert misread(uri, source="gauges") == [], "characters beyond U+1FFFF in bounds"
    assert differing(uri) == []


def test_rows_that_a_wrong_bound_hides_are_missed(uri: str) -> None:
    beyond = {"minValues": {"n": 2**62 + 100}, "maxValues": {"n": 2**62 + 200}}
    with_stats(uri, lambda stats: {**stats, **{side: stats[side] | bound for side, bound in beyond.items()}})
    (of_file, of_column) = misread(uri, source="meters")
    assert of_file[0].startswith("source=meters/")
    assert of_file[1] == f"has n {2**62 + 2}, the log's least is {2**62 + 100}"
    assert of_column[0] == "n"
    assert of_column[1].startswith("2 values by the log's bounds, 3 in the files; their sums are")
    assert misread(uri, source="gauges") == []


def test_a_wrong_count_is_named(uri: str) -> None:
    with_stats(uri, lambda stats: stats | {"numRecords": 7})
    assert [found for _, found in misread(uri)] == ["has 1 rows, the log says 7"]


def test_a_file_that_is_valid_and_another_one_differs_from_its_checksum(uri: str) -> None:
    path = first_file(uri)
    rows = pq.ParquetFile(path).read()
    pq.write_table(rows.set_column(rows.column_names.index("n"), "n", pa.array([3], pa.int64())), path)
    ((file, found),) = differing(uri)
    assert str(path).endswith(file)
    assert "differs from its checksum" in found


def test_a_file_that_cannot_be_read_is_named(uri: str) -> None:
    path = first_file(uri)
    path.write_bytes(path.read_bytes()[:-9])
    ((file, found), *_) = misread(uri, source="gauges")
    assert str(path).endswith(file)
    assert "cannot be read" in found
