"""The index of chunks is written into a bucket as onto a disk."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from spark_jobs.s3 import environment_options
from spark_jobs.storage.delta.chunk_index import newest_index
from spark_jobs.storage.delta.chunk_index_writer import write_index
from spark_jobs.storage.delta.places import TableHandle
from tests.moto import BUCKET, s3_server

pytestmark = pytest.mark.slow

TABLE = f"s3://{BUCKET}/lake/bronze.db/chunks"


def land(handle: TableHandle, landing: int) -> None:
    """Append a chunk of each of some entities, and bring the index up to date."""
    at = [datetime(2024, 1, landing, tzinfo=UTC)] * 3
    rows = pa.table({"entity": ["a", "b", "c"], "landing": [landing] * 3, "min_taken": at, "max_taken": at})
    write_deltalake(handle.uri, rows, mode="append", storage_options=dict(handle.options) or None)

    def all_count(landings: Collection[int]) -> Collection[int]:
        return landings

    assert write_index(handle, ["taken"], all_count, newest=100)
    assert not write_index(handle, ["taken"], all_count, newest=100)


def test_an_index_in_a_bucket_is_that_on_a_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with s3_server(tmp_path) as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        here, there = TableHandle(str(tmp_path / "table")), TableHandle(TABLE, environment_options(TABLE))
        for landing in range(1, 7):
            for handle in (here, there):
                land(handle, landing)
            of_disk, of_bucket = newest_index(here.files()), newest_index(there.files())
            assert of_disk is not None and of_bucket is not None
            assert (of_bucket.version, len(of_bucket.parts)) == (of_disk.version, len(of_disk.parts))
            assert of_bucket.version == landing - 1
