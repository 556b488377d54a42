"""Spans: the windows that each row counts in, in the one form that all kinds return and all aggregates read.

Windows of a table are numbered 0 .. n_windows-1 in the order (key, start). A row counts in a contiguous run of them:

    row     0 1 2 3 4 5 6        first[i] <= window < past[i]
    first   0 0 1 3 3 4 6        rows are ordered so that `past` never falls (they leave in time order)
    past    2 3 3 5 6 6 8        `entry` orders them by `first`; with no late row it is 0, 1, 2, …
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from spark_jobs.engine.windows.sweeps import window_counts

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Settled:
    """The windows of a key that later rows can't change, and the rows that the other windows need."""

    before: int
    """Later rows change no window that starts before this time."""
    rows_from: int
    """Windows that start at `before` or later need no row before this time."""
    number: int = 0
    """For windows that are numbered within a cell: the number of the first one that starts at `before` or later."""


@dataclass(frozen=True)
class Spans:
    """The windows `first[i] <= w < past[i]` of each row `i`; no span is empty, and `past` never falls."""

    first: Ints
    past: Ints
    n_windows: int

    @cached_property
    def in_order(self) -> bool:
        """True if rows enter windows in the order in which they leave them. A row that is late for only some of its
        windows may break this order."""
        return bool(np.all(self.first[1:] >= self.first[:-1]))

    @cached_property
    def entry(self) -> Ints:
        """Row numbers in the order of `first`."""
        if self.in_order:
            return np.arange(self.first.size, dtype=np.int64)
        return np.argsort(self.first, kind="stable")

    @cached_property
    def counts(self) -> Ints:
        """Number of rows in each window."""
        return window_counts(self.first, self.past, self.n_windows)

    def between(
        self, begin: int, end: int, wanted: npt.NDArray[np.bool_] | None = None
    ) -> tuple[Spans, npt.NDArray[np.bool_]]:
        """The spans over the windows `begin .. end-1` alone (only the `wanted` ones, unless None), and flags of the
        rows that have such a span."""
        first, past = (np.clip(part, begin, end) - begin for part in (self.first, self.past))
        n_windows = end - begin
        if wanted is not None:
            number = np.concatenate(([0], np.cumsum(wanted)))
            first, past, n_windows = number[first], number[past], int(number[-1])
        has_rows = first < past
        return Spans(first[has_rows], past[has_rows], n_windows), has_rows

    def select(self, chosen: npt.NDArray[np.bool_]) -> Spans:
        """The spans of the chosen rows only, over the same windows."""
        return Spans(self.first[chosen], self.past[chosen], self.n_windows)


@dataclass(frozen=True)
class WindowSpans:
    """Windows of many keys in the order (key, start): `group` is the number of the key, bounds are in ticks."""

    group: Ints
    start: Ints
    end: Ints

    def between(self, begin: int, end: int) -> WindowSpans:
        """The windows numbered `begin .. end-1`."""
        return WindowSpans(self.group[begin:end], self.start[begin:end], self.end[begin:end])

    def select(self, chosen: npt.NDArray[np.bool_]) -> WindowSpans:
        """The windows that `chosen` flags."""
        return WindowSpans(self.group[chosen], self.start[chosen], self.end[chosen])


def settle(windows: WindowSpans, first: Ints, past: Ints) -> tuple[WindowSpans, Spans, npt.NDArray[np.bool_]]:
    """Drop candidate windows that no row counts in, and rows that count in no window.

    Returns:
        The windows left, the spans of the rows left, and flags of those rows.
    """
    counted = first < past
    filled = window_counts(first, past, windows.start.size) > 0
    if not filled.all():
        number = np.concatenate(([0], np.cumsum(filled)))
        first, past, windows = number[first], number[past], windows.select(filled)
    if not counted.all():
        first, past = first[counted], past[counted]
    return windows, Spans(first, past, windows.start.size), counted
