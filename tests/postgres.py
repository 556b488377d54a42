"""A PostgreSQL of a test's own on the loopback, which asks for a password."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spark_jobs.server.postgres import _demotion, programs

USER, PASSWORD = "shop réader", "sécret \"of\" 'shop'"
"""What an address, a file and a command line trip over."""


@dataclass
class Postgres:
    """The server: its port, and statements as its superuser."""

    port: int
    folder: Path
    command: list[str] = field(default_factory=list)
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the server, with the data that it has, and wait until it answers."""
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log)
        deadline = time.monotonic() + 60
        while True:
            try:
                self.execute("SELECT 1")
                return
            except Exception:
                assert self.process.poll() is None and time.monotonic() < deadline, (self.folder / "log").read_text()
                time.sleep(0.1)

    def stop(self) -> None:
        """End the server and its clients."""
        if self.process is not None:
            self.process.send_signal(signal.SIGINT)
            self.process.wait(30)
            self.process = None

    @property
    def url(self) -> str:
        return f"jdbc:postgresql://127.0.0.1:{self.port}/postgres"

    def execute(self, statement: str, *rows: Any) -> list[Any]:
        """Run a statement, once or for each of `rows`; its result."""
        import psycopg2

        client = psycopg2.connect(host="127.0.0.1", port=self.port, user=USER, password=PASSWORD, dbname="postgres")
        try:
            with client, client.cursor() as cursor:
                if rows:
                    cursor.executemany(statement, rows)
                else:
                    cursor.execute(statement)
                return cursor.fetchall() if cursor.description else []
        finally:
            client.close()


@contextmanager
def postgres() -> Iterator[Postgres]:
    """A server with an empty database, which ends with the block."""
    folder = Path(tempfile.mkdtemp(prefix="tidemark-pg-"))
    demotion: list[str] = []
    if os.geteuid() == 0:
        owner = pwd.getpwnam("nobody")
        os.chown(folder, owner.pw_uid, owner.pw_gid)
        demotion = _demotion(owner.pw_uid)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    password = folder / "password"
    password.write_text(PASSWORD)
    data = folder / "data"
    initdb = [*demotion, str(programs() / "initdb"), f"--username={USER}", f"--pwfile={password}", "--encoding=UTF8"]
    subprocess.run([*initdb, "--auth=scram-sha-256", "--no-sync", "-D", str(data)], check=True, capture_output=True)
    options = ["-c", "listen_addresses=127.0.0.1", "-c", f"port={port}", "-c", "fsync=off"]
    command = [
        *demotion,
        str(programs() / "postgres"),
        "-D",
        str(data),
        *options,
        "-c",
        f"unix_socket_directories={folder}",
    ]
    server = Postgres(port, folder, command)
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)
