"""Landing from a URI: files of an object store list, read and are refused as those of a folder do."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from spark_jobs.config import Settings
from spark_jobs.landing.files import LandingFile, drops_with_files, list_drop_files
from spark_jobs.landing.opened import LandingUnreachable, UnusableFileError, is_remote, open_file
from spark_jobs.landing.reader import read_files
from spark_jobs.landing.record_spec import record_spec
from spark_jobs.landing.worker import read_file
from spark_jobs.sources.columns import Format
from tests.landing.test_files import CONTENT, SHOP, source_of

MODIFIED = "Mon, 01 Jan 2024 00:00:00 GMT"


class ObjectStore(ThreadingHTTPServer):
    """As much of S3 as listing and reading take: objects by key, in one bucket."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.objects: dict[str, bytes] = {}
        self.broken = False

    @property
    def uri(self) -> str:
        endpoint = f"127.0.0.1:{self.server_address[1]}"
        query = f"endpoint_override={endpoint}&scheme=http&region=here"
        return f"s3a://any:any@bucket/landing?{query}"


class _Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ObjectStore

    def do_HEAD(self) -> None:
        if self.server.broken:
            self._answer(403, b"", 0)
            return
        content = self.server.objects.get(self._key())
        self._answer(404 if content is None else 200, b"", 0 if content is None else len(content))

    def do_GET(self) -> None:
        if self.server.broken:
            self._answer(403, b"", 0)
            return
        if "list-type" in self.path:
            self._list()
            return
        content = self.server.objects.get(self._key())
        if content is None:
            self._answer(404, b"", 0)
            return
        first, _, last = self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")
        part = content[int(first) : int(last) + 1 if last else None]
        self._answer(206, part, len(part), f"bytes {first}-{int(first) + len(part) - 1}/{len(content)}")

    def _list(self) -> None:
        asked = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
        prefix, most = asked.get("prefix", ""), int(asked.get("max-keys", 1000))
        keys = [key for key in sorted(self.server.objects) if key.startswith(prefix)]
        listed = [
            f"<Contents><Key>{escape(key)}</Key><LastModified>2024-01-01T00:00:00.000Z</LastModified>"
            f"<Size>{len(self.server.objects[key])}</Size></Contents>"
            for key in keys[:most]
            if "/" not in key[len(prefix) :] or "delimiter" not in asked
        ]
        deeper = {key[: key.index("/", len(prefix)) + 1] for key in keys if "/" in key[len(prefix) :]}
        if "delimiter" in asked:
            listed += [f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>" for name in sorted(deeper)]
        counted = f"<KeyCount>{len(listed)}</KeyCount><IsTruncated>false</IsTruncated>"
        body = f"<ListBucketResult><Name>bucket</Name>{counted}{''.join(listed)}</ListBucketResult>".encode()
        self._answer(200, body, len(body))

    def _key(self) -> str:
        return unquote(urlsplit(self.path).path).removeprefix("/bucket/")

    def _answer(self, status: int, body: bytes, length: int, content_range: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(length))
        self.send_header("Last-Modified", MODIFIED)
        self.send_header("ETag", '"e"')
        if content_range:
            self.send_header("Content-Range", content_range)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Requests are not news."""


@pytest.fixture
def store() -> Iterator[ObjectStore]:
    with ObjectStore() as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


def put(store: ObjectStore, name: str, content: bytes = CONTENT) -> None:
    store.objects[f"landing/shop/2024-01-01/{name}"] = content


def rows_of(file: LandingFile, form: Format = "ndjson") -> pa.Table:
    return pa.Table.from_batches(list(read_file(file, form, record_spec(SHOP))))


def local_twin(store: ObjectStore, tmp_path: Path) -> Path:
    """The same objects as files."""
    for key, content in store.objects.items():
        (tmp_path / key).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / key).write_bytes(content)
    return tmp_path / "landing"


def test_remote_files_are_listed_and_read_as_local_ones(store: ObjectStore, tmp_path: Path) -> None:
    put(store, "b.ndjson")
    put(store, "a b+c.ndjson.gz", gzip.compress(CONTENT))
    put(store, ".hidden")
    remote, local = list_drop_files(store.uri, SHOP, 0), list_drop_files(local_twin(store, tmp_path), SHOP, 0)
    assert [(f.path, f.first_row_id, f.size, f.checksum) for f in remote] == [
        (f.path, f.first_row_id, f.size, f.checksum) for f in local
    ]
    assert len(remote) == 2
    assert drops_with_files(store.uri, SHOP, range(400)) == {0}
    for there, here in zip(remote, local, strict=True):
        assert rows_of(there).equals(rows_of(here))
        assert rows_of(there).num_rows == 500


def test_a_remote_parquet_file_is_read_by_its_end(store: ObjectStore) -> None:
    source = source_of(format="parquet")
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"who": ["w"], "at": ["2024-01-01T00:00:00Z"], "n": [7]}), sink)
    put(store, "a.parquet", sink.getvalue().to_pybytes())
    (file,) = list_drop_files(store.uri, source, 0)
    assert rows_of(file, "parquet")["c_n"].to_pylist() == [7]


def test_a_remote_file_that_changed_or_went_after_the_listing_is_one_rejection(store: ObjectStore) -> None:
    put(store, "a.ndjson")
    (file,) = list_drop_files(store.uri, SHOP, 0)
    put(store, "a.ndjson", CONTENT.replace(b"w1", b"w2"))
    assert rows_of(file)["rule"].to_pylist() == ["changed_file"]
    put(store, "a.ndjson", CONTENT + b"\n")
    assert rows_of(file)["rule"].to_pylist() == ["changed_file"]
    store.objects.clear()
    assert rows_of(file)["rule"].to_pylist() == ["not_a_file"]


def test_a_drop_that_is_not_there_has_no_file(store: ObjectStore) -> None:
    assert list_drop_files(store.uri, SHOP, 0) == []


def test_a_store_that_does_not_answer_fails_the_run_and_quarantines_nothing(store: ObjectStore) -> None:
    put(store, "a.ndjson")
    (file,) = list_drop_files(store.uri, SHOP, 0)
    store.broken = True
    with pytest.raises(LandingUnreachable, match="s3a://bucket/landing/shop/2024-01-01,") as refusal:
        list_drop_files(store.uri, SHOP, 0)
    assert "any:any" not in str(refusal.value)
    with pytest.raises(LandingUnreachable):
        rows_of(file)
    with pytest.raises(LandingUnreachable, match="nosuch"):
        list_drop_files("nosuch://bucket/landing", SHOP, 0)


def test_a_remote_path_cannot_climb() -> None:
    with pytest.raises(UnusableFileError, match=r"found `\.\.`"):
        list_drop_files_of("a/../../b")


def list_drop_files_of(path: str) -> None:
    from spark_jobs.landing.files import RemoteDirectory

    RemoteDirectory("s3a://bucket/landing").location(path)


def test_a_file_uri_is_a_folder_of_this_machine_with_its_checks(tmp_path: Path) -> None:
    folder = tmp_path / "landing" / "shop" / "2024-01-01"
    folder.mkdir(parents=True)
    (folder / "a.ndjson").write_bytes(CONTENT)
    (folder / "b.ndjson").symlink_to("/etc/hostname")
    uri = (tmp_path / "landing").as_uri()
    assert not is_remote(uri)
    good, link = list_drop_files(uri, SHOP, 0)
    assert rows_of(good).num_rows == 500
    assert link.problem == "outside_landing"
    with open_file(good.location) as opened:
        assert opened.status()[0] == len(CONTENT)


def test_the_landing_setting_takes_paths_and_uris(tmp_path: Path) -> None:
    assert Settings(landing=tmp_path.as_uri()).landing == tmp_path
    assert Settings(landing="s3a://bucket/landing/").landing == "s3a://bucket/landing"
    assert Settings(landing=tmp_path).environment()["TIDEMARK_LANDING"] == str(tmp_path)
    with pytest.raises(Exception, match="a landing directory on this machine"):
        _ = Settings(landing="s3a://bucket/landing").landing_folder


@pytest.mark.spark
def test_workers_read_remote_files_themselves(spark: SparkSession, store: ObjectStore) -> None:
    put(store, "a.ndjson")
    put(store, "b.ndjson", gzip.compress(CONTENT))
    rows = read_files(spark, SHOP, list_drop_files(store.uri, SHOP, 0))
    assert rows.where("rule IS NULL").count() == 1000
