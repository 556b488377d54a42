"""Another user of the machine, who listens at ports and writes down what comes in."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

NOBODY = 65534
AS_NOBODY = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
needs_other_user = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs root and setpriv to act as another user"
)

_PROGRAM = """
import os, selectors, socket, sys
os.chdir("/")
events = selectors.DefaultSelector()
for port in map(int, sys.argv[1:]):
    events.register(socket.create_server(("127.0.0.1", port)), selectors.EVENT_READ, "port")
events.register(sys.stdin, selectors.EVENT_READ, "end")
print("listens", flush=True)
accepted = received = 0
while True:
    for key, _ in events.select():
        if key.data == "port":
            events.register(key.fileobj.accept()[0], selectors.EVENT_READ, "connection")
            accepted += 1
        elif key.data == "end":
            sys.exit(print(accepted, received))
        else:
            try:
                came = key.fileobj.recv(65536)
            except OSError:
                came = b""
            received += len(came)
            if not came:
                events.unregister(key.fileobj)
"""


class Squatter:
    """A process of `nobody` that accepts every connection at its ports and never answers."""

    def __init__(self, ports: Sequence[int]) -> None:
        command = [*AS_NOBODY, sys.executable, "-c", _PROGRAM, *map(str, ports)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/", env={"PATH": os.environ["PATH"]}
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "listens\n"

    def end(self) -> tuple[int, int]:
        """How many connections it accepted, and how many bytes it received."""
        output, _ = self._process.communicate("\n", timeout=30)
        accepted, received = map(int, output.split())
        return accepted, received

    def kill(self) -> None:
        """End it, whatever it does."""
        self._process.kill()
        self._process.communicate()


@contextmanager
def squatting(*ports: int) -> Iterator[Squatter]:
    """A squatter at these ports."""
    squatter = Squatter(ports)
    try:
        yield squatter
    finally:
        squatter.kill()
