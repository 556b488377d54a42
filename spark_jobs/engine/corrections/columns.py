"""Updates as columns, and the loops over them: order, sort, consolidate, merge.

An update is `(time, data, diff)`: `time` uint64, `data` an int64 code, `diff` int64. *Ordered* means strictly ascending
by (time, data); *consolidated* means ordered and without a zero diff. No answer leaves int64, because the buffer
refuses updates that could make it do so (`DiffOverflow`). Intermediate sums may wrap around and back, so the loops here
do not check for overflow.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

Times = NDArray[np.uint64]
Codes = NDArray[np.int64]
Diffs = NDArray[np.int64]

BYTES_PER_UPDATE = 24
"""The size of an update: three columns of 8 bytes."""

TIME_LIMIT = 1 << 64
"""Times are integers of 0 .. TIME_LIMIT - 1."""

COMPARISON_SORT_ROWS = 1_024
"""Up to this number of rows, one compiled merge sort is faster than numpy's vector sort with its dozen calls."""


class Updates(NamedTuple):
    """Columns of updates, all of one length. `data` are int64 codes, by which updates of the same time are ordered."""

    times: Times
    data: Codes
    diffs: Diffs

    @classmethod
    def empty(cls, rows: int = 0) -> Updates:
        """Columns of `rows` updates with undefined values."""
        return cls(np.empty(rows, np.uint64), np.empty(rows, np.int64), np.empty(rows, np.int64))

    @property
    def size(self) -> int:
        """The number of updates (`len` is the length of the tuple: 3)."""
        return self.times.shape[0]

    def rows(self, start: int, stop: int) -> Updates:
        """The updates `start .. stop - 1`, without copying."""
        return Updates(self.times[start:stop], self.data[start:stop], self.diffs[start:stop])

    def copy(self) -> Updates:
        """The same updates in memory of their own."""
        return Updates(self.times.copy(), self.data.copy(), self.diffs.copy())

    def first_at_or_beyond(self, time: int) -> int:
        """The index of the first update with `update.time >= time`, for updates ordered by time."""
        return int(np.searchsorted(self.times, np.uint64(time)))

    def triples(self) -> list[tuple[int, int, int]]:
        """`(data, time, diff)` of every update as Python integers."""
        return list(zip(self.data.tolist(), self.times.tolist(), self.diffs.tolist(), strict=True))


def concatenate(parts: list[Updates]) -> Updates:
    """All updates of `parts`, one after the other, in new columns."""
    if not parts:
        return Updates.empty()
    times, data, diffs = zip(*parts, strict=True)
    return Updates(np.concatenate(times), np.concatenate(data), np.concatenate(diffs))


def consolidate(updates: Updates) -> Updates:
    """The consolidated form of updates in any order: ordered by (time, data), diffs summed, zeros dropped.

    Cost O(n log n). The result shares memory with the argument only if the argument is consolidated already.
    """
    rows = updates.size
    if rows == 0 or _is_consolidated(*updates):
        return updates
    out = Updates.empty(rows)
    if rows <= COMPARISON_SORT_ROWS:
        kept = _gather_sums(*updates, _sorted_order(updates.times, updates.data), np.uint64(rows_mask(rows)), *out)
    else:
        order, mask = _vector_order(updates)
        kept = _gather_sums(*updates, order, np.uint64(mask), *out)
    return trim(out, kept)


def trim(columns: Updates, kept: int) -> Updates:
    """The first `kept` rows; copied if the copy frees more memory than it takes."""
    head = columns.rows(0, kept)
    return head.copy() if kept < columns.size // 2 else head


def rows_mask(rows: int) -> int:
    """A mask of the bits that numbers below `rows` may have."""
    return (1 << (rows - 1).bit_length()) - 1


def _vector_order(updates: Updates) -> tuple[NDArray[np.uint64], int]:
    """The order of the rows by (time, data), as numbers whose bits under the returned mask are row indexes.

    Time, data and row index are packed into one 64-bit key if they fit, as they do for most batches: numpy sorts plain
    integers several times faster than it ranks pairs.
    """
    times, data, rows = updates.times, updates.data, updates.size
    first_time, first_code = times.min(), data.min()
    time_bits = int(times.max() - first_time).bit_length()
    code_bits = (int(data.max()) - int(first_code)).bit_length()
    row_bits = (rows - 1).bit_length()
    if time_bits + code_bits > 64:
        return np.lexsort((data, times)).view(np.uint64), rows_mask(rows)
    # differences of codes wrap around in int64, and are correct as uint64
    key = (data - first_code).view(np.uint64)
    if code_bits < 64:
        key |= (times - first_time) << np.uint64(code_bits)
    if time_bits + code_bits + row_bits > 64:
        return np.argsort(key).view(np.uint64), rows_mask(rows)
    key <<= np.uint64(row_bits)
    key |= np.arange(rows, dtype=np.uint64)
    key.sort()
    return key, rows_mask(rows)


