"""The command server: a process that has imported the modules of commands, and forks itself for each command.

`python -m spark_jobs.cli.command_server`, a part of `tidemark up`. Spark's client, Great Expectations, dbt and the
compiled kernels take six seconds of a processor to import and load, more than a small day's work. A fork has them in
memory already. The server serves its user alone, through a socket in the home. Its client is `spark_jobs.cli.forward`.

The server has one thread and no connection to anything, so a fork shares only memory with it. A command is killed if
its user's process or this server ends.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import inspect
import json
import os
import selectors
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spark_jobs.cli.forward import ANSWER_S, LENGTH, SOCKET, STATUS, code_stamp, in_folder, of_python, receive_exactly
from spark_jobs.jobs import rehearse
from spark_jobs.server import processes

_IMPORTED = (
    *("spark_jobs.cli.app", "spark_jobs.jobs.pipeline", "spark_jobs.portal.overview"),
    *("great_expectations", "dbt.cli.main"),
)
_MOST = 64 << 20
"""The most bytes of a request: arguments and an environment."""

Command = Callable[[], int]


@dataclass(frozen=True, eq=False)
class _Fork:
    """A running command: its id, the descriptor that reports its end, its connection to the user's process."""

    pid: int
    descriptor: int
    connection: socket.socket


def main() -> int:
    """Import, then serve until the supervisor ends this process. In a fork, run the command; returns its exit code."""
    code = code_stamp()
    for name in _IMPORTED:
        importlib.import_module(name)
    rehearse.load_kernels("command server")
    # dbt inspects the stack each time it starts: this finds the files of all modules once, ahead of the forks
    inspect.stack()
    # loaded objects stay shared with the forks: a collection would write to their pages
    gc.collect()
    gc.freeze()
    return CommandServer(Path(os.environ["TIDEMARK_HOME"]) / "server", code).serve()()


class CommandServer:
    """A server of commands at the socket in `folder`. `code`: the stamp of the imported code."""

    def __init__(self, folder: Path, code: list[int]) -> None:
        self._code = code
        self._pid = os.getpid()
        self._folder = folder
        self._selector = selectors.DefaultSelector()
        self._forks: set[_Fork] = set()

    def serve(self) -> Command:
        """Fork for each request, without end. It returns only in a fork: the command that the fork has to run."""
        with contextlib.suppress(FileNotFoundError):
            (self._folder / SOCKET).unlink()
        listener = socket.socket(socket.AF_UNIX)
        with in_folder(self._folder) as path:
            listener.bind(path)
        (self._folder / SOCKET).chmod(0o600)
        listener.listen(64)
        self._selector.register(listener, selectors.EVENT_READ)
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is listener:
                    command = self._accept(listener)
                    if command is not None:
                        listener.close()
                        return command
                elif key.data in self._forks:
                    # otherwise both the fork and its user's process have ended, and the other event came first
                    self._end(key.data, abandoned=key.fileobj is key.data.connection)

    def _accept(self, listener: socket.socket) -> Command | None:
        """Fork for a command, or decline it. It returns the command in the fork, and None in the server."""
        connection, _ = listener.accept()
        connection.settimeout(ANSWER_S)
        try:
            request, streams = _request(connection)
        except (OSError, ValueError) as error:
            sys.stderr.write(f"a client sent no request: {error}\n")
            connection.close()
            return None
        if not self._fits(connection, request):
            _close(streams)
            self._tell(connection, 0)
            connection.close()
            return None
        pid = os.fork()
        if pid == 0:
            self._leave(connection)
            return lambda: _run(request, streams)
        _close(streams)
        fork = _Fork(pid, os.pidfd_open(pid), connection)
        self._forks.add(fork)
        self._selector.register(fork.descriptor, selectors.EVENT_READ, fork)
        self._selector.register(fork.connection, selectors.EVENT_READ, fork)
        self._tell(connection, pid)
        return None

    def _fits(self, connection: socket.socket, request: dict[str, Any]) -> bool:
        """True if a fork of this process would do the same as the user's own process."""
        _, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        same_python = request["python"] == sys.executable
        same_python &= of_python(request["environment"]) == of_python(os.environ)
        return user == os.getuid() and same_python and request["code"] == self._code

    def _leave(self, connection: socket.socket) -> None:
        """In a fork: be killed with the server, and close the server's descriptors and connections."""
        processes.end_with_parent(signal.SIGKILL)
        if os.getppid() != self._pid:  # the server died before the kernel had this request
            os._exit(1)
        for other in self._forks:
            os.close(other.descriptor)
            other.connection.close()
        connection.close()
        self._selector.close()

    def _end(self, fork: _Fork, *, abandoned: bool) -> None:
        """Report how a command ended. If it is `abandoned`, because its user's process is gone, kill it first."""
        self._forks.remove(fork)
        self._selector.unregister(fork.descriptor)
        self._selector.unregister(fork.connection)
        if abandoned:
            os.kill(fork.pid, signal.SIGKILL)
        _, status = os.waitpid(fork.pid, 0)
        self._tell(fork.connection, os.waitstatus_to_exitcode(status))
        os.close(fork.descriptor)
        fork.connection.close()

    def _tell(self, connection: socket.socket, number: int) -> None:
        with contextlib.suppress(OSError):
            connection.sendall(STATUS.pack(number))


def _request(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """The request of a user's process, and the descriptors of its open streams.

    Raises:
        OSError, ValueError: the process did not send a whole request.
    """
    head, streams, _, _ = socket.recv_fds(connection, LENGTH.size, 3)
    try:
        if len(head) != LENGTH.size or len(streams) != 3:
            raise ValueError(f"{len(head)} bytes and {len(streams)} streams")
        (size,) = LENGTH.unpack(head)
        if not 0 < size <= _MOST:
            raise ValueError(f"a length of {size}")
        return json.loads(receive_exactly(connection, size)), streams
    except (OSError, ValueError):
        _close(streams)
        raise


def _close(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _run(request: dict[str, Any], streams: list[int]) -> int:
    """Run the user's command in a fork, with the user's streams, environment and folder; returns its exit code."""
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for place, stream in enumerate(streams):
        os.dup2(stream, place)
        os.close(stream)
    names = ("stdin", "stdout", "stderr")
    for place, (name, (encoding, errors)) in enumerate(zip(names, request["streams"], strict=True)):
        mode = "w" if place else "r"
        lines = place == 2 or os.isatty(place)
        file = open(place, mode, 1 if lines else -1, encoding=encoding, errors=errors, closefd=False)  # noqa: SIM115
        setattr(sys, name, file)
        setattr(sys, f"__{name}__", file)
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    os.chdir(request["folder"])
    sys.argv = ["tidemark", *request["arguments"]]
    from spark_jobs.cli.app import run

    return run(request["arguments"])


if __name__ == "__main__":
    sys.exit(main())
