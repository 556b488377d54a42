"""A program on a pseudo-terminal, as a person at a keyboard uses it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

_OF_TERMINAL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[=>]|\r")
"""Control sequences of a terminal, and returns to the begin of a line."""


class Terminal:
    """A running program whose standard streams are a terminal of `columns` columns.

    It is killed at the end of the block, if it still runs then.
    """

    def __init__(
        self, command: Sequence[str], *, env: Mapping[str, str], cwd: Path | None = None, columns: int = 80
    ) -> None:
        self._descriptor, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 50, columns, 0, 0))
        self._process = subprocess.Popen(
            command,
            env={**env, "TERM": "xterm"},
            cwd=cwd,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            # Ctrl-C reaches a program through the terminal that controls it; tests start it without threads of theirs
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509
        )
        os.close(theirs)
        self._output = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._descriptor)

    @property
    def text(self) -> str:
        """All output so far, without control sequences."""
        return _OF_TERMINAL.sub("", self._output.decode(errors="replace"))

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._descriptor, keys.encode())

    def expect(self, text: str, timeout_s: float = 180.0) -> str:
        """Wait until the output after the last `expect` has the text; returns that output up to and with the text."""
        deadline = time.monotonic() + timeout_s
        while text not in self.text:
            assert self._read(deadline), f"{text!r} did not come: {self.text[-2000:]}"
        seen, _, rest = self.text.partition(text)
        self._output = rest.encode()
        return seen + text

    def end(self, timeout_s: float = 180.0) -> int:
        """Wait until the program ends; returns its exit code."""
        deadline = time.monotonic() + timeout_s
        while self._read(deadline):
            pass
        return self._process.wait(timeout_s)

    def _read(self, deadline: float) -> bool:
        """Read some output; returns False at its end."""
        ready, _, _ = select.select([self._descriptor], [], [], max(deadline - time.monotonic(), 0))
        assert ready, f"nothing more came: {self.text[-2000:]}"
        more = b""
        with suppress(OSError):  # the program has closed the terminal
            more = os.read(self._descriptor, 1 << 16)
        self._output += more
        return bool(more)
