"""The spread of rows over tasks: the number of tasks, and the hot keys, whose times are cut into slices (`slices`).

A sample of the rows decides. It decides only how the work is spread, never the content of a window. The library takes
the sample by SQL from a DataFrame, the pipeline in its own tasks from the files of a source: both are `SampledRows`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from spark_jobs.engine.columns.plain import Ints
from spark_jobs.engine.windows.kinds.kind import WindowKind
from spark_jobs.engine.windows.slices import SLICES, HotKey, cells_of, slice_halo

MOST_KEYS = 32
"""The greatest number of hot keys that are cut into slices; further ones are spread by their hash alone."""
_SHARE = 0.01
"""The least share of all rows that a sample takes."""
_FEWEST_SAMPLED = 1000
"""The least number of rows of a hot key in a sample, for a fair estimate of its times."""
_LONGEST = 2**62


@dataclass(frozen=True)
class SampledKey:
    """A key in a sample: the hash of its values, the number of its rows, and their least and greatest time in ticks."""

    hashed: int
    n_rows: int
    low: int
    high: int


@dataclass(frozen=True)
class KeySample:
    """A sample of rows: their number, and the largest of their keys."""

    n_rows: int
    largest: tuple[SampledKey, ...]


class SampledRows(Protocol):
    """Rows of many keys, all with a key and a time, of which samples can be taken."""

    def sample(self, share: float, least_rows: float) -> KeySample:
        """A sample of `share` of the rows, with its `MOST_KEYS` largest keys of more than `least_rows` rows."""

    def breaks(self, hot: tuple[HotKey, ...], gap: int) -> Mapping[int, int]:
        """The breaks near the beginnings of cells, found in all rows of the hot keys.

        Per cell (`number * SLICES` of its key, plus its place), the first time that is more than `gap` after the one
        before, both in the first `HotKey.beginning` ticks of the cell. The first cell of a key has none.
        """


@dataclass(frozen=True)
class Spread:
    """The tasks of rows. Each slice of a hot key has one of its own; other keys share the first `shared` by their hash.

    The tasks of slices follow the shared ones, key by key.
    """

    hot: tuple[HotKey, ...] = ()
    shared: int = 1

    @property
    def tasks(self) -> int:
        """The number of tasks."""
        return self.shared + sum(key.slices for key in self.hot)

    @property
    def first_tasks(self) -> list[tuple[HotKey, int]]:
        """The hot keys, each with the task of its first slice."""
        firsts, first = [], self.shared
        for key in self.hot:
            firsts.append((key, first))
            first += key.slices
        return firsts

    def tasks_of(self, hashed: Ints, slices: Ints) -> Ints:
        """The task of each row, given its key's hash and its slice."""
        tasks = (hashed.view(np.uint64) % np.uint64(self.shared)).astype(np.int64)
        for key, first in self.first_tasks:
            of_key = slices // SLICES == key.number
            tasks[of_key] = first + slices[of_key] % SLICES
        return tasks


def sampled_share(rows_a_slice: int) -> float:
    """The share of all rows in a sample that is large enough to find keys with more than `rows_a_slice` rows."""
    return min(max(_SHARE, _FEWEST_SAMPLED / rows_a_slice), 1.0)


def spread(rows: SampledRows, kind: WindowKind, rows_a_slice: int) -> Spread:
    """The spread of rows over tasks of about `rows_a_slice` rows each.

    Keys with more rows are cut by time. Sessions are cut at breaks only, which are looked for in all rows of
    these keys.
    """
    share = sampled_share(rows_a_slice)
    sample = rows.sample(share, rows_a_slice * share)
    hot: list[HotKey] = []
    for key in sample.largest:
        n_rows = round(key.n_rows / share)
        low, length, cells = cells_of(kind, rows=n_rows, rows_a_slice=rows_a_slice, low=key.low, high=key.high)
        if 1 < cells < SLICES and length * cells < _LONGEST:
            hot.append(HotKey(key.hashed, len(hot) + 1, low, length, cells))
    cut = tuple(hot)
    if hot and slice_halo(kind) is None:
        cut = _cut_at(rows.breaks(cut, kind.span), cut)
    cut_hashes = {key.hashed for key in cut}
    n_others = sample.n_rows - sum(key.n_rows for key in sample.largest if key.hashed in cut_hashes)
    return Spread(cut, max(math.ceil(n_others / share / rows_a_slice), 1))


def _cut_at(breaks: Mapping[int, int], hot: tuple[HotKey, ...]) -> tuple[HotKey, ...]:
    """The hot keys that have a break, with their breaks per cell."""
    cut = (
        replace(key, breaks=tuple(breaks.get(key.number * SLICES + cell) for cell in range(key.cells))) for key in hot
    )
    return tuple(key for key in cut if any(at is not None for at in key.breaks or ()))
