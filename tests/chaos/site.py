"""The installation that the faults strike: its disk, its processes, its commands, and the helpers that do harm."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psutil

from spark_jobs.server.connect_client import connect_socket
from spark_jobs.server.health import connect_health, sql_health
from spark_jobs.server.lake import lost_folders
from spark_jobs.server.state import running_supervisor
from spark_jobs.server.thrift_client import thrift_query
from tests.chaos.outputs import Output
from tests.installations import CHECKOUT, TIDEMARK, Installation, free_port

DISK = "4g"
"""Of the disk that can be made full: more than `doctor` asks for."""
LIGHT = {
    # commands are many and small: compiling for speed costs more than running
    "java_options": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC",
    "spark_conf": {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"},
    "shuffle_partitions": 2,
}
ATTEMPTS = 20
"""At leaving so many bytes of a disk."""
PATIENCE_S = 600.0
"""Seconds that a command may take on a machine that does other things, too."""
HEALING_S = 120.0
"""Seconds within which a supervisor notices that folders are gone, and a new server has its own."""


class Disk:
    """A small file system of its own, which can be made full. Only root may mount one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.mounted = _quiet("mount", "-t", "tmpfs", "-o", f"size={DISK},mode=700", "tidemark-chaos", str(folder))

    def fill(self, left: int) -> None:
        """Leave so many bytes."""
        # others write meanwhile, and what is used must fit
        assert any(self._try_to_leave(left) for _ in range(ATTEMPTS))

    def _try_to_leave(self, left: int) -> bool:
        status = os.statvfs(self.folder)
        used = (status.f_blocks - status.f_bfree) * status.f_frsize
        return _quiet("mount", "-o", f"remount,size={used + left}", str(self.folder))

    def free(self) -> None:
        """Give it its size again."""
        if self.mounted:
            assert _quiet("mount", "-o", f"remount,size={DISK}", str(self.folder))

    def close(self) -> None:
        if self.mounted:
            _quiet("umount", "--lazy", str(self.folder))


def _quiet(*command: str) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


