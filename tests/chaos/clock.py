"""The wall clock of an installation's processes, which a test can move while they run; the machine's clock stays."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("clock.c")
OFFSET = struct.Struct("=q")
COMPILER = "gcc"


def has_compiler() -> bool:
    """True if this machine can compile the library that moves clocks."""
    return shutil.which(COMPILER) is not None


class Clock:
    """A library that processes load before others, and the file with the seconds by which it moves their clocks."""

    def __init__(self, folder: Path) -> None:
        self._library, self._file = folder / "clock.so", folder / "clock.offset"
        command = [COMPILER, "-O2", "-shared", "-fPIC", "-o", str(self._library), str(SOURCE), "-ldl"]
        subprocess.run(command, check=True)
        self._file.write_bytes(OFFSET.pack(0))

    @property
    def environment(self) -> dict[str, str]:
        """The variables of a process whose clock moves, and of the processes that it starts."""
        return {"LD_PRELOAD": str(self._library), "CHAOS_CLOCK": str(self._file)}

    def move(self, seconds: int) -> None:
        """Let the clocks show so many seconds more than the machine's, from now on."""
        # in place, since the processes have mapped the file
        with self._file.open("r+b") as file:
            file.write(OFFSET.pack(seconds))
