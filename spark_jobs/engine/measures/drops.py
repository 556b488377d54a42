"""Measures of drops, from the chunks of their rows: late rows, the greatest lateness, and missing values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from spark_jobs.engine.calendar.drops import Drops
from spark_jobs.engine.columns.lists import Lists, lengths
from spark_jobs.engine.columns.plain import Ints, numbers

Key = tuple[int, int]
"""The numbers of a landing and of a drop."""


@dataclass
class DropChange:
    """The change that a landing made to a drop, in rows come less gone.

    `late_rows` counts the rows with an event time before the drop, `nulls` the rows without a value, per column.
    `late_by_max` is the time from the least event time of the rows that came to the start of the drop, in
    microseconds; 0 if no row is late."""

    late_rows: int = 0
    late_by_max: int = 0
    nulls: dict[str, int] = field(default_factory=dict)

    def add(self, other: DropChange) -> None:
        """Add the change that another part of the landing made to the drop."""
        self.late_rows += other.late_rows
        self.late_by_max = max(self.late_by_max, other.late_by_max)
        self.nulls = {
            name: self.nulls.get(name, 0) + other.nulls.get(name, 0) for name in {**self.nulls, **other.nulls}
        }


def drop_changes(chunks: pa.Table, columns: Sequence[str], drops: Drops) -> dict[Key, DropChange]:
    """The change of each drop by each landing, by (landing, drop); each chunk is of one landing and one drop.

    Args:
        chunks: rows of a table of chunks.
        columns: names of the lists `c_<column>` whose missing values are counted; a missing list lacks all values.
        drops: the drops of the source.
    """
    drop, landing, diff = (numbers(chunks[name]) for name in ("seq_no", "landing", "diff"))
    times, lo_us = Lists.of(chunks["event_times"]), drops.starts(numbers(chunks["seq_no"]))
    late = times.count(times.given & (times.values < lo_us[times.owners])) * diff
    least, _, timed = times.bounds()
    late_by = np.where(timed & (diff > 0), np.maximum(lo_us - least, 0), 0)
    counted = numbers(chunks["rows"])
    nulls = {name: _nulls(chunks[f"c_{name}"], counted) * diff for name in columns}
    changes: dict[Key, DropChange] = {}
    keys, owner = np.unique(np.stack([landing, drop]), axis=1, return_inverse=True)
    owner = owner.reshape(-1)
    for place, key in enumerate(keys.T.tolist()):
        of_key = owner == place
        of_columns = {name: int(of_chunks[of_key].sum()) for name, of_chunks in nulls.items()}
        changes[key[0], key[1]] = DropChange(int(late[of_key].sum()), int(late_by[of_key].max()), of_columns)
    return changes


def _nulls(column: pa.ChunkedArray, counted: Ints) -> Ints:
    """Per chunk, the number of its rows without a value."""
    lists = column.combine_chunks()
    sizes = lengths(column)
    missing = lists.flatten().is_null().to_numpy(zero_copy_only=False)
    before = np.concatenate(([0], np.cumsum(missing)))
    ends = np.cumsum(sizes)
    without = before[ends] - before[ends - sizes]
    return np.where(lists.is_valid().to_numpy(zero_copy_only=False), without, counted)
