"""Keys with too many rows for one task, cut by time into slices that are worked on apart, exactly.

The times of a hot key are cut into cells of one length; rows before and after the sampled times join the first and the
last. Slices are told apart by how a kind's windows lie in time:

    it has a grain      cells are cut at its instants, which nothing crosses: no row is in two slices
    it has a halo       a slice gets the rows within a halo of its cell, makes all windows near, and keeps those that
                        start in it
    neither (sessions)  slices are cut at breaks, which no window crosses: at most one a cell, between two neighbouring
                        rows found in the data

A slice is named by one number: `number * SLICES` of the key, plus its place; 0 for all rows of other keys.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .kinds import Kind
from .rows import as_ticks

Ints = npt.NDArray[np.int64]
Halo = tuple[int, int]
SLICE_COLUMN = "__slice"
SLICES = 1024
"""More than the cells of one key."""
_LEAST_HALOS = 8
"""A slice is at least as many halos long: its copies are at most an eighth of its rows."""
_LEAST = -(2**63)


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


@dataclass(frozen=True)
class OwnSlice:
    """Tells what lies in the slice that holds it, which SLICE_COLUMN names, from the copies in a halo."""

    hot: tuple[HotKey, ...]

    def __call__(self, windows: pa.Table) -> npt.NDArray[np.bool_]:
        """Which of these windows start in their slice."""
        return self.at(windows, "window_start")

    def at(self, table: pa.Table, time: str) -> npt.NDArray[np.bool_]:
        """Which rows of a table have this time in their slice."""
        slices, times = as_ticks(table.column(SLICE_COLUMN)), as_ticks(table.column(time))
        own = np.ones(times.size, np.bool_)
        for key in self.hot:
            of_key = np.flatnonzero(slices // SLICES == key.number)
            # slices that end at breaks hold no copies
            if of_key.size and key.breaks is None:
                own[of_key] = key.cell(times[of_key]) == slices[of_key] % SLICES
        return own


def copied(kind: Kind) -> Halo | None:
    """How far before and after a row the slices reach that get it; None: slices end at breaks."""
    return kind.halo if kind.grain is None else (0, 0)


def cells_of(kind: Kind, *, rows: int, rows_a_slice: int, low: int, high: int) -> tuple[int, int, int]:
    """Start, length and number of the cells of a key with about so many rows from `low` to `high`; one cell: not to be
    cut."""
    halo, grain = copied(kind), kind.grain
    wanted = max(min(-(-rows // rows_a_slice), SLICES - 1), 1)
    if grain is not None and low - grain.length >= _LEAST:
        low -= (low - grain.offset) % grain.length
    span = high - low + 1
    length = max(-(-span // wanted), 1 if halo is None else _LEAST_HALOS * (sum(halo) + 1))
    if grain is not None:
        length = -(-length // grain.length) * grain.length
        if (low - grain.offset) % grain.length:
            return low, length, 1
    return low, length, -(-span // length)


def in_slices(hot: tuple[HotKey, ...], halo: Halo | None, hashed: Ints, *times: Ints) -> tuple[Ints, Ints]:
    """Places of rows, once for each slice that a row bears on, and those slices.

    Args:
        hot: the keys that are cut.
        halo: see `copied`.
        hashed: per row its key as one number.
        times: per row the ticks at which it may count; where slices end at breaks, the first of them tells.
    """
    places = [np.flatnonzero(~np.isin(hashed, np.array([key.hashed for key in hot], np.int64)))]
    slices = [np.zeros(places[0].size, np.int64)]
    for key in hot:
        of_key = np.flatnonzero(hashed == key.hashed)
        if halo is None:
            of_row, cells = np.arange(of_key.size), _slice_at_breaks(key, times[0][of_key])
        else:
            of_row, cells = _cells_near(key, halo, [of_time[of_key] for of_time in times])
        places.append(of_key[of_row])
        slices.append(key.number * SLICES + cells)
    return np.concatenate(places), np.concatenate(slices)


def _slice_at_breaks(key: HotKey, times: Ints) -> Ints:
    """How many breaks there are up to each time."""
    breaks = np.array([at for at in key.breaks or () if at is not None], np.int64)
    return np.searchsorted(breaks, times, side="right")


def _cells_near(key: HotKey, halo: Halo, times: list[Ints]) -> tuple[Ints, Ints]:
    """Places of rows, once for each cell within reach of one of their times, and those cells."""
    before, after = halo
    places, cells = [], []
    for of_time in times:
        first = key.cell(np.maximum(of_time, _LEAST + before) - before)
        last = key.cell(np.minimum(of_time, 2**63 - 1 - after) + after)
        counts = last - first + 1
        place = np.repeat(np.arange(of_time.size), counts)
        places.append(place)
        cells.append(np.arange(place.size) - np.repeat(np.cumsum(counts) - counts, counts) + first[place])
    if len(times) == 1:
        return places[0], cells[0]
    pairs = np.unique(np.concatenate(places) * SLICES + np.concatenate(cells))
    return pairs // SLICES, pairs % SLICES
