"""Let the home's command server run a command: the side of the process that the user has started.

The command server (`spark_jobs.cli.command_server`) has imported everything and forks itself for each command. The fork
has the user's arguments, environment, folder, terminal and open streams, so it is the command; this process passes
signals on and ends as the fork does. Where there is no such server, or it has other code or another environment of
Python's, the command runs in this process: it takes longer, and nothing else is different.

What it imports first is little, and of the standard library.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import struct
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

SOCKET = "commands.sock"
STATUS = struct.Struct("<i")
"""What the server answers: first the id of the fork, 0 where it will not run the command; then how the command ended,
by its exit code or the negative number of a signal."""
LENGTH = struct.Struct("<q")
ANSWER_S = 60.0
"""Seconds in which a server on the busiest machine has answered."""

ALONE = {"up", "down", "serve", "demo", "airflow", "restore", "doctor", "settings"}
"""Commands that start, end or examine the installation, or become another program."""
_OF_PYTHON = ("PYTHON", "NUMBA_", "LD_", "OMP_", "OPENBLAS_", "MKL_", "ARROW_", "MALLOC_", "COVERAGE_", "LC_", "LANG")
"""Variables that a process reads once, when it starts or imports."""
_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGWINCH)
_ROOT = Path(__file__).resolve().parents[2]


def forwarded(arguments: list[str]) -> int | None:
    """The exit code of a command that the command server ran; None if this process has to run it."""
    if not arguments or arguments[0] in ALONE or arguments[0].startswith("-"):
        return None
    home = Path(os.environ.get("TIDEMARK_HOME") or _ROOT / ".tidemark").absolute()
    with contextlib.ExitStack() as stack:
        try:
            connection = stack.enter_context(_connected(home / "server"))
            pid = _asked(connection, arguments)
        except (OSError, ValueError):
            # closing the connection ends a fork that there may be after all
            return None
        return _ended(connection, pid, arguments) if pid else None


def code_stamp() -> list[int]:
    """What differs between two states of the code: the number of its files, their bytes, the newest one's time, and
    when packages were last installed."""
    files = [file.stat() for package in ("spark_jobs", "expectations") for file in (_ROOT / package).rglob("*.py")]
    packages = [Path(path) for path in sys.path if path.endswith("site-packages")]
    installed = [path.stat().st_mtime_ns for path in packages if path.is_dir()]
    return [len(files), sum(file.st_size for file in files), max(file.st_mtime_ns for file in files), *installed]


def of_python(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of an environment that a process reads only when it starts."""
    return {name: value for name, value in environment.items() if name.startswith(_OF_PYTHON)}


@contextlib.contextmanager
def in_folder(folder: Path) -> Iterator[str]:
    """A path of the socket in a folder. The kernel takes no long ones; this one is short, whatever the folder's is."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{SOCKET}"
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _connected(folder: Path) -> Iterator[socket.socket]:
    if not (folder / SOCKET).is_socket():
        raise FileNotFoundError(folder / SOCKET)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(ANSWER_S)
        with in_folder(folder) as path:
            connection.connect(path)
        yield connection


def _asked(connection: socket.socket, arguments: list[str]) -> int:
    """The id of the process that has begun with the command; 0 if the server will not run it."""
    request = {
        "arguments": arguments,
        "folder": str(Path.cwd()),
        "environment": dict(os.environ),
        "code": code_stamp(),
        "python": sys.executable,
        "streams": [[stream.encoding, stream.errors] for stream in (sys.stdin, sys.stdout, sys.stderr)],
    }
    body = json.dumps(request).encode()
    socket.send_fds(connection, [LENGTH.pack(len(body))], [0, 1, 2])
    connection.sendall(body)
    return int(STATUS.unpack(received(connection, STATUS.size))[0])


def _ended(connection: socket.socket, pid: int, arguments: list[str]) -> int:
    """Wait for the command; its exit code. A signal that ended it ends this process, too."""

    def pass_on(number: int, _: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)

    for number in _PASSED_ON:
        signal.signal(number, pass_on)
    connection.settimeout(None)
    try:
        (status,) = STATUS.unpack(received(connection, STATUS.size))
    except OSError:
        return _refuse(arguments)
    if status < 0:
        if -status != signal.SIGKILL:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    return int(status)


def _refuse(arguments: list[str]) -> int:
    from spark_jobs.cli.output import complain
    from spark_jobs.server.errors import CommandServerGone

    again = "the same command; it goes on where it was"
    if arguments[0] == "backfill":
        again = "`tidemark backfill SOURCE --resume`, or the same command if none of its runs had begun"
    gone = CommandServerGone(
        expected="the command server to run until the command has ended",
        found="it ended, by `tidemark down` or a kill, and the command with it",
        consequence="published tables read as before",
        next_step=f"run `tidemark up`, then {again}",
    )
    complain(gone, as_json="--json" in arguments)
    return 1


def received(connection: socket.socket, size: int) -> bytes:
    """So many bytes. Raises ConnectionResetError if fewer come."""
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise ConnectionResetError(f"{len(data)} of {size} bytes came")
        data += more
    return data
