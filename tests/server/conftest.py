"""Free ports, and settings of installations that a test starts and ends itself."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from spark_jobs.config import Settings


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
