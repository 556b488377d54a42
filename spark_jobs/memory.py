"""The memory that is left on this machine, or in this container, and the refusal of rows that would not fit into it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import psutil
import pyarrow as pa

from spark_jobs.errors import TidemarkError

TIMES = 4
"""Times the bytes of its rows that a task holds at most while it sorts and writes them, the rows among them."""
LOOK_BYTES = 16 << 20
"""Bytes after which a task that takes in rows looks again how much is left."""
MORE_MEMORY = (
    "give the machine or container more memory, or run when less else runs on it; then do the same again: a run goes on"
    " where it was"
)
"""The way on."""
MIB = 1 << 20
_CGROUP = Path("/sys/fs/cgroup")
Given = TypeVar("Given")


class MemoryShort(TidemarkError):
    """The rows of a task would not fit into the memory that is left. Facts: `needed_mib`, `left_mib`."""

    code = "memory_short"


def with_room(given: Iterable[Given], table_of: Callable[[Given], pa.Table]) -> Iterator[Given]:
    """Pass on the rows of a task that holds all of them before it sorts and writes them.

    Raises:
        MemoryShort: what is still to come would not fit. It is raised before the system has to swap, or to kill a
            process.
    """
    held = looked_at = 0
    for each in given:
        held += table_of(each).nbytes
        if held - looked_at >= LOOK_BYTES:
            looked_at = held
            _expect_room((TIMES - 1) * held)
        yield each


def _expect_room(needed: int) -> None:
    left = bytes_left()
    if needed > left:
        raise MemoryShort(
            expected=f"{needed // MIB} MiB of memory for the rows of one task",
            found=f"{left // MIB} MiB left",
            consequence="nothing of this stage was committed",
            next_step=MORE_MEMORY,
            needed_mib=needed // MIB,
            left_mib=left // MIB,
        )


def bytes_left() -> int:
    """Bytes that a process may still take without swapping: of the machine, or of the container where that has less."""
    left = int(psutil.virtual_memory().available)
    try:
        most, used = (_CGROUP.joinpath(name).read_text().strip() for name in ("memory.max", "memory.current"))
        reclaimable = dict(line.split() for line in _CGROUP.joinpath("memory.stat").read_text().splitlines())
    except OSError:  # not in a container, or one of another kind
        return left
    return left if most == "max" else min(left, int(most) - int(used) + int(reclaimable.get("inactive_file", 0)))
