"""What commands say and how they end: each must succeed, or be an error of ours that says what to do."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass

RAW = re.compile(r"Traceback \(most recent call last\)|^\s+at [\w.$]+\(|^Exception in thread|^  File \"", re.MULTILINE)
"""What only a program's own failure looks like: a traceback of Python, a stack of Java."""
CODE = re.compile(r"\{\"error\": \{\"code\": \"(\w+)\"|^(\w+)\n  expected  ", re.MULTILINE)
"""How an error of ours begins: as JSON for programs, as lines for people."""
ENDED = {0, 130, -signal.SIGKILL, -signal.SIGINT, -signal.SIGTERM}
"""How a command ends that succeeded, was interrupted, or was killed."""
JUDGES = {"audit", "doctor", "verify"}
"""Commands whose exit code 1 is a verdict, not an error."""


@dataclass(frozen=True)
class Output:
    """A command, how it ended, and what it printed."""

    command: tuple[str, ...]
    code: int
    text: str

    @property
    def ok(self) -> bool:
        """Whether it did what it was asked for."""
        return self.code == 0

    @property
    def error(self) -> str:
        """The code of its error; of a command without one, how it ended."""
        code = CODE.search(self.text)
        return (code[1] or code[2]) if code and self.code in (1, 2) else f"ended with {self.code}"

    def problem(self) -> str:
        """What nobody should have to read; empty where there is nothing."""
        wrong = ""
        if RAW.search(self.text):
            wrong = "printed a raw traceback"
        elif self.error == "unexpected":
            wrong = "took a fault for a defect of ours"
        elif self.code not in ENDED and not CODE.search(self.text) and self.command[0] not in JUDGES:
            wrong = f"ended with {self.code} and without an error of ours"
        return f"`tidemark {' '.join(self.command)}` {wrong}:\n{self.text[-2000:]}" if wrong else ""
