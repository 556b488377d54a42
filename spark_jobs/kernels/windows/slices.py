"""Keys with too many rows for one task, cut by time into slices that are worked on apart, exactly.

The times of a hot key are cut into cells of one length; rows before and after the sampled times join the first and the
last. Where windows have a bounded reach, a slice is a cell: it gets the rows within a halo of it, makes all windows
near, and keeps those that start in it. Where they have none (sessions), slices are cut at breaks, which no window
crosses: at most one a cell, between two neighbouring rows found in the data.

A slice is named by one number: `number * SLICES` of the key, plus its place; 0 for all rows of other keys.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
SLICES = 1024
"""More than the cells of one key."""
_LEAST_HALOS = 8
"""A slice is at least as many halos long: its copies are at most an eighth of its rows."""


@dataclass(frozen=True)
class HotKey:
    """How the times of one hot key are cut.

    Args:
        hashed: hash of the key; keys that share it are cut alike, which changes nothing.
        number: 1 or more, unique among hot keys.
        low: the first cell's start.
        length: of a cell, 1 or more.
        cells: how many there are, 2 .. SLICES - 1.
        breaks: per cell the first time of a slice that begins in it, if any; None: cells are slices.
    """

    hashed: int
    number: int
    low: int
    length: int
    cells: int
    breaks: tuple[int | None, ...] | None = None

    @property
    def top(self) -> int:
        """The last time of the last cell."""
        return min(self.low + self.length * self.cells - 1, 2**63 - 1)

    @property
    def slices(self) -> int:
        """How many slices there are: of cells each is one, of breaks each ends one."""
        return self.cells if self.breaks is None else 1 + sum(at is not None for at in self.breaks)

    def cell(self, times: Ints) -> Ints:
        """The cell of each time."""
        return (np.clip(times, self.low, self.top) - self.low) // self.length

    def broken_before(self) -> list[int]:
        """Per cell the number of slices that begin in earlier cells."""
        assert self.breaks is not None
        found = [at is not None for at in self.breaks]
        return [sum(found[:cell]) for cell in range(self.cells)]


def cells_of(*, rows: int, rows_a_slice: int, low: int, high: int, halo: tuple[int, int] | None) -> tuple[int, int]:
    """Length and number of the cells of a key with about so many rows from `low` to `high`; one cell: not to be cut."""
    span = high - low + 1
    wanted = min(-(-rows // rows_a_slice), SLICES - 1)
    least = 1 if halo is None else _LEAST_HALOS * (sum(halo) + 1)
    length = max(-(-span // max(wanted, 1)), least)
    return length, -(-span // length)


def kept(hot: tuple[HotKey, ...], slices: Ints, starts: Ints) -> npt.NDArray[np.bool_]:
    """Whether each window starts in the slice that made it."""
    keep = np.ones(starts.size, np.bool_)
    for key in hot:
        own = np.flatnonzero(slices // SLICES == key.number)
        if own.size and key.breaks is None:
            keep[own] = key.cell(starts[own]) == slices[own] % SLICES
    return keep