class Site:
    """An installation on a disk of its own, with a proxy before its server and a process that strikes at commits.

    `variables`: of all its processes, beside those of its settings.
    """

    def __init__(
        self,
        folder: Path,
        sources: Path,
        landing: Path,
        variables: Mapping[str, str] = MappingProxyType({}),
        **others: Any,
    ) -> None:
        self.disk = Disk(folder / "disk")
        self.folder = folder
        self.installation = Installation(self.disk.folder / "home", sources=sources, landing=landing, **LIGHT, **others)
        self.installation.environment |= variables
        self.settings = self.installation.settings
        self.outputs: list[Output] = []
        """Of all commands since they were last looked at."""
        port, socket = free_port(), folder / "proxy.sock"
        folder.chmod(0o700)
        pairs = [f"{port}:{self.settings.thrift_port}", f"{socket}:{connect_socket(self.settings)}"]
        self._proxy = _helper("proxy", *pairs)
        self._through_proxy = {"TIDEMARK_THRIFT_PORT": str(port), "TIDEMARK_CONNECT_SOCKET": str(socket)}
        self._crash_points: subprocess.Popen[str] | None = None

    def close(self) -> None:
        """End all of it."""
        self.disk.free()
        for helper in (self._proxy, self._crash_points):
            if helper is not None:
                helper.kill()
                helper.wait()
        self.installation.run(str(TIDEMARK), "down")
        for process in marked(self.settings.home):
            process.kill()
        self.disk.close()

    # --- commands ---------------------------------------------------------------------------------------------------
    def do(self, *command: str) -> Output:
        """A command to its end."""
        return self.end(self.start(*command))

    def start(self, *command: str, proxy: bool = False) -> Command:
        """A command, as a terminal starts it; `proxy`: its connections can be cut."""
        more = self._through_proxy if proxy else {}
        return Command(command, {**self.installation.environment, **more}, self.folder)

    def end(self, command: Command) -> Output:
        """Wait for a command; what came of it."""
        output = command.wait()
        self.outputs.append(output)
        return output

    def do_with_point(self, point: dict[str, Any], *command: str) -> tuple[Output, str]:
        """A command that a point of `crash_points` strikes, and the table whose commit that was, if it came so far."""
        if self._crash_points is None:
            self._crash_points = _helper("crash_points")
        text, report = self.folder / "point.txt", self.folder / "point.table"
        report.unlink(missing_ok=True)
        document = {
            "arguments": list(command),
            "environment": self.installation.environment,
            "output": str(text),
            "report": str(report),
            "point": point,
        }
        assert self._crash_points.stdin is not None and self._crash_points.stdout is not None
        self._crash_points.stdin.write(f"{json.dumps(document)}\n")
        self._crash_points.stdin.flush()
        code = int(self._crash_points.stdout.readline())
        output = Output(command, code, text.read_text(errors="replace"))
        self.outputs.append(output)
        return output, report.read_text() if report.exists() else ""

    def cut(self, *, refuse: bool) -> None:
        """Reset all connections that go through the proxy; and refuse others for a while."""
        self._proxy.send_signal(signal.SIGUSR2 if refuse else signal.SIGUSR1)

    # --- processes --------------------------------------------------------------------------------------------------
    def pid(self, part: str) -> int | None:
        """The process of a part, or of the supervisor."""
        state = running_supervisor(self.settings)
        if state is None or part == "supervisor":
            return state.pid if state else None
        known = state.part(part)
        return known.pid if known else None

    def workers(self) -> list[psutil.Process]:
        """Spark's Python workers, and their daemon."""
        pid = self.pid("lake")
        found = []
        with contextlib.suppress(psutil.Error):
            for process in psutil.Process(pid).children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    if any("worker_daemon" in part for part in process.cmdline()):
                        found.append(process)
        return found

    def serves(self) -> bool:
        """Whether SQL and jobs are answered."""
        return self.pid("lake") is not None and sql_health(self.settings).ok and connect_health(self.settings).ok

    def wait_for_folders(self) -> bool:
        """Where the lake server has lost folders that it works in, wait until its supervisor has started another one,
        or has given up. Whether there was anything to wait for."""
        if not lost_folders(self.settings):
            return False
        deadline = time.monotonic() + HEALING_S
        while time.monotonic() < deadline and not (self.serves() and not lost_folders(self.settings)):
            state = running_supervisor(self.settings)
            part = state.part("lake") if state else None
            if part is None or part.condition == "failed":
                break
            time.sleep(0.5)
        return True

    def ask(self, statement: str, role: str = "reader") -> list[tuple[Any, ...]]:
        """A query over JDBC; of a statement without rows, none."""
        return thrift_query(self.settings, statement, PATIENCE_S, role=role)

    # --- moments ----------------------------------------------------------------------------------------------------
    def token(self, source: str) -> int:
        """How many attempts of stages the source has had."""
        try:
            return int(json.loads((self.settings.home / "leases" / f"{source}.lease").read_text())["token"])
        except (OSError, ValueError, KeyError):
            return 0

    def wait_for(self, reached: Callable[[], bool], command: Command) -> bool:
        """Wait until something is so; False if the command ends before."""
        deadline = time.monotonic() + PATIENCE_S
        while not reached():
            if command.process.poll() is not None or time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True


class Command:
    """A command on its way, its output in a file."""

    _count = 0

    def __init__(self, arguments: tuple[str, ...], environment: dict[str, str], folder: Path) -> None:
        Command._count += 1
        self.arguments = arguments
        self._text = folder / f"output-{Command._count}.txt"
        with self._text.open("w") as text:
            self.process = subprocess.Popen(
                [str(TIDEMARK), *arguments],
                env=environment,
                cwd=CHECKOUT,
                stdin=subprocess.DEVNULL,
                stdout=text,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def signal(self, number: signal.Signals) -> None:
        """Send its process group a signal, as a terminal does."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def wait(self) -> Output:
        """Its end; one that takes longer than patience has is killed, and says so by its code."""
        try:
            code = self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.signal(signal.SIGKILL)
            code = 124
        text = self._text.read_text(errors="replace")
        self._text.unlink()
        return Output(self.arguments, code, text)


def remove(folder: Path) -> None:
    """`rm -r`, whatever still writes there."""
    if folder.is_dir():
        shutil.rmtree(folder, ignore_errors=True)


def marked(home: Path) -> Iterator[psutil.Process]:
    """Processes that the installation left."""
    from spark_jobs.server.processes import marked_processes as of_home

    yield from of_home(home)


def _helper(module: str, *arguments: str) -> subprocess.Popen[str]:
    """A helper of this package in a process of its own, once it says that it is ready."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TIDEMARK_")}
    process = subprocess.Popen(
        [sys.executable, "-m", f"tests.chaos.{module}", *arguments],
        env=environment,
        cwd=CHECKOUT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process
