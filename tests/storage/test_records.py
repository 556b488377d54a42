"""Records: one committer however many processes, each attempt's commit once, and what Spark and others read of them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from spark_jobs.storage.delta.commits import CommitsContended
from spark_jobs.storage.delta.fences import Fence
from spark_jobs.storage.delta.places import TableHandle
from spark_jobs.storage.delta.records import (
    ColumnsMissing,
    RecordsLost,
    append_records,
    arrow_records,
    read_records,
    replace_records,
    widen_records,
)
from spark_jobs.storage.descriptions.schema import Column, Table
from spark_jobs.storage.descriptions.tables import DATABASES, FILES, FRONTIERS, PUBLISHED
from spark_jobs.storage.lakes.spark_lake import SparkLake

AT = datetime(2024, 1, 1, 0, 0, 0, 123457, tzinfo=UTC)


def empty(folder: Path, table: Table) -> str:
    """An empty table as Spark would have created it, without Spark."""
    schema = arrow_records(table, []).schema
    DeltaTable.create(str(folder), schema=schema, partition_by=list(table.partitions), description=table.comment)
    return str(folder)


def row(source: str, token: int, **more: Any) -> dict[str, Any]:
    return {"source": source, "token": token, "run_id": f"run-{token}", "moved_at": AT, **more}


def rows(uri: str) -> list[dict[str, Any]]:
    return sorted(read_records(TableHandle(uri), None).to_pylist(), key=lambda row: (row["source"], row["token"]))


def test_rows_come_back_as_they_were_written(tmp_path: Path) -> None:
    uri = empty(tmp_path, FRONTIERS)
    assert append_records(TableHandle(uri), [row("a", 1, state="{}"), row("b", 2)], None)
    assert rows(uri) == [{**dict.fromkeys(FRONTIERS.column_names), **r} for r in (row("a", 1, state="{}"), row("b", 2))]
    assert [r["token"] for r in read_records(TableHandle(uri), pc.field("source") == "b").to_pylist()] == [2]


def test_an_attempt_commits_once_and_not_after_a_newer_one(tmp_path: Path) -> None:
    uri = empty(tmp_path, FRONTIERS)
    assert append_records(TableHandle(uri), [row("a", 5)], Fence("a", 5))
    assert not append_records(TableHandle(uri), [row("a", 5)], Fence("a", 5))
    assert not append_records(TableHandle(uri), [row("a", 4)], Fence("a", 4))
    assert append_records(TableHandle(uri), [row("b", 4)], Fence("b", 4)), "tokens are counted by source"
    assert [(r["source"], r["token"]) for r in rows(uri)] == [("a", 5), ("b", 4)]


def test_a_replacement_leaves_other_sources_alone(tmp_path: Path) -> None:
    uri = empty(tmp_path, PUBLISHED)
    for token, source in enumerate(("a", "b", "a"), 1):
        published = {"source": source, "token": token, "tokens": [token, 7], "published": AT}
        assert replace_records(TableHandle(uri), [published], Fence(source, token))
    assert not replace_records(TableHandle(uri), [{"source": "a", "token": 2}], Fence("a", 2))
    assert [(r["source"], r["token"], r["tokens"]) for r in rows(uri)] == [("a", 3, [3, 7]), ("b", 2, [2, 7])]


APPEND = """
import sys
from spark_jobs.storage.delta.fences import Fence
from spark_jobs.storage.delta.places import TableHandle
from spark_jobs.storage.delta.records import append_records
uri, source, first, past = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
for token in range(first, past):
    append_records(TableHandle(uri), [{"source": source, "token": token}], Fence(source, token))
