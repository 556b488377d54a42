"""What is published of one entity, read from the files of the table, is what the runs published."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import WriterProperties, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.engine.deltas import NO_DELTA, CompactionPolicy, TieredMerge
from spark_jobs.engine.spark.checkpoints import columns_needed
from spark_jobs.restatement.chain_stretches import SEGMENT_PART
from spark_jobs.restatement.chains import PublishedFiles, chain_schema
from spark_jobs.storage.coordination.publication import Publication
from spark_jobs.storage.delta.chain_files import DeltaLog
from spark_jobs.storage.delta.places import TableHandle
from tests.effort import tries
from tests.engine.test_deltas_segments import Row, updates
from tests.restatement.test_chain_worker import Published, as_a_set

TIMES = ("known_from", "known_to")
SOURCE = "meters"


def write(place: Path, rows: list[Row], token: int) -> None:
    """Append rows of the history as a run does, in row groups of two rows."""
    schema = pa.schema([*chain_schema(), ("source", pa.string()), ("token", pa.int64())])
    table = pa.Table.from_pylist([{**row, "source": SOURCE, "token": token} for row in rows], schema=schema)
    for name in TIMES:
        time = table[name].cast(pa.timestamp("us", "UTC"))
        table = table.set_column(table.schema.get_field_index(name), name, time)
    few = WriterProperties(max_row_group_size=2)
    table = table.drop_columns("part").sort_by([("entity", "ascending"), ("start_time", "ascending")])
    write_deltalake(place, table, mode="append", partition_by=["source", "era"], writer_properties=few)


@pytest.mark.parametrize("mode", ["add", "operations"])
@given(rows=updates(), cut=st.integers(0, 16))
@settings(max_examples=tries(4), deadline=None)
def test_an_entity_is_read_as_it_was_published_run_after_run(
    tmp_path_factory: pytest.TempPathFactory, mode: str, rows: list[Row], cut: int
) -> None:
    place = tmp_path_factory.mktemp("chains")
    chains = Published(mode, CompactionPolicy(TieredMerge(1), delta_threshold=2))
    by_time = sorted(rows, key=lambda row: row["time"])
    log = None
    for token, part in enumerate((by_time[:cut], by_time[cut:]), start=1):
        chains.run(part)
        written = [row for row in chains.last if row["part"] == SEGMENT_PART]
        if not written:
            continue
        write(place, written, token)
        write(place, [{**row, "entity": "b", "known_from": 1, "era": "live"} for row in written], token + 10)
        log = log or DeltaLog(TableHandle(str(place)))
        now = log.now()
        assert now is not None
        publication = Publication(chains.known_from + 1, 0, 0, settled=token)
        for least, greatest in (("a", "a"), ("b", "b"), ("a", "b"), ("c", "c")):
            found = PublishedFiles(now, SOURCE, chains.meaning, publication).between(least, greatest)
            expected = [row for row in chains.packed().to_pylist() if least <= row["entity"] <= greatest]
            expected = [{k: NO_DELTA if k[:5] == "start" and v is None else v for k, v in r.items()} for r in expected]
            told = found.select(columns_needed(chains.meaning)).to_pylist()
            assert as_a_set(told) == as_a_set(expected)
            assert len(told) == len(expected)
        other = PublishedFiles(now, "other", chains.meaning, publication).between("a", "b")
        assert other.num_rows == 0


def test_a_file_without_a_column_that_came_later_is_read(tmp_path: Path) -> None:
    chains = Published("add", CompactionPolicy(TieredMerge(1), delta_threshold=2))
    row = {"entity": "a", "event_time": 1, "time": 1, "row_id": 1, "diff": 1, "x": 5}
    chains.run([row])
    live = [row for row in chains.last if row["part"] == SEGMENT_PART]
    write(tmp_path, live, 1)
    known = pa.array([2], pa.timestamp("us", "UTC"))
    plain = {"source": [SOURCE], "era": ["live"], "entity": ["b"], "token": [1], "known_from": known}
    write_deltalake(tmp_path, pa.table(plain), mode="append", schema_mode="merge")
    now = DeltaLog(TableHandle(str(tmp_path))).now()
    assert now is not None
    files = PublishedFiles(now, SOURCE, chains.meaning, Publication(chains.known_from + 1, 0, 0, settled=1))
    assert files.between("a", "a")["entity"].to_pylist() == ["a"]
    older = files.between("b", "b").to_pylist()
    assert [(row["entity"], row["event_times"], row["start_time"]) for row in older] == [("b", None, NO_DELTA)]


@pytest.mark.parametrize("commits", [1, 2, 3])
def test_a_table_written_anew_in_the_same_folder_is_opened_anew(tmp_path: Path, commits: int) -> None:
    """The folder of the log, and so its inode, stay; files of the table before are gone."""
    log = None
    for entity, n in (("a", 2), ("b", commits)):
        for file in tmp_path.rglob("*.*"):
            if file.is_file():
                file.unlink()
        for row in range(n):
            write_deltalake(tmp_path, pa.table({"entity": [entity], "row": [row]}), mode="append")
        log = log or DeltaLog(TableHandle(str(tmp_path)))
        now = log.now()
        assert now is not None
        read = pa.concat_tables([rows for _, rows in now.between("a", "c", ["entity", "row"], {})])
        assert sorted(zip(read["entity"].to_pylist(), read["row"].to_pylist(), strict=True)) == [
            (entity, row) for row in range(n)
        ]
