"""A backup in a bucket: sets are written there, found again, verified and brought back."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest
from pyarrow import fs

from spark_jobs.backup import back_up, restore, verify
from spark_jobs.backup.sets import LAKE
from spark_jobs.backup.stores import Store, as_pieces
from spark_jobs.config import Settings
from spark_jobs.failures import StoreUnreachable
from spark_jobs.storage.coordination.lake_claims import Claimant, LakeClaim
from spark_jobs.storage.descriptions.tables import FILES
from spark_jobs.storage.lakes.stored_lake import StoredLake
from tests.backup.test_backups import content, empty_home, publish
from tests.moto import BUCKET, bucket_files, counted_requests, s3_server


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A folder of a bucket, which the environment leads to."""
    with s3_server(tmp_path) as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        yield f"s3a://{BUCKET}/backup"


def test_a_backup_in_a_bucket_comes_back(settings: Settings, bucket: str, tmp_path: Path) -> None:
    first, other = back_up(settings, bucket, landing=True), empty_home(tmp_path)
    assert first.copied_files
    assert back_up(settings, bucket, landing=True).copied_files == 0
    publish(settings, 2)
    assert 0 < back_up(settings, bucket).copied_files < first.copied_files
    assert verify(settings, bucket).damaged == {}
    restore(other, bucket)
    assert content(other) == content(settings)


def test_a_lake_in_a_bucket_is_backed_up_without_the_claims_of_its_homes(
    settings: Settings, bucket: str, tmp_path: Path
) -> None:
    there = settings.model_copy(update={"lake": f"s3a://{BUCKET}/lake", "landing": f"s3a://{BUCKET}/landing"})
    for place, uri in ((settings.lake, there.lake), (str(settings.landing), str(there.landing))):
        fs.copy_files(place, uri.removeprefix("s3a://"), fs.LocalFileSystem(), bucket_files({**os.environ}))
    LakeClaim.take(there.lake, Claimant("id", "/home", "host"))
    made = back_up(there, bucket, landing=True).backup_set
    on_disk = back_up(settings, str(tmp_path / "backup"), landing=True).backup_set
    assert [asdict(file) for file in made.files] == [asdict(file) for file in on_disk.files]
    with counted_requests(tmp_path) as requests:
        assert verify(there, bucket).damaged == {}
    assert sum(request.startswith("HEAD") for request in requests) == len({file.stored for file in made.files}) + 1
    assert sum("list-type=2" in request for request in requests) == 4, "the folders of sets, data and objects; the lake"
    other = empty_home(tmp_path).model_copy(update={"lake": f"s3a://{BUCKET}/other"})
    LakeClaim.take(other.lake, Claimant("other", "/other", "host"))
    restore(other, bucket)
    assert [asdict(file) for file in back_up(other, f"{bucket}2").backup_set.of(LAKE)] == [
        asdict(file) for file in made.of(LAKE)
    ]


def test_a_file_is_stored_with_its_bytes_whatever_its_name(bucket: str, tmp_path: Path) -> None:
    for place in (tmp_path / "folder", bucket):
        store, content = Store.at(place), gzip.compress(b"a row\n")
        for name in ("a.csv.gz", "a.csv.zst", "a.csv"):
            store.write(name, as_pieces(content))
            assert store.read(name) == content
            assert store.sizes("")[name] == len(content)


def test_a_lake_in_a_bucket_is_read_without_a_session(settings: Settings, bucket: str) -> None:
    here, there = StoredLake.at(settings.lake), StoredLake.at(bucket)
    fs.copy_files(settings.lake, bucket.removeprefix("s3a://"), fs.LocalFileSystem(), bucket_files({**os.environ}))
    assert here is not None
    assert there is not None
    databases = ("bronze", "trace", "gold", "marts")
    assert here.catalog.names_if_present("bronze") == {"files"}
    assert [there.catalog.names_if_present(name) for name in databases] == [
        here.catalog.names_if_present(name) for name in databases
    ]
    assert there.records(FILES) == here.records(FILES) != []
    assert StoredLake.at("hdfs://name/lake") is None


def test_a_bucket_that_does_not_answer_is_named(
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_REGION", "here")
    monkeypatch.setenv("TIDEMARK_STORE_PATIENCE_S", "0.5")
    with pytest.raises(StoreUnreachable, match="s3://bucket/backup"):
        back_up(settings, "s3a://bucket/backup")
