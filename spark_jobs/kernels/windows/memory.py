"""How much memory a worker may hold, how it is counted, and what was flushed to keep to it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

HIGH_WATER, EMERGENCY = 0.8, 0.95
"""Shares of what rows may take: rows held are flushed before they pass the first; a batch that passes the second by
itself is cut up."""
_WINDOWS_SHARE = 0.3
_FILL = 0.75
"""Rows are made into windows at this share of what they may take: the last to come pass it."""
_TABLE_SHARE = 0.1
"""Of the budget, for one table of windows: those of wide values are cut into several."""
_SORT_BYTES_A_ROW = 40
"""Key number, tick, sort key, permutation, and one more while sorting."""
_WORK_BYTES_A_ROW, _WORK_BYTES_A_WINDOW = 160, 96
_FEWEST_ROWS = 1024
_FEWEST_RUN_ROWS = 64


class RunStore(Protocol):
    """Where sorted rows wait that do not fit into memory."""

    def save(self, chunks: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """Put the chunks away in order; the iterator gives them back once, reading as it goes."""


@dataclass
class MemoryUse:
    """What one task holds, held at most, and flushed."""

    rows: int = 0
    flushed_runs: int = 0
    flushed_bytes: int = 0
    peak_bytes: int = 0
    """Greatest number of bytes held at one time: rows, and the arrays and windows made of them, as counted here."""
    _held: dict[str, int] = field(default_factory=dict)

    def holds(self, **n_bytes: int) -> None:
        """Note how many bytes are held from now on, by what they are held for."""
        self._held.update(n_bytes)
        self.peak_bytes = max(self.peak_bytes, sum(self._held.values()))


@dataclass(frozen=True)
class MemoryBudget:
    """Bytes that one task may hold: a part for rows waiting to be sorted, the rest for windows being made.

    Exact about what it counts (Arrow's buffers, and the kernels' arrays by their number of rows and windows). The
    interpreter and its libraries come on top. The rows of one open window are held whatever the budget says: its
    aggregates need them all. `MemoryUse.peak_bytes` then tells by how much it was passed.
    """

    max_bytes: int
    use: MemoryUse = field(default_factory=MemoryUse)

    def sorting_bytes(self, n_bytes: int, n_rows: int) -> int:
        """What it takes to hold rows of so many bytes and sort them: the rows, a copy in order, the sort itself."""
        return 2 * n_bytes + _SORT_BYTES_A_ROW * n_rows

    def allows(self, n_bytes: int, n_rows: int, share: float) -> bool:
        """Whether rows may be held, up to a share of their part of the budget."""
        return self.sorting_bytes(n_bytes, n_rows) <= share * (1 - _WINDOWS_SHARE) * self.max_bytes

    def rows_held(self, row_bytes: int) -> int:
        """How many rows of so many bytes can be held and sorted where they are."""
        return int(HIGH_WATER * (1 - _WINDOWS_SHARE) * self.max_bytes) // self.sorting_bytes(row_bytes, 1)

    def windowing_bytes(self, n_bytes: int, n_rows: int, windows_a_row: int) -> int:
        """What it takes to find the windows of rows of so many bytes; tables of windows come on top."""
        return 2 * n_bytes + n_rows * (_WORK_BYTES_A_ROW + windows_a_row * _WORK_BYTES_A_WINDOW)

    def rows_at_a_time(self, row_bytes: int, windows_a_row: int, columns: int) -> int:
        """How many rows become windows at a time, of so many columns."""
        one = self.windowing_bytes(row_bytes, 1, windows_a_row) + windows_a_row * 8 * columns
        return max(
            int(_FILL * _WINDOWS_SHARE * self.max_bytes) // one, _FEWEST_ROWS // min(windows_a_row, _FEWEST_ROWS)
        )

    def table_bytes(self) -> int:
        """How many bytes a table of windows may have."""
        return int(_TABLE_SHARE * self.max_bytes)

    def rows_of_a_run(self, row_bytes: int, runs: int) -> int:
        """How many rows of each run are held while `runs` of them are merged."""
        part = int((1 - _WINDOWS_SHARE) * HIGH_WATER * self.max_bytes)
        return max(part // (runs * self.sorting_bytes(row_bytes, 1)), _FEWEST_RUN_ROWS)
