"""The memory budget of a task: its limits, the bytes counted against it, and the runs flushed to keep to it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

HIGH_WATER, EMERGENCY = 0.8, 0.95
"""The default shares of the budget's part for rows. Rows in memory are flushed before they pass the first share; a
batch that passes the second by itself is split."""
LEVELS = ("low", "normal", "high", "critical", "emergency")
"""The levels of pressure; see `pressure_level`."""
_LOW = 0.5
_WINDOWS_SHARE = 0.3
_FILL = 0.75
"""Share of the budget's part for windows at which rows are made into windows; the last rows to come may pass it."""
_TABLE_SHARE = 0.1
"""Share of the budget for one table of windows; windows with wide values are cut into several tables."""
_SORT_BYTES_A_ROW = 40
"""Five numbers of 8 bytes: key number, tick, sort key, permutation, and one more while sorting."""
_WORK_BYTES_A_ROW, _WORK_BYTES_A_WINDOW = 160, 96
_FEWEST_ROWS = 1024
_FEWEST_RUN_ROWS = 64


def pressure_level(share: float, high_water: float = HIGH_WATER, emergency: float = EMERGENCY) -> str:
    """The level of pressure, where rows asked for this share of the memory: `low` up to a half, and no more than
    `high_water`; `normal` up to `high_water`; `high` in the lower half of the way from there to `emergency`, `critical`
    in the upper half, and `emergency` beyond."""
    bounds = (min(_LOW, high_water), high_water, (high_water + emergency) / 2, emergency)
    return LEVELS[sum(share > bound for bound in bounds)]


class RunStore(Protocol):
    """A store for runs of sorted rows that do not fit into memory."""

    def save(self, chunks: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """Store the chunks in order. The iterator returns them once, and reads them only as they are asked for."""


@dataclass
class MemoryUse:
    """The memory that one task uses: its rows, its peak of bytes, and the runs and bytes that it flushed."""

    rows: int = 0
    flushed_runs: int = 0
    flushed_bytes: int = 0
    peak_bytes: int = 0
    """The greatest number of bytes in memory at one time, as counted here: rows, and the arrays and windows made of
    them."""
    peak_percent: int = 0
    """The greatest share of the budget's part for rows that rows asked for, in percent. Beyond 100 only if rows came
    that had to be flushed or split before they could be taken."""
    _rows_in_memory: dict[str, int] = field(default_factory=dict)

    def holds(self, **n_bytes: int) -> None:
        """Record the bytes in memory from now on, by the names of their uses, and update `peak_bytes`."""
        self._rows_in_memory.update(n_bytes)
        self.peak_bytes = max(self.peak_bytes, sum(self._rows_in_memory.values()))


@dataclass(frozen=True)
class MemoryBudget:
    """The bytes that one task may have in memory: a part for rows waiting to be sorted, the rest for windows being
    made.

    The budget counts Arrow's buffers, and the kernels' arrays by their number of rows and windows, and these exactly.
    The interpreter and its libraries come on top. The rows of one open window are kept in memory even beyond the
    budget, as its aggregates need them all; `MemoryUse.peak_bytes` is then greater than `max_bytes`.
    """

    max_bytes: int
    use: MemoryUse = field(default_factory=MemoryUse)
    high_water: float = HIGH_WATER
    emergency: float = EMERGENCY

    def sorting_bytes(self, n_bytes: int, n_rows: int) -> int:
        """The bytes needed to keep rows in memory and sort them: the rows, a copy in order, the sort itself."""
        return 2 * n_bytes + _SORT_BYTES_A_ROW * n_rows

    def allows(self, n_bytes: int, n_rows: int, share: float) -> bool:
        """True if rows of so many bytes and their sorting fit into this share of the budget's part for rows. The share
        that they ask for counts as pressure."""
        needed_share = self.sorting_bytes(n_bytes, n_rows) / ((1 - _WINDOWS_SHARE) * self.max_bytes)
        self.use.peak_percent = max(self.use.peak_percent, math.ceil(100 * needed_share))
        return needed_share <= share

    def rows_held(self, row_bytes: int) -> int:
        """The number of rows of `row_bytes` bytes each that can be kept and sorted in memory."""
        return int(self.high_water * (1 - _WINDOWS_SHARE) * self.max_bytes) // self.sorting_bytes(row_bytes, 1)

    def windowing_bytes(self, n_bytes: int, n_rows: int, windows_a_row: int) -> int:
        """The bytes needed to find the windows of these rows, without the tables of windows."""
        return 2 * n_bytes + n_rows * (_WORK_BYTES_A_ROW + windows_a_row * _WORK_BYTES_A_WINDOW)

    def rows_at_a_time(self, row_bytes: int, windows_a_row: int, columns: int) -> int:
        """The number of rows that become windows at a time; windows have so many `columns`."""
        one = self.windowing_bytes(row_bytes, 1, windows_a_row) + windows_a_row * 8 * columns
        return max(
            int(_FILL * _WINDOWS_SHARE * self.max_bytes) // one, _FEWEST_ROWS // min(windows_a_row, _FEWEST_ROWS)
        )

    def table_bytes(self) -> int:
        """The greatest number of bytes in a table of windows."""
        return int(_TABLE_SHARE * self.max_bytes)

    def rows_of_a_run(self, row_bytes: int, runs: int) -> int:
        """The number of rows of each run that are in memory while `runs` runs are merged."""
        part = int((1 - _WINDOWS_SHARE) * self.high_water * self.max_bytes)
        return max(part // (runs * self.sorting_bytes(row_bytes, 1)), _FEWEST_RUN_ROWS)