"""


@pytest.mark.slow
def test_processes_that_commit_at_once_lose_nothing_and_repeat_nothing(tmp_path: Path) -> None:
    uri = empty(tmp_path, FRONTIERS)
    # two of them make the same attempts, so each is made by the one that comes first
    asked = [("a", 1, 31), ("a", 1, 31), ("b", 1, 31)]
    commands = [[sys.executable, "-c", APPEND, uri, source, str(lo), str(hi)] for source, lo, hi in asked]
    started = [subprocess.Popen(command) for command in commands]
    assert [process.wait(timeout=300) for process in started] == [0, 0, 0]
    assert [(r["source"], r["token"]) for r in rows(uri)] == [(s, t) for s in ("a", "b") for t in range(1, 31)]


def test_a_commit_that_never_gets_its_version_says_who_stands_in_its_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = empty(tmp_path, FRONTIERS)
    from deltalake import DeltaTable as Opened

    class Overtaken(Opened):
        """A table on which another commit is made each time that it has been opened."""

        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            Opened(uri).alter.set_table_description(f"seen at {self.version()}")

    monkeypatch.setattr("deltalake.DeltaTable", Overtaken)
    monkeypatch.setattr("spark_jobs.storage.delta.commits.TRIED_FOR_S", 0.1)
    with pytest.raises(CommitsContended, match=r"within 0\.1 s"):
        append_records(TableHandle(uri), [row("a", 1)], None)
    monkeypatch.undo()
    assert rows(uri) == []


def test_a_column_that_the_table_lacks_is_refused_by_name(tmp_path: Path) -> None:
    uri = empty(tmp_path, Table("bronze", "files", "A ledger.", FILES.columns[:2], ("source",)))
    with pytest.raises(ColumnsMissing, match="columns path, rows in") as refusal:
        append_records(TableHandle(uri), [{"source": "a"}, {"source": "a", "rows": 1, "path": "f"}], None)
    assert (refusal.value.facts["columns"], rows(uri)) == (["path", "rows"], [])


def test_columns_that_an_older_table_lacks_are_filled_in_one_commit_and_keep_their_comments(tmp_path: Path) -> None:
    old = Table("bronze", "files", "A ledger.", FILES.columns[:2], ("source",))
    uri = empty(tmp_path, old)
    append_records(TableHandle(uri), [{"source": "a", "seq_no": 3}], None)
    before = DeltaTable(uri)
    widened = pa.table({"source": ["a"], "seq_no": [3], "path": ["a/b.csv"]})
    widen_records(TableHandle(uri), lambda: widened, {"path": "The file."})
    after = DeltaTable(uri)
    assert read_records(TableHandle(uri), None).to_pylist() == [{"source": "a", "seq_no": 3, "path": "a/b.csv"}]
    assert after.version() == before.version() + 1
    assert [f.metadata for f in after.schema().fields][2] == {"comment": "The file."}
    assert (after.metadata().partition_columns, after.metadata().description) == (["source"], "A ledger.")


@pytest.mark.spark
def test_spark_reads_what_is_recorded_and_creates_what_it_is_recorded_in(empty_lake: SparkSession) -> None:
    held = SparkLake(empty_lake)
    assert held.records(FRONTIERS) == [], "before the first run there is no table"
    held.catalog.ensure(DATABASES, [FRONTIERS, PUBLISHED])
    for token in range(1, 15):  # beyond a checkpoint of the log
        held.record(FRONTIERS, [row("a", token, seal=AT)], Fence("a", token))
        held.replace_record(
            PUBLISHED, {"source": "a", "token": token, "tokens": [token], "published": AT}, Fence("a", token)
        )
        assert empty_lake.table("trace.frontiers").count() == token
        assert [r.token for r in empty_lake.table("trace.published").collect()] == [token]
    seals = empty_lake.sql("SELECT DISTINCT unix_micros(seal) AS seal FROM trace.frontiers WHERE token > 3").collect()
    assert [r.seal for r in seals] == [int(AT.timestamp()) * 1_000_000 + 123457]
    assert held.commits == 28
    comments = {c.name: c.comment for c in FRONTIERS.columns}
    described = {r.col_name: r.comment for r in empty_lake.sql("DESCRIBE trace.frontiers").collect()}
    shutil.rmtree(Path(held.folder.handle(FRONTIERS).uri) / "_delta_log")
    with pytest.raises(RecordsLost, match="which the catalog has"):
        held.records(FRONTIERS)
    assert {name: described[name] for name in comments} == comments


@pytest.mark.spark
def test_a_table_of_an_earlier_release_gets_its_columns_without_a_commit_of_sparks(empty_lake: SparkSession) -> None:
    held = SparkLake(empty_lake)
    columns = [c for c in FILES.columns if c.name not in ("version", "replaces")]
    older = Table("bronze", "files", FILES.comment, tuple(columns), FILES.partitions, FILES.skipping)
    held.catalog.ensure(DATABASES, [older])
    held.record(older, [{"source": "a", "seq_no": 2, "landing": 4, "rows": 7}])
    newer = Column("version", "STRING", "What counts.", filled="IF(rows > 5, 'landed', 'unreadable')")
    listed = tuple(newer if c.name == "version" else c for c in FILES.columns)
    held.catalog.widen([Table("bronze", "files", FILES.comment, listed, FILES.partitions, FILES.skipping)])
    (found,) = held.records(FILES)
    assert (found["version"], found["replaces"], found["rows"]) == ("landed", None, 7)
    history = DeltaTable(held.folder.handle(FILES).uri).history()
    assert [entry.get("engineInfo", "").startswith("Apache-Spark") for entry in history] == [False, False, True]
    assert dict(DeltaTable(held.folder.handle(FILES).uri).metadata().configuration)["delta.dataSkippingStatsColumns"]
    assert empty_lake.table("bronze.files").count() == 1
