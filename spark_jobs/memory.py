"""The memory left on this machine, or in this container, and the refusal of rows that would not fit into it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import psutil
import pyarrow as pa

from spark_jobs.errors import TidemarkError

TIMES = 4
"""The most memory that a task takes while it sorts and writes its rows, as a multiple of their bytes, them included.

The greatest measured is 3.1 (`tests/benchmarks/task_memory.py`)."""
LOOK_BYTES = 16 << 20
"""The bytes of rows that a task takes in before it checks again how much memory is left."""
MORE_MEMORY = (
    "give the machine or container more memory, or run when less else runs on it; then do the same again: a run goes on"
    " where it was"
)
"""The next step that an error for too little memory recommends."""
MIB = 1 << 20
_CGROUP = Path("/sys/fs/cgroup")
Piece = TypeVar("Piece")


class MemoryShort(TidemarkError):
    """The rows of a task would not fit into the memory that is left. Facts: `needed_mib`, `left_mib`."""

    code = "memory_short"


def bytes_in_all() -> int:
    """The memory of the machine, or of the container if that has less."""
    of_machine = int(psutil.virtual_memory().total)
    try:
        of_container = _CGROUP.joinpath("memory.max").read_text().strip()
    except OSError:  # not in a container, or in one without cgroup v2
        return of_machine
    return of_machine if of_container == "max" else min(of_machine, int(of_container))


def bytes_left() -> int:
    """The bytes that a process may still take without swapping: the lesser of the machine's and the container's."""
    left = int(psutil.virtual_memory().available)
    try:
        most, used = (_CGROUP.joinpath(name).read_text().strip() for name in ("memory.max", "memory.current"))
        reclaimable = dict(line.split() for line in _CGROUP.joinpath("memory.stat").read_text().splitlines())
    except OSError:  # not in a container, or in one without cgroup v2
        return left
    return left if most == "max" else min(left, int(most) - int(used) + int(reclaimable.get("inactive_file", 0)))


def with_room(
    pieces: Iterable[Piece],
    table_of: Callable[[Piece], pa.Table],
    left: Callable[[], int] = bytes_left,
    look_bytes: int = LOOK_BYTES,
) -> Iterator[Piece]:
    """Pass on `pieces`, and check on the way that the task has the memory to sort and write all rows passed so far.

    Args:
        pieces: the pieces of a task's rows.
        table_of: returns the rows of a piece.
        left: returns the bytes of memory that are left.
        look_bytes: the bytes of rows between two checks.

    Raises:
        MemoryShort: sorting and writing them would need more memory than is left. It is raised before the system has
            to swap, or to kill a process.
    """
    n_bytes = checked_bytes = 0
    for piece in pieces:
        n_bytes += table_of(piece).nbytes
        if n_bytes - checked_bytes >= look_bytes:
            checked_bytes = n_bytes
            _expect_room((TIMES - 1) * n_bytes, left())
        yield piece


def _expect_room(needed: int, left: int) -> None:
    if needed > left:
        raise MemoryShort(
            expected=f"{needed // MIB} MiB of memory for the rows of one task",
            found=f"{left // MIB} MiB left",
            consequence="nothing of this stage was committed",
            next_step=MORE_MEMORY,
            needed_mib=needed // MIB,
            left_mib=left // MIB,
        )
