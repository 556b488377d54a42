"""Sweeps, which pass once over windows in order: counts, sums, extrema, distinct counts and ranks.

All kinds of windows reduce to the same form (`spans.Spans`): row `i` counts in the windows `first[i] .. past[i] - 1`. A
sweep adds a row at its first window and removes it after its last one. So its cost is O(rows + windows), or O(rows *
log(rows)) for extrema if rows enter out of order. It never visits all rows of each window.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]


@njit(cache=True, nogil=True)
def window_counts(first: Ints, past: Ints, n_windows: int) -> Ints:
    """The number of rows in each window; rows with an empty span (`past <= first`) count nowhere."""
    counts = np.zeros(n_windows + 1, np.int64)
    for i in range(first.size):
        if first[i] < past[i]:
            counts[first[i]] += 1
            counts[past[i]] -= 1
    running = 0
    for window in range(n_windows):
        running += counts[window]
        counts[window] = running
    return counts[:n_windows]


@njit(cache=True, nogil=True)
def integer_sums(values: Ints, first: Ints, past: Ints, entry: Ints, n_windows: int) -> tuple[Ints, Floats, Flags]:
    """The exact sum of integers in each window.

    Returns:
        The sums (modulo 2**64), the sums rounded to doubles, and flags of the sums that do not fit into int64.
    """
    sums, rounded = np.empty(n_windows, np.int64), np.empty(n_windows, np.float64)
    beyond = np.zeros(n_windows, np.bool_)
    high = low = entered = left = 0
    for window in range(n_windows):
        while entered < entry.size and first[entry[entered]] <= window:
            value = values[entry[entered]]
            high, low = high + (value >> 32), low + (value & 0xFFFFFFFF)
            entered += 1
        while left < past.size and past[left] <= window:
            high, low = high - (values[left] >> 32), low - (values[left] & 0xFFFFFFFF)
            left += 1
        top, bottom = high + (low >> 32), low & 0xFFFFFFFF
        sums[window] = (top << 32) | bottom
        if -2147483648 <= top < 2147483648:
            rounded[window] = float(sums[window])
        else:
            rounded[window] = top * 4294967296.0 + bottom
            beyond[window] = True
    return sums, rounded, beyond


@njit(cache=True, nogil=True)
def greatest_in_order(keys: Ints, first: Ints, past: Ints, n_windows: int) -> Ints:
    """Per window, the row with the greatest key (-1: no row), for rows that enter in the order in which they leave.

    Uses a queue of rows with descending keys, whose head is the result; each row is pushed and popped at most once.
    """
    best = np.empty(n_windows, np.int64)
    queue = np.empty(keys.size, np.int64)
    head = tail = entered = 0
    for window in range(n_windows):
        while entered < keys.size and first[entered] <= window:
            while tail > head and keys[queue[tail - 1]] <= keys[entered]:
                tail -= 1
            queue[tail] = entered
            tail += 1
            entered += 1
        while head < tail and past[queue[head]] <= window:
            head += 1
        best[window] = queue[head] if head < tail else -1
    return best


@njit(cache=True, nogil=True)
def _push(heap: Ints, size: int, keys: Ints, row: int) -> None:
    hole = size
    while hole > 0 and keys[heap[(hole - 1) >> 1]] < keys[row]:
        heap[hole] = heap[(hole - 1) >> 1]
        hole = (hole - 1) >> 1
    heap[hole] = row


@njit(cache=True, nogil=True)
def _pop(heap: Ints, size: int, keys: Ints) -> None:
    row, hole = heap[size - 1], 0
    while True:
        child = 2 * hole + 1
        if child >= size - 1:
            break
        if child + 1 < size - 1 and keys[heap[child + 1]] > keys[heap[child]]:
            child += 1
        if keys[heap[child]] <= keys[row]:
            break
        heap[hole] = heap[child]
        hole = child
    heap[hole] = row


@njit(cache=True, nogil=True)
def greatest_any_order(keys: Ints, first: Ints, past: Ints, entry: Ints, n_windows: int) -> Ints:
    """As `greatest_in_order`, for rows that enter in any order. Uses a heap; rows that have left their windows are
    removed when they reach its top."""
    best = np.empty(n_windows, np.int64)
    heap = np.empty(keys.size, np.int64)
    size = entered = 0
    for window in range(n_windows):
        while entered < entry.size and first[entry[entered]] <= window:
            _push(heap, size, keys, entry[entered])
            size += 1
            entered += 1
        while size and past[heap[0]] <= window:
            _pop(heap, size, keys)
            size -= 1
        best[window] = heap[0] if size else -1
    return best


@njit(cache=True, nogil=True)
def distinct_counts(codes: Ints, n_codes: int, first: Ints, past: Ints, entry: Ints, n_windows: int) -> Ints:
    """The number of distinct codes (0 .. n_codes-1) in each window."""
    distinct, seen = np.empty(n_windows, np.int64), np.zeros(n_codes, np.int64)
    present = entered = left = 0
    for window in range(n_windows):
        while entered < entry.size and first[entry[entered]] <= window:
            code = codes[entry[entered]]
            seen[code] += 1
            present += seen[code] == 1
            entered += 1
        while left < past.size and past[left] <= window:
            code = codes[left]
            seen[code] -= 1
            present -= seen[code] == 0
            left += 1
        distinct[window] = present
    return distinct


@njit(cache=True, nogil=True)
def ranked_codes(codes: Ints, n_codes: int, ranks: Ints, first: Ints, past: Ints, entry: Ints, n_windows: int) -> Ints:
    """Per window, the code at the rank `ranks[window]`, counted from 0, among its sorted codes (-1: no row). Uses a
    Fenwick tree."""
    ranked, tree = np.full(n_windows, -1, np.int64), np.zeros(n_codes + 1, np.int64)
    top = 1
    while 2 * top <= n_codes:
        top *= 2
    count = entered = left = 0
    for window in range(n_windows):
        while entered < entry.size and first[entry[entered]] <= window:
            node = codes[entry[entered]] + 1
            while node <= n_codes:
                tree[node] += 1
                node += node & -node
            count += 1
            entered += 1
        while left < past.size and past[left] <= window:
            node = codes[left] + 1
            while node <= n_codes:
                tree[node] -= 1
                node += node & -node
            count -= 1
            left += 1
        if count == 0:
            continue
        remaining = ranks[window]
        node, step = 0, top
        while step:
            if node + step <= n_codes and tree[node + step] <= remaining:
                node += step
                remaining -= tree[node]
            step >>= 1
        ranked[window] = node
    return ranked
