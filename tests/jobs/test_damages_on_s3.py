"""A lake in a bucket is examined and searched as the same lake on a disk, with one listing of its files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyarrow import fs

from spark_jobs.audit.examination import examine_lake, examine_source
from spark_jobs.config import Settings
from spark_jobs.erasure.search import landed_files, left_in_tables
from spark_jobs.model import Finding
from spark_jobs.sources import load_source
from spark_jobs.storage.delta.places import object_files
from spark_jobs.storage.lakes.stored_lake import StoredLake
from spark_jobs.threads import map_requests
from tests.jobs.test_damages import DAMAGES, WINDOWS, kept, settings
from tests.moto import BUCKET, counted_requests, s3_server

__all__ = ["kept", "settings"]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a server, which the environment leads to."""
    folder = tmp_path_factory.mktemp("server")
    with s3_server(folder) as environment, pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        yield folder


@pytest.fixture
def on_s3(settings: Settings, server: Path) -> Settings:
    """The settings with the lake and the landing directory in a bucket. `upload` copies both there."""
    name = settings.home.parent.name
    places = {"lake": f"s3a://{BUCKET}/{name}/lake", "landing": f"s3a://{BUCKET}/{name}/landing"}
    return settings.model_copy(update=places)


def upload(here: Settings, there: Settings) -> None:
    """Copy the lake and the landed files to the bucket."""
    for place, uri in ((here.lake, there.lake), (str(here.landing), str(there.landing))):
        to = object_files(uri)

        def put(file: Path, place: str = place, to: fs.FileSystem = to) -> None:
            with to.open_output_stream(str(file.relative_to(place)), compression=None) as copy:
                copy.write(file.read_bytes())

        list(map_requests(put, [file for file in Path(place).rglob("*") if file.is_file()]))


def findings(of: Settings, *, deep: bool = False) -> list[Finding]:
    return list(examine_lake(of, deep=deep))


def in_bucket(found: Finding, here: Settings, there: Settings) -> Finding:
    """A finding about the lake on the disk as it is about the lake in the bucket."""
    texts = (text.replace(here.lake, there.lake.replace("s3a:", "s3:")) for text in (found.found, found.do))
    return Finding(found.what, found.verdict, *texts)


SOME = [
    "newest commit of bronze.db/files gone",
    "newest commit of silver.db/hourly_history flipped",
    "older commit gone",
    "frontiers removed",
    "publication doubled",
    "windows changed",
    "file of silver.db/hourly_history gone",
    "file of bronze.db/meters_chunks flipped",
    "folder of gold.db/state_history gone",
    "log gone",
]
"""A damage of each kind. The error about a truncated file of the trace names the file without the lake's place."""


@pytest.mark.turns
@pytest.mark.parametrize("damage", SOME)
def test_a_damage_is_named_as_on_a_disk(settings: Settings, on_s3: Settings, damage: str) -> None:
    done, table = DAMAGES[damage]
    done(settings, table)
    upload(settings, on_s3)
    on_disk = [in_bucket(found, settings, on_s3) for found in findings(settings, deep=True)]
    assert findings(on_s3, deep=True) == on_disk
    assert any(found.verdict == "wrong" for found in on_disk)
    source = load_source(settings.sources / "meters.yml")
    assert examine_source(on_s3, source) == [in_bucket(f, settings, on_s3) for f in examine_source(settings, source)]


def test_a_sound_lake_is_sound_and_one_that_is_not_there_yet_is_too(settings: Settings, on_s3: Settings) -> None:
    assert findings(on_s3) == [Finding("tables", "ok", "none yet")]
    upload(settings, on_s3)
    assert findings(on_s3, deep=True) == findings(settings, deep=True)
    assert findings(on_s3)[0].found == "every file there"
    assert not any(found.verdict == "wrong" for found in findings(on_s3))


def test_a_file_that_a_run_adds_after_the_listing_is_not_missing(settings: Settings, on_s3: Settings) -> None:
    upload(settings, on_s3)

    def add_rows(step: str, n_done: int = 0, total: int = 0) -> None:
        if step == "tables" and not n_done:
            done, table = DAMAGES["windows changed"]
            done(settings, table)
            upload(settings, on_s3)

    found = list(examine_lake(on_s3, report_step=add_rows))
    assert not any("is missing" in each.found for each in found), found


def test_the_listing_of_a_lake_does_not_grow_with_its_folders(
    settings: Settings, on_s3: Settings, server: Path
) -> None:
    def listings() -> int:
        with counted_requests(server) as requests:
            findings(on_s3)
        return sum("list-type=2" in request for request in requests)

    upload(settings, on_s3)
    before = listings()
    for number in range(40):
        folder = Path(settings.lake) / WINDOWS / f"batch={number}"
        folder.mkdir()
        (folder / "unused.parquet").write_bytes(b"PAR1")
    upload(settings, on_s3)
    assert listings() == before


@pytest.mark.parametrize("value", ["meters", "nobody"])
def test_a_value_is_searched_for_as_on_a_disk(settings: Settings, on_s3: Settings, value: str) -> None:
    upload(settings, on_s3)
    source = load_source(settings.sources / "meters.yml")
    here, there = StoredLake(settings.lake), StoredLake(on_s3.lake)
    on_disk = [line.replace(settings.lake, there.folder.root) for line in left_in_tables(settings, here, source, value)]
    assert list(left_in_tables(on_s3, there, source, value)) == on_disk
    landed = landed_files(settings, here, source, value, set())
    assert landed_files(on_s3, there, source, value, set()) == landed
