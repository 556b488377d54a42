"""Spreading the rows of a restatement over tasks, by a sample: the number of tasks, and the hot keys.

A hot key has too many rows for one task and is cut by time; see `kernels.windows.slices`. The sample decides only how
work is spread. The contents of windows do not depend on it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from spark_jobs.exchange import answers, decoded, encoded
from spark_jobs.kernels.plain import Ints, numbers
from spark_jobs.kernels.windows import Sessions
from spark_jobs.kernels.windows.slices import SLICES, HotKey, cells_of
from spark_jobs.restatement.window_rows import WindowRows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS_HERE = 1 << 22
"""The most rows whose keys this process reads itself, without a Spark job."""
ROWS_A_TASK = 1 << 21
MOST_KEYS = 32
"""The most keys that are cut by time; further hot keys are spread by their hash alone."""
_SHARE = 0.01
"""The least share of all rows that the sample has."""
_FEWEST_SAMPLED = 1000
"""The least rows of a hot key that a sample should have, for a fair guess of its times."""
_BROKEN_SHARE = 8
"""The divisor of a cell's length that gives the part in which breaks are looked for: its first eighth."""
_LONGEST = 2**62
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Spread:
    """The tasks for the rows of a definition. All other keys than the hot ones share the first `shared` tasks by their
    hash; then each slice of a hot key has a task of its own."""

    hot: tuple[HotKey, ...] = ()
    shared: int = 1

    @property
    def tasks(self) -> int:
        """The number of tasks."""
        return self.shared + sum(key.slices for key in self.hot)

    def tasks_of(self, hashed: Ints, slices: Ints) -> Ints:
        """The task of each row, given its key's hash and its slice."""
        tasks = (hashed.view(np.uint64) % np.uint64(self.shared)).astype(np.int64)
        first = self.shared
        for key in self.hot:
            of_key = slices // SLICES == key.number
            tasks[of_key] = first + slices[of_key] % SLICES
            first += key.slices
        return tasks


def spread(spark: SparkSession | None, rows: WindowRows, rows_a_slice: int) -> Spread:
    """Count rows and look for keys with more than `rows_a_slice` rows, both by a sample. For sessions, also look for
    breaks in all rows of these keys."""
    kind, share = rows.definition.kind, min(max(_SHARE, _FEWEST_SAMPLED / rows_a_slice), 1.0)
    pieces, here = rows.split(ROWS_A_TASK), rows.n_rows <= ROWS_HERE
    sampled = [decoded(pa.scalar(part)) for part in answers(spark, pieces, partial(_sample, share=share), here=here)]
    keys = (
        pa.concat_tables([_NO_KEYS, *sampled])
        .group_by("key")
        .aggregate([("n", "sum"), ("low", "min"), ("high", "max")])
    )
    sums = {name: numbers(keys[column]) for name, column in zip(("key", "n", "low", "high"), _SUMMED, strict=True)}
    largest = np.argsort(-sums["n"], kind="stable")[:MOST_KEYS]
    hot: list[HotKey] = []
    for place in largest[sums["n"][largest] > rows_a_slice * share].tolist():
        n_rows, low, high = (int(sums[name][place]) for name in ("n", "low", "high"))
        bounds = cells_of(kind, rows=round(n_rows / share), rows_a_slice=rows_a_slice, low=low, high=high)
        first, length, cells = bounds
        if 1 < cells < SLICES and length * cells < _LONGEST:
            hot.append(HotKey(int(sums["key"][place]), len(hot) + 1, first, length, cells))
    cut = (
        _at_breaks(spark, pieces, tuple(hot), kind.gap, here=here) if hot and isinstance(kind, Sessions) else tuple(hot)
    )
    of_cut = np.isin(sums["key"], np.array([key.hashed for key in cut], np.int64))
    others = int(sums["n"][~of_cut].sum())
    return Spread(cut, max(math.ceil(others / share / rows_a_slice), 1))


_NO_KEYS = pa.schema([(name, pa.int64()) for name in ("key", "n", "low", "high")]).empty_table()
_SUMMED = ("key", "n_sum", "low_min", "high_max")


def _sample(rows: WindowRows, *, share: float) -> bytes:
    """The keys of a share of the rows: the number of rows of each, and their least and greatest time; encoded."""
    keys, times = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for hashed, time, row_ids in rows.keyed():
        chosen = (row_ids.view(np.uint64) * _GOLDEN) >> np.uint64(32) < np.uint64(share * 2**32)
        keys.append(hashed[chosen])
        times.append(time[chosen])
    table = pa.table({"key": np.concatenate(keys), "t": np.concatenate(times)})
    counted = table.group_by("key").aggregate([("t", "count"), ("t", "min"), ("t", "max")])
    columns = [counted[name] for name in ("key", "t_count", "t_min", "t_max")]
    return encoded(pa.table(columns, names=["key", "n", "low", "high"]).cast(_NO_KEYS.schema))


def _at_breaks(
    spark: SparkSession | None, pieces: Sequence[WindowRows], hot: tuple[HotKey, ...], gap: int, *, here: bool
) -> tuple[HotKey, ...]:
    """The hot keys that have a break near the beginning of a cell, with their breaks."""
    look = partial(_stretches, hot=hot, gap=gap)
    parts = [decoded(pa.scalar(part)) for part in answers(spark, pieces, look, here=here)]
    stretches = pa.concat_tables(parts).sort_by([("slice", "ascending"), ("low", "ascending")])
    slices, lows, highs = (numbers(stretches[name]) for name in ("slice", "low", "high"))
    breaks: dict[int, int] = {}
    reached = np.int64(0)
    for place, (number, low, high) in enumerate(zip(slices.tolist(), lows.tolist(), highs.tolist(), strict=True)):
        follows = place and slices[place - 1] == number
        if follows and low - reached > gap:
            breaks.setdefault(number, low)
        reached = max(reached, high) if follows else high
    cut = (
        replace(key, breaks=tuple(breaks.get(key.number * SLICES + cell) for cell in range(key.cells))) for key in hot
    )
    return tuple(key for key in cut if any(at is not None for at in key.breaks or ()))


def _stretches(rows: WindowRows, *, hot: tuple[HotKey, ...], gap: int) -> bytes:
    """The stretches of times in which neighbours are at most `gap` apart, of the rows near the beginning of a hot key's
    cells; encoded.

    All rows of a key from the start of a cell to some later time are among them. So two rows are neighbours if no
    other row is between them.
    """
    slices, times = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for hashed, time, _ in rows.keyed():
        for key in hot:
            of_key = time[hashed == key.hashed]
            of_key = of_key[(of_key >= key.low + key.length) & (of_key <= key.top)]
            early = of_key[(of_key - key.low) % key.length < max(key.length // _BROKEN_SHARE, 1)]
            slices.append(key.number * SLICES + key.cell(early))
            times.append(early)
    number, time = np.concatenate(slices), np.concatenate(times)
    order = np.lexsort((time, number))
    number, time = number[order], time[order]
    begins = np.ones(time.size, np.bool_)
    begins[1:] = (np.diff(number) != 0) | (np.diff(time) > gap)
    first = np.flatnonzero(begins)
    last = np.append(first[1:], time.size)[: first.size] - 1
    return encoded(pa.table({"slice": number[first], "low": time[first], "high": time[last]}))
