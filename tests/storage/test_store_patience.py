"""An object store that refuses requests for a while, or does not answer: all that read it wait, then say so by name."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyarrow import fs

from spark_jobs.config import Settings
from spark_jobs.failures import StoreUnreachable, recognize
from spark_jobs.landing.files import RemoteDirectory
from spark_jobs.landing.opened import open_file, remote_folder
from spark_jobs.s3 import environment_options, spark_settings
from spark_jobs.storage.delta.places import file_system, object_files
from tests.moto import BUCKET, THROTTLED, s3_server

pytestmark = pytest.mark.slow

TABLE = f"s3://{BUCKET}/numbers"
ROWS = pa.table({"n": [1, 2, 3]})


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a server that has a table."""
    with s3_server(tmp_path) as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        write_deltalake(TABLE, ROWS, storage_options=environment_options(TABLE))
        yield tmp_path


def read_log() -> None:
    assert DeltaTable(TABLE, storage_options=environment_options(TABLE)).version() >= 0


def commit() -> None:
    write_deltalake(TABLE, ROWS, mode="append", storage_options=environment_options(TABLE))


def read_file() -> None:
    files = file_system(TABLE, environment_options(TABLE))
    assert files.open_input_file("_delta_log/00000000000000000000.json").read()


def put_object() -> None:
    with object_files(f"s3://{BUCKET}").open_output_stream("object") as file:
        file.write(b"some")


def read_landed_file() -> None:
    name = "50% of a+b ü.csv"
    with object_files(f"s3://{BUCKET}").open_output_stream(f"landing/{name}") as file:
        file.write(b"a,b")
    directory = RemoteDirectory(f"s3a://{BUCKET}/landing")
    assert directory.entries("") == [name]
    with open_file(directory.location(name)) as opened:
        assert opened.raw.read() == b"a,b"


OF_LAKE = [read_log, commit, read_file, put_object]


@pytest.mark.parametrize("ask", [*OF_LAKE, read_landed_file])
def test_a_store_that_refuses_for_seconds_costs_seconds(store: Path, ask: Callable[[], None]) -> None:
    refusing = store / THROTTLED
    refusing.touch()
    # a process of its own: `deltalake` keeps Python's lock while it opens a file
    allowing = subprocess.Popen(["sh", "-c", 'sleep 4; rm "$1"', "sh", str(refusing)])
    ask()
    allowing.wait()
    assert not refusing.exists(), "it was asked while it refused"


@pytest.mark.parametrize("ask", OF_LAKE)
@pytest.mark.parametrize("answers", [True, False])
def test_beyond_the_patience_it_is_an_error_by_name(
    store: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch, ask: Callable[[], None], *, answers: bool
) -> None:
    monkeypatch.setenv("TIDEMARK_STORE_PATIENCE_S", "0.5")
    if answers:
        (store / THROTTLED).touch()
    else:
        # nobody listens on the port of the protocol that discards all it gets
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(OSError) as error:
        ask()
    explained = recognize(error.value, settings)
    assert isinstance(explained, StoreUnreachable), str(error.value)
    assert explained.code == "store_unreachable"


def test_a_landing_bucket_of_amazons_is_asked_in_its_own_region(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    monkeypatch.setattr(fs, "resolve_s3_region", {"elsewhere": "us-west-2"}.__getitem__)
    system, path = remote_folder("s3a://elsewhere/a%20folder/")
    assert (system.region, path) == ("us-west-2", "elsewhere/a folder")


def test_sparks_pauses_double_until_they_take_as_long(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def pauses_s(what: str) -> float:
        set_ = spark_settings("/scratch")
        first_ms = int(set_[f"spark.hadoop.fs.s3a.{what}.interval"].removesuffix("ms"))
        return sum(first_ms / 1000 * 2**place for place in range(int(set_[f"spark.hadoop.fs.s3a.{what}.limit"])))

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TIDEMARK_CONFIG", raising=False)
    for patience_s in (120.0, 10.0):
        # a number in the settings file is read, too
        (tmp_path / "tidemark.toml").write_text(f"store_patience_s = {patience_s}\n")
        assert patience_s <= pauses_s("retry") < 2.5 * patience_s
        assert patience_s <= pauses_s("retry.throttle") < 2.5 * patience_s
