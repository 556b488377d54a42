"""The client of the home's command server, in the process that the user has started.

The command server (`spark_jobs.cli.command_server`) has imported everything and forks itself for each command. The fork
has the user's arguments, environment, folder, terminal and open streams, so it runs as the command. This process passes
signals on, and ends in the same way as the fork. If there is no such server, or it has other code or another
environment for Python, the command runs in this process. Then it takes longer; nothing else differs.

This module imports little at its top: the standard library, and what reads the settings file without pydantic.
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

from spark_jobs.errors import ConfigurationError
from spark_jobs.settings.file import CHECKOUT, default_home, early_setting

SOCKET = "commands.sock"
STATUS = struct.Struct("<i")
"""An answer of the server. The first one is the process id of the fork, or 0 if the server will not run the command.
The second one is the command's exit code, or the negative number of the signal that ended it."""
LENGTH = struct.Struct("<q")
ANSWER_S = 60.0
"""The seconds within which a server has answered, even on the busiest machine."""

ALONE = {"up", "down", "serve", "demo", "open", "airflow", "restore", "doctor", "settings"}
"""Commands that start, end or examine the installation, or become another program."""
_OF_PYTHON = ("PYTHON", "NUMBA_", "LD_", "OMP_", "OPENBLAS_", "MKL_", "ARROW_", "MALLOC_", "COVERAGE_", "LC_", "LANG")
"""Beginnings of the names of variables that a process reads once, when it starts or imports."""
_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGWINCH)


def forward_command(arguments: list[str]) -> int | None:
    """The exit code of a command that the command server ran; None if this process has to run it."""
    if arguments and (arguments[0] in ALONE or arguments[0].startswith("-")):
        return None
    with contextlib.ExitStack() as stack:
        try:
            home = Path(early_setting("home") or default_home()).expanduser().absolute()
            connection = stack.enter_context(_connected(home / "server"))
            pid = _request_run(connection, arguments)
        except (OSError, ValueError, ConfigurationError):
            # the command refuses a wrong settings file; if there is a fork after all, the closed connection ends it
            return None
        return _wait_for_end(connection, pid, arguments) if pid else None


def code_stamp() -> list[int]:
    """Numbers that differ between two states of the code.

    They are the number of its files, their bytes, the time of the newest one, and the times at which packages were last
    installed.
    """
    files = [file.stat() for package in ("spark_jobs", "expectations") for file in (CHECKOUT / package).rglob("*.py")]
    packages = [Path(path) for path in sys.path if path.endswith("site-packages")]
    installed = [path.stat().st_mtime_ns for path in packages if path.is_dir()]
    return [len(files), sum(file.st_size for file in files), max(file.st_mtime_ns for file in files), *installed]


def of_python(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of an environment that a process reads once, when it starts or imports."""
    return {name: value for name, value in environment.items() if name.startswith(_OF_PYTHON)}


@contextlib.contextmanager
def in_folder(folder: Path) -> Iterator[str]:
    """A short path of the socket in a folder, however long the folder's is: the kernel refuses long paths."""
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


def _request_run(connection: socket.socket, arguments: list[str]) -> int:
    """Ask the server to run the command; returns the id of the fork, or 0 if the server will not run it."""
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
    return int(STATUS.unpack(receive_exactly(connection, STATUS.size))[0])


def _wait_for_end(connection: socket.socket, pid: int, arguments: list[str]) -> int:
    """Wait for the command, and return its exit code. A signal that ended the command ends this process, too."""

    def pass_on(number: int, _: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)

    for number in _PASSED_ON:
        signal.signal(number, pass_on)
    connection.settimeout(None)
    try:
        (status,) = STATUS.unpack(receive_exactly(connection, STATUS.size))
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

    again = "the same command; it continues from there"
    if arguments[:1] == ["backfill"]:
        again = "`tidemark backfill SOURCE --resume`, or the same command if none of its runs had begun"
    gone = CommandServerGone(
        expected="the command server to run until the command has ended",
        found="it ended, by `tidemark down` or a kill, and the command with it",
        consequence="published tables read as before",
        next_step=f"run `tidemark up`, then {again}",
    )
    complain(gone, as_json="--json" in arguments)
    return 1


def receive_exactly(connection: socket.socket, size: int) -> bytes:
    """The next `size` bytes from the connection. Raises ConnectionResetError if fewer come."""
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise ConnectionResetError(f"{len(data)} of {size} bytes came")
        data += more
    return data
