"""Samples of the rows of a restatement, by which `engine.windows` spreads them over tasks; no SQL and no shuffle."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from spark_jobs.distribution import cut_pass
from spark_jobs.engine.columns import numbers
from spark_jobs.engine.windows import MOST_KEYS, SLICES, HotKey, KeySample, SampledKey
from spark_jobs.exchange import answers, decode, encode
from spark_jobs.restatement.window_rows import UpdatesInReach

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS_A_TASK = 1 << 21
"""The approximate number of rows whose keys one task reads."""
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class SampledUpdates:
    """Rows within reach of a restatement, of which samples can be taken (`engine.windows.SampledRows`)."""

    spark: SparkSession | None
    rows: UpdatesInReach

    def sample(self, share: float, least_rows: float) -> KeySample:
        """A sample of the rows, chosen by their ids."""
        keys = (
            pa.concat_tables([_NO_KEYS, *self._answers(partial(_sample, share=share))])
            .group_by("key")
            .aggregate([("n", "sum"), ("low", "min"), ("high", "max")])
        )
        hashed, n_rows, low, high = (numbers(keys[column]) for column in ("key", "n_sum", "low_min", "high_max"))
        largest = np.argsort(-n_rows, kind="stable")[:MOST_KEYS]
        places = largest[n_rows[largest] > least_rows].tolist()
        return KeySample(
            int(n_rows.sum()),
            tuple(SampledKey(*(int(column[place]) for column in (hashed, n_rows, low, high))) for place in places),
        )

    def breaks(self, hot: tuple[HotKey, ...], gap: int) -> Mapping[int, int]:
        """The breaks near the beginnings of cells, from the stretches of times that each task finds."""
        parts = self._answers(partial(_stretches, hot=hot, gap=gap))
        stretches = pa.concat_tables(parts).sort_by([("slice", "ascending"), ("low", "ascending")])
        slices, lows, highs = (numbers(stretches[name]) for name in ("slice", "low", "high"))
        breaks: dict[int, int] = {}
        reached = np.int64(0)
        for place, (number, low, high) in enumerate(zip(slices.tolist(), lows.tolist(), highs.tolist(), strict=True)):
            follows = place and slices[place - 1] == number
            if follows and low - reached > gap:
                breaks.setdefault(number, low)
            reached = max(reached, high) if follows else high
        return breaks

    def _answers(self, work: Callable[[UpdatesInReach], bytes]) -> list[pa.Table]:
        """The answers of `work` on each piece of the rows, decoded."""
        cut = cut_pass(self.spark, self.rows, ROWS_A_TASK)
        return [
            decode(pa.scalar(answer))
            for answer in answers(self.spark, self.rows.split(cut.rows_a_piece), work, here=cut.here)
        ]


_NO_KEYS = pa.schema([(name, pa.int64()) for name in ("key", "n", "low", "high")]).empty_table()


def _sample(rows: UpdatesInReach, *, share: float) -> bytes:
    """The keys of a share of the rows: the number of rows of each, and their least and greatest time; encoded."""
    keys, times = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for hashed, time, row_ids in rows.key_rows():
        chosen = (row_ids.view(np.uint64) * _GOLDEN) >> np.uint64(32) < np.uint64(share * 2**32)
        keys.append(hashed[chosen])
        times.append(time[chosen])
    table = pa.table({"key": np.concatenate(keys), "t": np.concatenate(times)})
    counted = table.group_by("key").aggregate([("t", "count"), ("t", "min"), ("t", "max")])
    columns = [counted[name] for name in ("key", "t_count", "t_min", "t_max")]
    return encode(pa.table(columns, names=["key", "n", "low", "high"]).cast(_NO_KEYS.schema))


def _stretches(rows: UpdatesInReach, *, hot: tuple[HotKey, ...], gap: int) -> bytes:
    """The stretches of times in which neighbours are at most `gap` apart, of the rows near the beginning of a hot key's
    cells; encoded.

    All rows of a key from the start of a cell to some later time are among them. So two rows are neighbours if no
    other row is between them.
    """
    slices, times = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for hashed, time, _ in rows.key_rows():
        for key in hot:
            of_key = time[hashed == key.hashed]
            of_key = of_key[(of_key >= key.low + key.length) & (of_key <= key.top)]
            early = of_key[(of_key - key.low) % key.length < key.beginning]
            slices.append(key.number * SLICES + key.cell(early))
            times.append(early)
    number, time = np.concatenate(slices), np.concatenate(times)
    order = np.lexsort((time, number))
    number, time = number[order], time[order]
    begins = np.ones(time.size, np.bool_)
    begins[1:] = (np.diff(number) != 0) | (np.diff(time) > gap)
    first = np.flatnonzero(begins)
    last = np.append(first[1:], time.size)[: first.size] - 1
    return encode(pa.table({"slice": number[first], "low": time[first], "high": time[last]}))
