"""A server that speaks S3, on the loopback: moto's, in a process of its own.

python -m tests.moto PORT_FILE       # serves until it is ended; the file then holds its port
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyarrow import fs

from spark_jobs.config import CHECKOUT

BUCKET = "bucket"
THROTTLED = "throttled"
"""The name of a file in the server's folder. While it is there, the server refuses each request: "slow down"."""
REQUESTS = "requests"
"""The name of a file in the server's folder. While it is there, each request adds a line to it: its method, a space and
its path with the query."""
KEYS = {"AWS_REGION": "eu-west-1", "AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any"}


@contextmanager
def counted_requests(folder: Path) -> Iterator[list[str]]:
    """The requests to the server with this folder that come during the block; the list is filled as the block ends."""
    requests: list[str] = []
    record = folder / REQUESTS
    record.touch()
    yield requests
    requests += record.read_text().splitlines()
    record.unlink()


@contextmanager
def s3_server(folder: Path) -> Iterator[dict[str, str]]:
    """A server with an empty bucket, `BUCKET`; the environment that leads to it. What it holds is gone afterwards."""
    port_file = folder / "moto.port"
    with (folder / "moto.log").open("wb") as log:
        server = subprocess.Popen([sys.executable, "-m", "tests.moto", str(port_file)], cwd=CHECKOUT, stderr=log)
    try:
        while not port_file.exists():
            assert server.poll() is None, (folder / "moto.log").read_text()
            time.sleep(0.05)
        environment = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port_file.read_text()}", **KEYS}
        bucket_files(environment).create_dir(BUCKET)
        yield environment
    finally:
        server.kill()
        server.wait()


def bucket_files(environment: dict[str, str]) -> fs.S3FileSystem:
    """The server's objects, by bucket and key."""
    return fs.S3FileSystem(
        endpoint_override=environment["AWS_ENDPOINT_URL"],
        region=environment["AWS_REGION"],
        access_key=environment["AWS_ACCESS_KEY_ID"],
        secret_key=environment["AWS_SECRET_ACCESS_KEY"],
        allow_bucket_creation=True,
    )


class _OneWriter:
    """moto looks for the object of a conditional put and stores it in two steps; S3 does so in one."""

    def __init__(self, application: Any) -> None:
        self._application, self._writing = application, threading.Lock()

    def __call__(self, request: dict[str, Any], start: Any) -> Iterable[bytes]:
        if request["REQUEST_METHOD"] not in ("PUT", "POST"):
            return self._application(request, start)
        with self._writing:
            return self._application(request, start)


class _Throttling:
    """The application, or S3's refusal of each request while the file `throttled` is there."""

    _REFUSAL = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"

    def __init__(self, application: Any, throttled: Path) -> None:
        self._application, self._throttled = application, throttled

    def __call__(self, request: dict[str, Any], start: Any) -> Iterable[bytes]:
        if not self._throttled.exists():
            return self._application(request, start)
        request["wsgi.input"].read(int(request.get("CONTENT_LENGTH") or 0))
        start("503 Slow Down", [("Content-Type", "application/xml"), ("Content-Length", str(len(self._REFUSAL)))])
        return [] if request["REQUEST_METHOD"] == "HEAD" else [self._REFUSAL]


class _Recording:
    """The application. It adds a line for each request to the file `requests` while that is there."""

    def __init__(self, application: Any, record: Path) -> None:
        self._application, self._record, self._writing = application, record, threading.Lock()

    def __call__(self, request: dict[str, Any], start: Any) -> Iterable[bytes]:
        if self._record.exists():
            query = f"?{request['QUERY_STRING']}" if request.get("QUERY_STRING") else ""
            with self._writing, self._record.open("a") as record:
                record.write(f"{request['REQUEST_METHOD']} {request['PATH_INFO']}{query}\n")
        return self._application(request, start)


def _serve(port_file: Path) -> None:
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Quiet(WSGIRequestHandler):
        protocol_version = "HTTP/1.1"
        """Connections stay open."""
        disable_nagle_algorithm = True
        """An answer's body is sent at once, not when the client has acknowledged its head: 40 ms."""

        def log_request(self, *_: Any) -> None:
            """Requests are not news."""

    one_writer = _OneWriter(DomainDispatcherApplication(create_backend_app))
    throttling = _Throttling(one_writer, port_file.with_name(THROTTLED))
    application = _Recording(throttling, port_file.with_name(REQUESTS))
    server = make_server("127.0.0.1", 0, application, threaded=True, request_handler=Quiet)
    draft = port_file.with_suffix(".draft")
    draft.write_text(str(server.server_port))
    draft.rename(port_file)
    server.serve_forever()


if __name__ == "__main__":
    # what one bucket holds is kept in memory, beyond it in files of the system's temporary folder
    os.environ.setdefault("MOTO_S3_DEFAULT_KEY_BUFFER_SIZE", str(1 << 30))
    _serve(Path(sys.argv[1]))
