"""Files are joined, and go, without a row that changes; whoever read the table before still finds its files."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from spark_jobs.storage.delta.file_upkeep import (
    compact_small_files,
    delete_rows_before,
    files_in_use,
    files_stored,
    remove_unused,
)
from spark_jobs.storage.delta.places import TableHandle

WEEK = timedelta(days=7)


@pytest.fixture
def table(tmp_path: Path) -> str:
    """A table that two sources share, of four commits."""
    for number in range(4):
        at = pa.array([number * 86_400_000_000] * 2, pa.timestamp("us", "UTC"))
        rows = pa.table({"source": ["here", "there"], "n": [number, number], "at": at})
        write_deltalake(tmp_path / "shared", rows, mode="append", partition_by=["source"])
    return str(tmp_path / "shared")


def rows_of(table: str) -> list[tuple[str, int]]:
    rows = DeltaTable(table).to_pyarrow_table().to_pylist()
    return sorted((row["source"], row["n"]) for row in rows)


def data_files(table: str) -> set[Path]:
    return set(Path(table).rglob("*.parquet"))


def test_small_files_of_one_source_become_one(table: str) -> None:
    before = rows_of(table)
    compact_small_files(TableHandle(table), "here")
    assert (files_in_use(TableHandle(table), "here").files, files_in_use(TableHandle(table), "there").files) == (1, 4)
    assert files_in_use(TableHandle(table)).files == 5
    assert rows_of(table) == before


def test_a_table_without_small_files_gets_no_commit(table: str) -> None:
    compact_small_files(TableHandle(table), "here")
    version = DeltaTable(table).version()
    compact_small_files(TableHandle(table), "here")
    assert DeltaTable(table).version() == version


def test_files_out_of_use_stay_for_those_who_read_them(table: str) -> None:
    opened = DeltaTable(table)
    compact_small_files(TableHandle(table))
    remove_unused(TableHandle(table), WEEK)
    assert opened.to_pyarrow_table().num_rows == 8
    assert len(data_files(table)) == 10


def test_files_out_of_use_for_longer_go_and_no_others(table: str) -> None:
    before, stored = rows_of(table), files_stored(TableHandle(table))
    compact_small_files(TableHandle(table))
    written = Path(table) / "source=here" / "of-no-commit.parquet"
    written.write_bytes(b"of a stage at work")
    left = Path(table) / "source=here" / "left-by-a-crash.parquet"
    left.write_bytes(b"of a stage that died")
    os.utime(left, (0, 0))
    remove_unused(TableHandle(table), WEEK)
    assert written.exists()
    assert not left.exists()
    remove_unused(TableHandle(table), timedelta(0))
    assert rows_of(table) == before
    assert len(data_files(table)) == files_in_use(TableHandle(table)).files == 2
    assert files_stored(TableHandle(table)).files < stored.files + 5


def test_what_hadoop_keeps_beside_a_file_goes_with_the_file(tmp_path: Path) -> None:
    table = tmp_path / "höme of 50%"
    write_deltalake(table, pa.table({"n": [1]}))
    standing = next(table.glob("*.parquet"))
    sidecars = [table / f".{name}.crc" for name in (standing.name, "old.parquet", "new.parquet")]
    of_log = table / "_delta_log" / ".00000000000000000009.json.crc"
    for file in (*sidecars, of_log):
        file.write_bytes(b"crc\0")
        os.utime(file, (0, 0))
    os.utime(sidecars[2])
    remove_unused(TableHandle(str(table)), WEEK)
    assert set(table.rglob(".*.crc")) == {sidecars[0], sidecars[2], of_log}


def test_old_rows_of_one_source_go(table: str) -> None:
    delete_rows_before(TableHandle(table), "here", "at", datetime(1970, 1, 3, tzinfo=UTC))
    assert rows_of(table) == [("here", 2), ("here", 3), *[("there", n) for n in range(4)]]
