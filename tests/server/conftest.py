"""Free ports, settings of installations that a test starts and ends itself, and the server of the guard's tests."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.config import Settings
from spark_jobs.server import control
from spark_jobs.session import open_session
from tests.server.clients import Ask, asking

LIMITS = {
    "reader_seconds": 20,
    "reader_rows": 1000,
    "reader_bytes": 200_000,
    "reader_statements": 2,
    "reader_sessions": 50,
    "reader_heap": 70,
}


@pytest.fixture(scope="session")
def free_ports() -> Callable[[int], list[int]]:
    """So many ports that nobody listens on."""

    def find(count: int) -> list[int]:
        probes = [socket.socket() for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        ports = [probe.getsockname()[1] for probe in probes]
        for probe in probes:
            probe.close()
        return ports

    return find


@pytest.fixture(scope="session")
def installation(free_ports: Callable[[int], list[int]]) -> Callable[[Path], Settings]:
    """Settings of an installation under a folder, on ports of its own."""

    def make(home: Path) -> Settings:
        thrift, connect, airflow = free_ports(3)
        return Settings(home=home, thrift_port=thrift, connect_port=connect, airflow_port=airflow, heap="1g")

    return make


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, installation: Callable[[Path], Settings]) -> Iterator[Settings]:
    """A lake server with what a lake has: a table that is published, one that is not, a view and a function over it."""
    settings = installation(tmp_path_factory.mktemp("guard") / "home").model_copy(update=LIMITS)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("spark_jobs.server.control.code_version", "spark_jobs.server.status.code_version"):
            patch.setattr(name, lambda: "the code of this test")
        assert control.up(settings, airflow=False).ok
        # pyspark sets it with the first Connect session, and takes all sessions of the process for such from then on
        patch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
        spark = open_session(settings.model_copy(update={"spark": "connect"}))
        try:
            for statement in (
                "CREATE DATABASE silver",
                "CREATE DATABASE trace",
                "CREATE DATABASE marts",
                "CREATE DATABASE marts_staging",
                "CREATE DATABASE dev__silver",
                "CREATE TABLE silver.facts USING delta AS SELECT id FROM range(10)",
                "CREATE TABLE dev__silver.facts USING delta AS SELECT id FROM range(7)",
                "CREATE TABLE trace.published USING delta AS SELECT id FROM range(5)",
                "CREATE TABLE trace.flights_updates USING delta AS SELECT id FROM range(3)",
                "CREATE TABLE silver.facts_history USING delta AS SELECT id FROM range(3)",
                "CREATE VIEW silver.shown AS SELECT p.id FROM trace.published p JOIN silver.facts f ON p.id = f.id",
                "CREATE FUNCTION silver.shown_as_of(at BIGINT) RETURNS TABLE (id BIGINT)"
                " RETURN SELECT id FROM trace.published WHERE id < at",
                "CREATE DATABASE scratch_writer",
                "CREATE TABLE scratch_writer.theirs USING delta AS SELECT 1 AS id",
            ):
                spark.sql(statement)
        finally:
            spark.stop()
        yield settings
        control.down(settings)


@pytest.fixture(scope="module")
def reader(served: Settings) -> Iterator[Ask]:
    with asking(served, "reader") as ask:
        yield ask


@pytest.fixture(scope="module")
def writer(served: Settings) -> Iterator[Ask]:
    with asking(served, "writer") as ask:
        yield ask


@pytest.fixture(scope="module")
def listener() -> Iterator[socket.socket]:
    """A port that the server has no business with."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0.1)
        yield listening


@pytest.fixture(scope="module")
def places(served: Settings, listener: socket.socket) -> dict[str, Any]:
    return {
        "home": served.home,
        "out": served.home.parent / "out",
        "arguments": "('java.lang.System', 'getProperty', 'user.name')",
        "hidden": "trace.published",
        "jar": next(served.jars.glob("*.jar")),
        "table": "silver.facts",
        "path": f"{served.lake}/silver.db/facts",
        "address": f"http://127.0.0.1:{listener.getsockname()[1]}",
    }
