"""Damage to tables is found by name; whole tables are not complained about."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_jobs.storage.delta.lake_files import LakeFiles
from spark_jobs.storage.delta.places import LakeFolder
from spark_jobs.storage.delta.table_check import damaged_tables
from tests.remains import leave_remains

COMMITS = 3


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A lake with one table of three versions; the last one removes the first one's file."""
    log = tmp_path / "gold.db" / "state" / "_delta_log"
    log.mkdir(parents=True)
    for version in range(COMMITS):
        data = log.parent / f"part {version}.parquet"
        pq.write_table(pa.table({"n": list(range(1000))}), data, write_page_checksum=True, compression="none")
        actions = [{"add": {"path": f"part%20{version}.parquet", "size": data.stat().st_size}}]
        if version == COMMITS - 1:
            actions.append({"remove": {"path": "part%200.parquet"}})
        (log / f"{version:020d}.json").write_text("\n".join(map(json.dumps, actions)))
        (log / f"{version:020d}.crc").write_text("{}")
    return tmp_path


def damage(lake: Path, *, deep: bool = False) -> list[tuple[str, str]]:
    folder = LakeFolder(str(lake))
    found = list(damaged_tables(folder, LakeFiles.of(folder), deep=deep))
    assert all(each.table == "gold.db/state" for each in found)
    return [(each.file, each.finding) for each in found]


def test_a_whole_table_has_no_damage(lake: Path) -> None:
    assert damage(lake) == []
    assert damage(lake, deep=True) == []


def test_a_missing_file_is_named_and_a_removed_one_is_not_missed(lake: Path) -> None:
    table = lake / "gold.db" / "state"
    (table / "part 0.parquet").unlink()
    (table / "part 1.parquet").unlink()
    assert damage(lake) == [("part 1.parquet", "is missing")]


def test_a_truncated_file_is_seen_without_reading_it(lake: Path) -> None:
    file = lake / "gold.db" / "state" / "part 1.parquet"
    file.write_bytes(file.read_bytes()[:-10])
    [(name, finding)] = damage(lake)
    assert name == "part 1.parquet"
    assert "the log says" in finding


def test_a_flipped_byte_is_seen_by_the_deep_check(lake: Path) -> None:
    file = lake / "gold.db" / "state" / "part 2.parquet"
    content = bytearray(file.read_bytes())
    content[100] ^= 1
    file.write_bytes(content)
    assert damage(lake) == []
    [(name, finding)] = damage(lake, deep=True)
    assert name == "part 2.parquet"
    assert "cannot be read" in finding


@pytest.mark.slow
def test_any_flipped_byte_is_seen_where_hadoop_has_left_checksums(lake: Path) -> None:
    file = lake / "gold.db" / "state" / "part 2.parquet"
    whole = file.read_bytes()
    blocks = [whole[start : start + 512] for start in range(0, len(whole), 512)]
    checksums = b"".join(zlib.crc32(block).to_bytes(4, "big") for block in blocks)
    file.with_name(f".{file.name}.crc").write_bytes(b"crc\0" + (512).to_bytes(4, "big") + checksums)
    assert damage(lake, deep=True) == []
    for position in range(0, len(whole), 97):
        file.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        [(name, finding)] = damage(lake, deep=True)
        assert name == "part 2.parquet"
        assert f"between bytes {position // 512 * 512} and" in finding


@pytest.mark.parametrize("version", range(COMMITS))
def test_a_deleted_commit_is_named(lake: Path, version: int) -> None:
    (lake / "gold.db" / "state" / "_delta_log" / f"{version:020d}.json").unlink()
    [(name, finding)] = damage(lake)
    assert name == f"_delta_log/{version:020d}.json"
    assert "is missing" in finding


def test_a_log_without_a_commit_is_damage_where_the_table_has_rows_alone(lake: Path) -> None:
    for log in (lake / "gold.db" / "state" / "_delta_log").iterdir():
        log.unlink()
    leave_remains(lake / "gold.db" / "stopped")
    assert damage(lake) == [("_delta_log", "holds no version")]


def test_a_commit_that_is_not_json_is_named(lake: Path) -> None:
    (lake / "gold.db" / "state" / "_delta_log" / f"{1:020d}.json").write_text('{"add": ')
    [(name, _)] = damage(lake)
    assert name == f"_delta_log/{1:020d}.json"


def test_a_checkpoint_stands_for_the_commits_before_it(lake: Path) -> None:
    log = lake / "gold.db" / "state" / "_delta_log"
    size = (log.parent / "part 1.parquet").stat().st_size
    adds = pa.array([{"path": "part%201.parquet", "size": size}, None])
    pq.write_table(pa.table({"add": adds}), log / f"{1:020d}.checkpoint.parquet")
    for version in (0, 1):
        (log / f"{version:020d}.json").unlink()
    assert damage(lake) == []
    (log.parent / "part 1.parquet").unlink()
    assert damage(lake) == [("part 1.parquet", "is missing")]
