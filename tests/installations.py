"""Installations of a test's own: a data directory, ports that nobody uses, and the commands of a user."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from spark_jobs.config import Settings

CHECKOUT = Path(__file__).parents[1]
TIDEMARK = Path(sys.executable).with_name("tidemark")
ODD_NAME = "höme of 50% #1"
"""Of a data directory: what a person may call a folder, and URIs and quotations trip over."""
QUERY_WITHOUT_END = "SELECT max(hash(id)) FROM range(9000000000000)"
"""Spark work that no executor comes to the end of."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def listens(port: int) -> bool:
    """Whether somebody listens at a port of the loopback."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Installation:
    """One data directory, on ports of its own; `others` are further settings."""

    def __init__(self, home: Path, **others: Any) -> None:
        ports = {name: free_port() for name in ("thrift_port", "connect_port", "airflow_port")}
        self.settings = Settings(home=home, **{"heap": "2g", **ports, **others})
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("TIDEMARK_")}
        self.environment = {
            **inherited,
            **self.settings.environment(),
            "PATH": f"{TIDEMARK.parent}:{os.environ['PATH']}",
        }

    def run(self, *command: str, timeout_s: float = 300) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(
            command, env=self.environment, cwd=CHECKOUT, capture_output=True, text=True, timeout=timeout_s, check=False
        )

    @contextmanager
    def serving(self, *options: str, timeout_s: float = 300) -> Iterator[None]:
        """`tidemark up` with these options, which must succeed, and `tidemark down` in the end."""
        try:
            up = self.run(str(TIDEMARK), "up", *options, timeout_s=timeout_s)
            assert up.returncode == 0, up.stdout + up.stderr
            yield
        finally:
            self.run(str(TIDEMARK), "down")

    def start(self, *command: str) -> subprocess.Popen[str]:
        """Start a command in a process group of its own, as a terminal does."""
        return subprocess.Popen(
            command,
            env=self.environment,
            cwd=CHECKOUT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def json(self, *arguments: str, wait_s: float = 300) -> Any:
        """The result of a `tidemark` command that must succeed within `wait_s` seconds."""
        done = self.run(str(TIDEMARK), *arguments, "--json", timeout_s=wait_s)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)

    def sql(self, query: str) -> list[dict[str, Any]]:
        """All rows of a query."""
        return self.json("sql", query, "--limit", "0")["rows"]


def until(condition: Callable[[], Any], timeout_s: float = 20.0, what: str = "it did not happen") -> None:
    """Wait for a condition; fails with `what` if it never holds. The pauses between two looks grow, to 0.3 s."""
    begun = time.monotonic()
    while not condition():
        waited_s = time.monotonic() - begun
        assert waited_s < timeout_s, what
        time.sleep(max(0.02, min(waited_s / 50, 0.3)))


def readable_by_others(home: Path) -> list[Path]:
    """Whatever of a home is not for its user alone, the home itself included; links and sockets aside."""
    entries = [home, *(path for path in home.rglob("*") if not path.is_symlink())]
    found = [(path, path.lstat().st_mode) for path in entries if path.exists()]
    return [path for path, mode in found if (stat.S_ISREG(mode) or stat.S_ISDIR(mode)) and mode & 0o077]
