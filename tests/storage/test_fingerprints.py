"""A table's fingerprint tells a lost commit and others' changes from Tidemark's own commits."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake

from spark_jobs.storage.delta import commits
from spark_jobs.storage.delta.fences import Fence
from spark_jobs.storage.delta.file_commits import append_files, destination
from spark_jobs.storage.delta.file_upkeep import compact_small_files
from spark_jobs.storage.delta.fingerprints import change_since, from_json, miscount, take_fingerprint, to_json
from spark_jobs.storage.delta.log_files import LOG_DIR, version_file
from spark_jobs.storage.delta.places import TableHandle
from spark_jobs.storage.delta.records import replace_records
from spark_jobs.storage.delta.rewriting import forget_versions
from spark_jobs.storage.delta.written_files import Layout


@pytest.fixture
def uri(tmp_path: Path) -> str:
    """A table that two sources share, with three commits of ours."""
    place = str(tmp_path / "of 50%")
    write_deltalake(place, rows("meters", 0).slice(0, 0), partition_by=["source"])
    for number in range(3):
        append(place, "meters", number)
    return place


def rows(source: str, *numbers: int) -> pa.Table:
    return pa.table({"source": [source] * len(numbers), "n": pa.array(numbers, pa.int64())})


def append(uri: str, source: str, *numbers: int) -> None:
    to = destination(TableHandle(uri), ("source",), ("n",), Layout())
    append_files(TableHandle(uri), to.write([rows(source, *numbers)]))


def by_hand(uri: str, source: str, *numbers: int) -> None:
    write_deltalake(uri, rows(source, *numbers), mode="append")


def change(uri: str, noted: object) -> str | None:
    return change_since(TableHandle(uri), "meters", noted)  # type: ignore[arg-type]


def commit(uri: str, version: int) -> Path:
    return Path(uri) / LOG_DIR / version_file(version)


def delete_gauges(table: DeltaTable, noted: CommitProperties) -> None:
    table.delete("source = 'gauges'", commit_properties=noted)


def test_our_own_commits_are_no_change_and_are_counted(uri: str) -> None:
    before = take_fingerprint(TableHandle(uri), "meters", None)
    assert (before.version, before.rows) == (3, 3)
    append(uri, "meters", 7, 8)
    append(uri, "gauges", 9)
    after = take_fingerprint(TableHandle(uri), "meters", before)
    assert (after.version, after.rows) == (5, 5)
    assert after == take_fingerprint(TableHandle(uri), "meters", None)
    assert from_json(to_json({"a.b": after})) == {"a.b": after}
    replace_records(TableHandle(uri), rows("meters", 1).to_pylist(), Fence("meters", 4))
    assert take_fingerprint(TableHandle(uri), "meters", after).rows == 1, "what removes files is counted anew"
    compact_small_files(TableHandle(uri), "meters")
    commits.commit(TableHandle(uri), None, delete_gauges)
    DeltaTable(uri).vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert [change(uri, noted) for noted in (before, after)] == [None, None]
    assert miscount(TableHandle(uri), "meters", after) is None
    forget_versions(TableHandle(uri))
    assert change(uri, after) is None, "a checkpoint has taken in what was noted"


def lost(uri: str) -> None:
    commit(uri, 3).unlink()


def lost_and_followed(uri: str) -> None:
    lost(uri)
    commit(uri, 3).with_suffix(".crc").unlink(missing_ok=True)
    append(uri, "gauges", 1)


def emptied(uri: str) -> None:
    commit(uri, 3).write_bytes(b"")


def replaced(uri: str) -> None:
    commit(uri, 3).write_bytes(commit(uri, 2).read_bytes())


def deleted_by_hand(uri: str) -> None:
    DeltaTable(uri).delete("n = 1")


def added_by_hand(uri: str) -> None:
    by_hand(uri, "meters", 1)
    append(uri, "meters", 5)


def set_back(uri: str) -> None:
    DeltaTable(uri).restore(2)


def cut(uri: str) -> None:
    append(uri, "meters", 5)
    commit(uri, 4).write_text('{"add": ')


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        (lost, "it ends at version 2: commits up to version 3 are gone"),
        (lost_and_followed, "the commit of version 3 is empty or another one"),
        (emptied, f"{version_file(3)} is empty"),
        (replaced, "the commit of version 3 is empty or another one"),
        (deleted_by_hand, r"version 4 \(DELETE\) was not made by Tidemark"),
        (added_by_hand, r"version 4 \(WRITE\) was not made by Tidemark"),
        (set_back, "version 4 restored one before the publication"),
        (cut, "cannot be read"),
    ],
)
def test_what_was_lost_or_changed_by_others_is_named(uri: str, damage: Callable[[str], None], found: str) -> None:
    noted = take_fingerprint(TableHandle(uri), "meters", None)
    damage(uri)
    said = change(uri, noted)
    assert said is not None
    assert re.search(found, said), said


def test_what_others_did_and_undid_or_did_to_another_source_is_no_change(uri: str) -> None:
    noted = take_fingerprint(TableHandle(uri), "meters", None)
    by_hand(uri, "gauges", 1)
    DeltaTable(uri).optimize.compact()
    assert change(uri, noted) is None
    by_hand(uri, "meters", 1)
    DeltaTable(uri).restore(5)
    assert change(uri, noted) is None
    by_hand(uri, "meters", 1)
    assert change(uri, noted) is not None
    replace_records(TableHandle(uri), rows("meters", 1).to_pylist(), Fence("meters", 9))
    assert change(uri, noted) is None, "of what they did nothing is left"


def test_an_older_commit_that_is_another_one_is_seen_by_the_count(uri: str) -> None:
    noted = take_fingerprint(TableHandle(uri), "meters", None)
    commit(uri, 2).write_bytes(commit(uri, 2).read_bytes().splitlines()[0])
    assert change(uri, noted) is None
    assert miscount(TableHandle(uri), "meters", noted) == "version 3 has 2 rows, the publication noted 3"


def test_a_table_that_is_gone_is_named(uri: str, tmp_path: Path) -> None:
    noted = take_fingerprint(TableHandle(uri), "meters", None)
    assert change(str(tmp_path), noted) == "its log is gone"