@njit(cache=True, nogil=True)
def _is_consolidated(times: Times, data: Codes, diffs: Diffs) -> bool:
    if diffs[0] == 0:
        return False
    for i in range(1, times.shape[0]):
        if diffs[i] == 0 or times[i] < times[i - 1] or (times[i] == times[i - 1] and data[i] <= data[i - 1]):
            return False
    return True


@njit(cache=True, nogil=True)
def _sorted_order(times: Times, data: Codes) -> Any:
    """A bottom-up merge sort of row indexes by (time, data)."""
    rows = times.shape[0]
    order, other = np.arange(rows).astype(np.uint64), np.empty(rows, np.uint64)
    for start in range(0, rows, 8):
        for i in range(start + 1, min(start + 8, rows)):
            row, j = order[i], i
            while j > start and (
                times[order[j - 1]] > times[row]
                or (times[order[j - 1]] == times[row] and data[order[j - 1]] > data[row])
            ):
                order[j] = order[j - 1]
                j -= 1
            order[j] = row
    width = 8
    while width < rows:
        for start in range(0, rows, 2 * width):
            middle, stop = min(start + width, rows), min(start + 2 * width, rows)
            i, j = start, middle
            for k in range(start, stop):
                if j == stop or (
                    i < middle
                    and (
                        times[order[i]] < times[order[j]]
                        or (times[order[i]] == times[order[j]] and data[order[i]] <= data[order[j]])
                    )
                ):
                    other[k] = order[i]
                    i += 1
                else:
                    other[k] = order[j]
                    j += 1
        order, other = other, order
        width *= 2
    return order


@njit(cache=True, nogil=True)
def _gather_sums(
    times: Times,
    data: Codes,
    diffs: Diffs,
    order: Any,
    mask: Any,
    out_times: Times,
    out_data: Codes,
    out_diffs: Diffs,
) -> int:
    """Write the sums per (time, data) in `order`, without zeros; returns their number."""
    kept, rows, i = 0, times.shape[0], 0
    while i < rows:
        row = order[i] & mask
        time, code, total = times[row], data[row], diffs[row]
        i += 1
        while i < rows:
            row = order[i] & mask
            if times[row] != time or data[row] != code:
                break
            total += diffs[row]
            i += 1
        if total != 0:
            out_times[kept], out_data[kept], out_diffs[kept] = time, code, total
            kept += 1
    return kept


@njit(cache=True, nogil=True)
def merge_some(
    left_times: Times,
    left_data: Codes,
    left_diffs: Diffs,
    i: int,
    right_times: Times,
    right_data: Codes,
    right_diffs: Diffs,
    j: int,
    out_times: Times,
    out_data: Codes,
    out_diffs: Diffs,
    k: int,
) -> tuple[int, int, int]:
    """Merge two consolidated columns from rows `i` and `j` on into `out` from row `k` on.

    Stops when one side is used up or `out` is full; returns the three positions at which a later call continues.
    """
    left_rows, right_rows, out_rows = left_times.shape[0], right_times.shape[0], out_times.shape[0]
    while i < left_rows and j < right_rows and k < out_rows:
        left_time, right_time, left_code, right_code = left_times[i], right_times[j], left_data[i], right_data[j]
        if left_time < right_time or (left_time == right_time and left_code < right_code):
            out_times[k], out_data[k], out_diffs[k] = left_time, left_code, left_diffs[i]
            i += 1
            k += 1
        elif left_time != right_time or left_code != right_code:
            out_times[k], out_data[k], out_diffs[k] = right_time, right_code, right_diffs[j]
            j += 1
            k += 1
        else:
            total = left_diffs[i] + right_diffs[j]
            if total != 0:
                out_times[k], out_data[k], out_diffs[k] = left_time, left_code, total
                k += 1
            i += 1
            j += 1
    return i, j, k
