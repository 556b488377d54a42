"""A table with many partitions in a bucket is listed by one request, and what is listed is as on a disk."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from spark_jobs.s3 import environment_options
from spark_jobs.storage.delta.file_upkeep import files_in_use, files_stored
from spark_jobs.storage.delta.places import LakeFolder, TableHandle
from spark_jobs.storage.delta.rewriting import forget_versions
from tests.moto import BUCKET, counted_requests, s3_server

pytestmark = pytest.mark.slow

TABLE = f"s3://{BUCKET}/lake/trace.db/updates"
PARTITIONS = 30


def write(handle: TableHandle) -> None:
    """Write a table of two versions; the second replaces all files of the first."""
    rows = pa.table({"batch": [str(number) for number in range(PARTITIONS)], "n": list(range(PARTITIONS))})
    for _ in range(2):
        write_deltalake(
            handle.uri, rows, mode="overwrite", partition_by=["batch"], storage_options=dict(handle.options) or None
        )


def kinds(sizes: dict[str, int]) -> list[str]:
    """The folders and endings of files, without the parts of their names that are chosen at random. Checksums of
    commits, which are kept on a disk alone, are left out."""
    return sorted(f"{path.rpartition('/')[0]} {path.rpartition('.')[2]}" for path in sizes if path[-4:] != ".crc")


def test_one_request_lists_all_partitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with s3_server(tmp_path) as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        here, there = TableHandle(str(tmp_path / "table")), TableHandle(TABLE, environment_options(TABLE))
        for handle in (here, there):
            write(handle)
        with counted_requests(tmp_path) as requests:
            sizes = there.sizes()
        assert len(requests) == 1, requests
        assert kinds(sizes) == kinds(here.sizes())
        assert files_stored(there).files == files_stored(here).files == 2 * PARTITIONS + 2
        below_root = LakeFolder(f"s3://{BUCKET}/lake", there.options).sizes("trace.db")
        assert below_root == {f"trace.db/updates/{path}": size for path, size in sizes.items()}
        for handle in (here, there):
            forget_versions(handle)
        assert kinds(there.sizes()) == kinds(here.sizes())
        assert files_in_use(there).files == files_in_use(here).files == PARTITIONS
        assert DeltaTable(TABLE, storage_options=dict(there.options)).to_pyarrow_table().num_rows == PARTITIONS
        assert TableHandle(f"{TABLE}_none", there.options).sizes() == {}
