"""What the portal holds in memory is what the tables say now."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake

from spark_jobs.portal.held_lake import MOST_RECENT, DataFiles, HeldLake
from spark_jobs.storage.descriptions.schema import Column, Table
from spark_jobs.storage.lakes.stored_lake import StoredLake

COLUMNS = {"source": "STRING", "token": "BIGINT", "at": "TIMESTAMP"}
TABLE = Table("quality", "notes", "", tuple(Column(name, kind, "") for name, kind in COLUMNS.items()))
SCHEMA = pa.schema([("source", pa.string()), ("token", pa.int64())])


def write(lake: HeldLake, *rows: tuple[str, int], **options: Any) -> None:
    table = pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], schema=SCHEMA)
    write_deltalake(lake.folder.handle(TABLE).uri, table, partition_by=["source"], **{"mode": "append", **options})


def tokens(lake: HeldLake, source: str) -> list[int]:
    return sorted(row["token"] for row in lake.records(TABLE, pc.field("source") == source))


def test_a_table_that_is_not_there_is_empty_and_then_read(tmp_path: Path) -> None:
    lake = HeldLake(tmp_path)
    assert (lake.version(TABLE), tokens(lake, "a")) == (-1, [])
    write(lake, ("a", 1), ("b & ü/c", 2))
    assert (lake.version(TABLE), tokens(lake, "a"), tokens(lake, "b & ü/c")) == (0, [1], [2])
    # a column that an older version did not write
    assert {row["at"] for row in lake.records(TABLE)} == {None}


def test_only_new_files_are_opened_and_those_that_went_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, opened = HeldLake(tmp_path), []
    whole = DataFiles.read

    def noted(self: DataFiles, path: str, *rest: Any) -> Any:
        opened.append(path)
        return whole(self, path, *rest)

    monkeypatch.setattr(DataFiles, "read", noted)
    for token in range(4):
        write(lake, ("a", token))
        assert tokens(lake, "a") == [*range(token + 1)]
        assert tokens(lake, "a") == [*range(token + 1)]
    assert len(opened) == 4
    write(lake, ("a", 9), mode="overwrite", predicate="source = 'a'")
    assert (tokens(lake, "a"), len(opened)) == ([9], 5)
    DeltaTable(lake.folder.handle(TABLE).uri).restore(1)
    assert (tokens(lake, "a"), len(opened)) == ([0, 1], 7)


def test_what_is_kept_is_made_anew_with_another_version_alone(tmp_path: Path) -> None:
    lake, made = HeldLake(tmp_path), []

    def make() -> datetime:
        made.append(datetime.now(UTC))
        return made[-1]

    assert lake.remember("k", 1, make) == lake.remember("k", 1, make) == made[0]
    assert lake.remember("k", 2, make) == made[1]
    lake.forget()
    assert lake.remember("k", 2, make) == made[2]


def test_stored_rows_are_those_of_the_newest_version_and_its_files_are_listed_once(tmp_path: Path) -> None:
    lake, before = HeldLake(tmp_path), StoredLake(tmp_path)

    def stored(of: StoredLake, source: str, least: int = 0) -> list[int]:
        rows = of.stored(TABLE, ["token"], pc.field("token") >= least, {"source": [source]}).whole()
        return sorted(rows["token"].to_pylist())

    for token in range(3):
        write(lake, ("a", token), ("b & ü/c", 10 + token))
        for source in ("a", "b & ü/c", "none"):
            assert stored(lake, source, 1) == stored(before, source, 1)
        assert stored(lake, "a") == stored(lake, "a") == [*range(token + 1)]
    files = lake.stored(TABLE, ["token"], None, {"source": ["a"]}).fragments
    assert [f.path for f in files] == [f.path for f in lake.stored(TABLE, ["token"], None, {"source": ["a"]}).fragments]
    assert lake.stored(TABLE, ["token"], None, {"source": []}).fragments == ()
    write(lake, ("a", 9), mode="overwrite", predicate="source = 'a'")
    assert stored(lake, "a") == [9]


def test_rows_of_a_source_are_read_of_its_files_alone_and_the_newest_of_one_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, opened = HeldLake(tmp_path), []
    assert lake.newest_of_source(TABLE, "a", ["at"]) is None
    for token in (3, 8, 5):
        write(lake, ("a", token), ("b & ü/c", 10 + token))
    whole = DataFiles.read

    def noted(self: DataFiles, path: str, columns: Any, *rest: Any) -> Any:
        opened.append((path, *columns))
        return whole(self, path, columns, *rest)

    monkeypatch.setattr(DataFiles, "read", noted)
    rows = lake.of_source(TABLE, "b & ü/c", ["at", "token", "source"], pc.field("token") > 13, repeated=["source"])
    assert sorted(row["token"] for row in rows.to_pylist()) == [15, 18]
    assert rows.column_names == ["at", "token", "source"] and rows["at"].null_count == 2
    assert len(opened) == 3 and all("source=b" in path for path, *_ in opened)
    newest = lake.newest_of_source(TABLE, "a", ["source"])
    assert newest == {"token": 8, "source": "a"}
    assert len([columns for columns in opened[3:] if "source" in columns]) == 1, "more than tokens only of one file"
    assert lake.newest_of_source(TABLE, "none", ["source"]) is None


def test_of_large_values_only_the_last_ones_stay(tmp_path: Path) -> None:
    lake, made = HeldLake(tmp_path), []

    def ask(number: int, of: int = 1) -> None:
        lake.recent(number, of, lambda: made.append(number))

    for number in range(MOST_RECENT + 1):
        ask(number)
    ask(MOST_RECENT)
    ask(1)
    assert made == [*range(MOST_RECENT + 1)], "each was made once"
    ask(0)
    ask(1, 2)
    assert made[-2:] == [0, 1], "the first went, and the other is another one now"


def test_a_table_that_was_made_anew_is_no_continuation_of_the_one_before(tmp_path: Path) -> None:
    lake = HeldLake(tmp_path)

    def make(*numbers: int) -> None:
        shutil.rmtree(lake.folder.handle(TABLE).uri, ignore_errors=True)
        for number in numbers:
            write(lake, ("a", number))

    make(1, 2)
    assert tokens(lake, "a") == [1, 2]
    # as many versions as before, then more, then fewer
    make(3, 4)
    assert tokens(lake, "a") == [3, 4]
    make(5, 6, 7)
    with lake.one_look():
        assert tokens(lake, "a") == [5, 6, 7]
        assert sorted(lake.stored(TABLE, ["token"]).whole()["token"].to_pylist()) == [5, 6, 7]
    make(8)
    assert tokens(lake, "a") == [8]
    make()
    assert tokens(lake, "a") == []
