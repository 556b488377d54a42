"""Hot keys, which have too many rows for one task: their times are cut into slices that are processed apart, exactly.

The times of a hot key are cut into cells of one length; rows before and after the sampled times join the first and the
last cell. The cut into slices depends on how a kind's windows lie in time:

    it has a grain      cells are cut at its instants, which no window crosses: no row is in two slices
    it has a halo       a slice gets the rows within a halo of its cell, makes all windows near, and keeps those that
                        start in it
    neither (sessions)  slices are cut at breaks, which no window crosses: at most one a cell, between two neighbouring
                        rows found in the data

A slice has one number: `number * SLICES` of the key, plus its place. All rows of other keys have 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_jobs.engine.windows.kinds.kind import WindowKind
from spark_jobs.engine.windows.rows import as_ticks

Ints = npt.NDArray[np.int64]
Halo = tuple[int, int]
SLICE_COLUMN = "__slice"
SLICES = 1024
"""An upper bound of the cells of one key, which has fewer."""
_LEAST_HALOS = 8
"""The least length of a slice in halos, so that a slice has few copies of rows: at most about an eighth of its rows."""
_BROKEN_SHARE = 8
_LEAST = -(2**63)


@dataclass(frozen=True)
class HotKey:
    """A hot key, and the cut of its times into slices.

    Args:
        hashed: hash of the key. Keys with the same hash are cut alike, which does not change results.
        number: number of the key, 1 or more, unique among hot keys.
        low: start of the first cell.
        length: length of a cell in ticks, 1 or more.
        cells: number of cells, 2 .. SLICES - 1.
        breaks: per cell, the first time of the slice that begins in it, if one does; None: cells are slices.
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
    def beginning(self) -> int:
        """The length in ticks of the first part of a cell, in which a break is looked for: an eighth of the cell."""
        return max(self.length // _BROKEN_SHARE, 1)

    @property
    def slices(self) -> int:
        """The number of slices: that of the cells, or one more than that of the breaks."""
        return self.cells if self.breaks is None else 1 + sum(at is not None for at in self.breaks)

    def cell(self, times: Ints) -> Ints:
        """The number of the cell of each time; times outside of all cells are in the first or the last one."""
        return (np.clip(times, self.low, self.top) - self.low) // self.length

    def broken_before(self) -> list[int]:
        """Per cell, the number of slices that begin in earlier cells."""
        assert self.breaks is not None
        begins = [at is not None for at in self.breaks]
        return [sum(begins[:cell]) for cell in range(self.cells)]


@dataclass(frozen=True)
class OwnSlice:
    """A filter for windows and rows that start in their own slice, named by SLICE_COLUMN; the others are copies from a
    halo."""

    hot: tuple[HotKey, ...]

    def __call__(self, windows: pa.Table) -> npt.NDArray[np.bool_]:
        """Flags of the windows that start in their own slice."""
        return self.at(windows, "window_start")

    def at(self, table: pa.Table, time: str) -> npt.NDArray[np.bool_]:
        """Flags of the rows of a table whose `time` column is in their own slice."""
        slices, times = as_ticks(table.column(SLICE_COLUMN)), as_ticks(table.column(time))
        in_own_slice = np.ones(times.size, np.bool_)
        for key in self.hot:
            of_key = np.flatnonzero(slices // SLICES == key.number)
            # slices that end at breaks have no copies
            if of_key.size and key.breaks is None:
                in_own_slice[of_key] = key.cell(times[of_key]) == slices[of_key] % SLICES
        return in_own_slice


def slice_halo(kind: WindowKind) -> Halo | None:
    """The distances before and after a row within which slices get a copy of it; None: slices end at breaks."""
    return kind.halo if kind.grain is None else (0, 0)


def cells_of(kind: WindowKind, *, rows: int, rows_a_slice: int, low: int, high: int) -> tuple[int, int, int]:
    """The start, length and number of the cells of a key with about `rows` rows from `low` to `high`. One cell: the key
    is not cut."""
    halo, grain = slice_halo(kind), kind.grain
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


def in_slices(hot: tuple[HotKey, ...], halo: Halo | None, hashed: Ints, times: Ints) -> tuple[Ints, Ints]:
    """The places of rows, once for each slice that needs the row, and the numbers of those slices.

    Args:
        hot: the keys that are cut.
        halo: see `copied`.
        hashed: per row, the hash of its key.
        times: per row, the tick at which it counts.
    """
    places = [np.flatnonzero(~np.isin(hashed, np.array([key.hashed for key in hot], np.int64)))]
    slices = [np.zeros(places[0].size, np.int64)]
    for key in hot:
        of_key = np.flatnonzero(hashed == key.hashed)
        if halo is None:
            of_row, cells = np.arange(of_key.size), _slice_at_breaks(key, times[of_key])
        else:
            of_row, cells = _cells_near(key, halo, times[of_key])
        places.append(of_key[of_row])
        slices.append(key.number * SLICES + cells)
    return np.concatenate(places), np.concatenate(slices)


def _slice_at_breaks(key: HotKey, times: Ints) -> Ints:
    """The number of breaks up to each time, which is the place of its slice."""
    breaks = np.array([at for at in key.breaks or () if at is not None], np.int64)
    return np.searchsorted(breaks, times, side="right")


def _cells_near(key: HotKey, halo: Halo, times: Ints) -> tuple[Ints, Ints]:
    """The places of rows, once for each cell within a halo of their times, and the numbers of those cells."""
    before, after = halo
    first = key.cell(np.maximum(times, _LEAST + before) - before)
    last = key.cell(np.minimum(times, 2**63 - 1 - after) + after)
    counts = last - first + 1
    places = np.repeat(np.arange(times.size), counts)
    return places, np.arange(places.size) - np.repeat(np.cumsum(counts) - counts, counts) + first[places]
