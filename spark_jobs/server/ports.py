"""The check that a port is free, and the search for the process that listens on it."""

from __future__ import annotations

import socket
from dataclasses import dataclass

import psutil

from spark_jobs.config import Settings
from spark_jobs.server.errors import PortTaken


@dataclass(frozen=True, slots=True)
class Listener:
    """A process that listens on a port. `pid` and `command` are None if the system hides them (of other users)."""

    port: int
    pid: int | None
    command: str | None


def listener(address: str, port: int) -> Listener | None:
    """The process that listens on the port, or None if the port is free."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # a port in TIME_WAIT is free, so it must not look taken
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return _owner(port)
    return None


def expect_free(address: str, ports: dict[str, int]) -> None:
    """Check that each part can have its port.

    Args:
        address: the interface that the parts will listen on.
        ports: environment variable of the knob → port.

    Raises:
        PortTaken: a port is in use; the error is about the first such port, and names the process.
    """
    for knob, port in ports.items():
        other = listener(address, port)
        if other is None:
            continue
        owner = f"process {other.pid} ({(other.command or '')[:160]})" if other.pid else "another user's process"
        raise PortTaken(
            expected=f"port {port} to be free for {knob}",
            found=f"{owner} listening on it",
            next_step=f"end that process, or choose another port with {knob}",
            port=port,
            knob=knob,
            pid=other.pid,
            command=other.command,
        )


def wanted_ports(settings: Settings, *, airflow: bool) -> dict[str, int]:
    """The ports of an installation's parts by the environment variable that sets each; with Airflow's, if it is there.

    `metrics_port` is on the loopback, whatever the bind address.
    """
    names = ["thrift_port", "connect_port", *(["airflow_port"] if airflow else []), "metrics_port"]
    ports = {f"TIDEMARK_{name.upper()}": getattr(settings, name) for name in names}
    return {knob: port for knob, port in ports.items() if port is not None}


def _owner(port: int) -> Listener:
    for connection in psutil.net_connections(kind="tcp"):
        if connection.status == psutil.CONN_LISTEN and connection.laddr[1:] == (port,) and connection.pid:
            try:
                return Listener(port, connection.pid, " ".join(psutil.Process(connection.pid).cmdline()))
            except psutil.Error:
                return Listener(port, connection.pid, None)
    return Listener(port, None, None)
