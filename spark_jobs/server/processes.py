"""Start a part so that it cannot outlive its supervisor, and end it with all processes that it started.

Three means work together, since each alone has a gap:

- the kernel signals a part when its supervisor dies (`PR_SET_PDEATHSIG`), however it dies;
- the supervisor adopts the descendants of a part that died (`PR_SET_CHILD_SUBREAPER`);
- every process has a marker in its environment, and its children inherit the marker. So `down` finds all of them,
  whatever their parents are now.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from spark_jobs.config import Settings

MARKER = "TIDEMARK_PART_OF"
"""The environment variable of every process that a supervisor started; its value is the supervisor's home."""

LOG_LIMIT_BYTES = 20 * 1024**2
"""The size from which on a log is set aside. A healthy part takes weeks to write that; one that fails in a loop writes
more than anyone reads."""

_ROUND_S = 0.2
"""The seconds between two looks at processes that are ending."""

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True, slots=True)
class Part:
    """A program that the supervisor runs.

    Attributes:
        grace_s: seconds between `end_signal` and SIGKILL.
        pass_fds: descriptors of open files that the process inherits (the lake's lock).
        ended: called when the supervisor has ended the part, and it ended in order.
        lost: returns the missing ones of its working folders; the supervisor restarts a part that has lost one.
        lingers: True once the part, told to end, serves no more, and does work that nobody needs to wait for.
    """

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    working_dir: Path
    log_file: Path
    grace_s: float
    pass_fds: tuple[int, ...] = field(default=())
    end_signal: signal.Signals = signal.SIGTERM
    ended: Callable[[], None] = field(default=lambda: None)
    lost: Callable[[], Sequence[Path]] = field(default=tuple)
    lingers: Callable[[], bool] = field(default=lambda: False)


def of_module(settings: Settings, name: str, module: str, grace_s: float, *arguments: str) -> Part:
    """A part that runs a module of this package with the installation's settings."""
    return Part(
        name=name,
        command=(sys.executable, "-m", module, *arguments),
        environment={**os.environ, **settings.environment()},
        working_dir=settings.server_dir,
        log_file=settings.logs_dir / f"{name}.log",
        grace_s=grace_s,
    )


def spawn(part: Part, home: Path) -> subprocess.Popen[bytes]:
    """Start a part in a session of its own; its output is appended to its log file.

    Call it from the main thread only: the kernel signals the part when the *thread* that started the part ends.
    """
    part.working_dir.mkdir(parents=True, exist_ok=True)
    part.working_dir.chmod(0o700)  # the folder contains secrets
    part.log_file.parent.mkdir(parents=True, exist_ok=True)
    _set_aside_if_big(part.log_file)
    with part.log_file.open("ab") as log:
        return subprocess.Popen(
            part.command,
            env={**part.environment, MARKER: str(home)},
            cwd=part.working_dir,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=part.pass_fds,
            preexec_fn=_die_with_parent(os.getpid()),  # noqa: PLW1509  (one thread, see above)
        )


def _set_aside_if_big(log: Path) -> None:
    """Rename a log that is too big to `<name>.1`, and so replace the older one. It is done at each start of a part."""
    if log.exists() and log.stat().st_size > LOG_LIMIT_BYTES:
        log.replace(log.with_name(f"{log.name}.1"))


def adopt_orphans() -> None:
    """Make this process the parent of descendants whose own parent ends."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def marked_processes(home: Path) -> list[psutil.Process]:
    """All living processes with the marker of this home, also the supervisor, but not the caller and its ancestors."""
    ours = {os.getpid(), *(ancestor.pid for ancestor in psutil.Process().parents())}
    processes = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid not in ours and process.environ().get(MARKER) == str(home):
                processes.append(process)
    return processes


def end_with_parent(number: signal.Signals) -> None:
    """Ask the kernel to send the signal `number` to this process when its parent ends."""
    _prctl(_PR_SET_PDEATHSIG, number)


def end(
    processes: Iterable[psutil.Process],
    grace_s: float,
    number: signal.Signals = signal.SIGTERM,
    is_worth_waiting: Callable[[], bool] = lambda: True,
) -> list[int]:
    """Send the processes the signal `number`, and after `grace_s` seconds SIGKILL to those that still run.

    The grace ends before, if `is_worth_waiting`, which is asked repeatedly, returns False. Returns the ids of the
    processes that were sent SIGKILL."""
    remaining, deadline = _signal_and_wait(list(processes), number, 0.0), time.monotonic() + grace_s
    while remaining and time.monotonic() < deadline and is_worth_waiting():
        remaining = psutil.wait_procs(remaining, timeout=min(_ROUND_S, max(deadline - time.monotonic(), 0.0)))[1]
    _signal_and_wait(remaining, signal.SIGKILL, 10.0)
    return [process.pid for process in remaining]


def tree(pid: int) -> list[psutil.Process]:
    """The process and its descendants; empty if the process has ended."""
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def processor_s(pid: int) -> float:
    """The processor time, in seconds, that a process and its living descendants have used."""
    used = 0.0
    for process in tree(pid):
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            used += times.user + times.system
    return used


def _signal_and_wait(processes: list[psutil.Process], number: signal.Signals, wait_s: float) -> list[psutil.Process]:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)
    return psutil.wait_procs(processes, timeout=wait_s)[1]


def _die_with_parent(parent: int) -> Callable[[], None]:
    def in_child() -> None:
        end_with_parent(signal.SIGTERM)
        if os.getppid() != parent:  # the parent died before the kernel was asked
            os._exit(1)

    return in_child


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        _LIBC.prctl(option, value, 0, 0, 0)


_LIBC = ctypes.CDLL(None, use_errno=True)


class Output(io.TextIOBase):
    """Standard output as a file that drops text if it cannot be written, such as on a full disk."""

    def write(self, text: str) -> int:
        """Write the text, or drop it if that fails; returns its length in both cases."""
        with contextlib.suppress(OSError):
            sys.stdout.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush standard output; errors are ignored."""
        with contextlib.suppress(OSError):
            sys.stdout.flush()
