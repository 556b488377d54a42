"""A small server on the loopback that gives the figures of an installation to a monitoring system.

`GET /metrics` answers in the text format of OpenMetrics: figures of the sources (`spark_jobs.portal.monitoring`) and of
the installation's processes. It asks for no login: other users of the machine may read figures and names of sources,
and no row. The supervisor runs `python -m spark_jobs.cli.metrics_server` where `TIDEMARK_METRICS_PORT` is set.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from http import HTTPStatus
from http.server import ThreadingHTTPServer
from threading import Lock
from typing import Any

import psutil
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from spark_jobs.config import Settings, load_settings
from spark_jobs.portal.local import LOOPBACK, QuietHandler
from spark_jobs.portal.monitoring import CONTENT_TYPE, openmetrics
from spark_jobs.portal.pages import Portal
from spark_jobs.server.state import running_supervisor

PATH = "/metrics"


class OfProcesses(Collector):
    """Figures of the parts of an installation: whether each runs, its restarts, and the memory of its processes."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def describe(self) -> tuple[()]:
        """No figure before it is asked for."""
        return ()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """All figures, each with a sample for each part."""
        runs = GaugeMetricFamily("tidemark_part_up", "1 if the part runs, else 0.", labels=("part",))
        restarts = GaugeMetricFamily(
            "tidemark_part_restarts", "Restarts of the part since `tidemark up`.", labels=("part",)
        )
        memory = GaugeMetricFamily(
            "tidemark_part_resident_bytes", "Memory of the part's process and of those below it.", labels=("part",)
        )
        state = running_supervisor(self._settings)
        for part in state.parts if state else ():
            if part.condition == "finished":
                continue
            runs.add_metric((part.name,), int(part.condition == "running"))
            restarts.add_metric((part.name,), part.restarts)
            if part.pid is not None:
                memory.add_metric((part.name,), _resident_bytes(part.pid))
        yield from (runs, restarts, memory)


def _resident_bytes(pid: int) -> int:
    """The memory of a process and of those below it, in bytes; 0 if it has ended."""
    total = 0
    try:
        process = psutil.Process(pid)
        for each in (process, *process.children(recursive=True)):
            total += each.memory_info().rss
    except psutil.NoSuchProcess:
        pass
    return total


class MetricsServer:
    """The server of an installation's figures. Close it after use.

    Args:
        settings: those of the installation.
        port: its port on the loopback; 0: any free one.
    """

    def __init__(self, settings: Settings, port: int) -> None:
        portal, processes, one_at_a_time = Portal(settings, is_live=False), OfProcesses(settings), Lock()

        class Handler(QuietHandler):
            def do_GET(self) -> None:  # noqa: N802
                if not self.is_for_us("localhost"):
                    self.reply(HTTPStatus.FORBIDDEN, b"ask for 127.0.0.1 or localhost\n")
                elif self.path != PATH:
                    self.reply(HTTPStatus.NOT_FOUND, f"the figures are at {PATH}\n".encode())
                else:
                    with one_at_a_time:
                        body = openmetrics(portal, processes)
                    self.reply(HTTPStatus.OK, body, CONTENT_TYPE)

            do_HEAD = do_GET  # noqa: N815

        self._server = ThreadingHTTPServer((LOOPBACK, port), Handler)
        self._server.daemon_threads = True

    @property
    def url(self) -> str:
        """The address of the figures."""
        return f"http://{LOOPBACK}:{self._server.server_address[1]}{PATH}"

    def serve(self) -> None:
        """Answer requests until `close`, which another thread calls."""
        self._server.serve_forever()

    def close(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> MetricsServer:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def main() -> int:
    """Serve the figures until the process is ended."""
    settings = load_settings()
    if settings.metrics_port is None:
        sys.stderr.write("expected TIDEMARK_METRICS_PORT to be set, found none: there is no port to serve figures on\n")
        return 2
    MetricsServer(settings, settings.metrics_port).serve()
    return 0


if __name__ == "__main__":
    sys.exit(main())
