"""Updates of a source on their way into batches: the times at which they become visible, the horizon, consolidation,
and the order of a batch. Times are in microseconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.engine.calendar.drops import Drops
from spark_jobs.engine.columns.plain import Flags, Ints, numbers, present, repeated_values


@dataclass(frozen=True)
class Horizon:
    """The horizon: a landed row with an earlier event time changes nothing that is published.

    Each row has the horizon that it would have if the run's drops were run one after the other. So the result does not
    depend on which drops a run covers.

    Args:
        at_start: the horizon at the start of the run.
        kept: the distance that retention keeps before the start of the drop in which a row becomes visible; None:
            retention does not move the horizon.
        drops: the drops of the source.
        first: the start of the run's first drop.
    """

    at_start: int
    kept: int | None
    drops: Drops
    first: int

    def rows_below(self, event_times: Ints, times: Ints) -> Flags:
        """Flags of the rows below the horizon, by their event times and the times at which they become visible."""
        horizon = np.full(times.size, self.at_start)
        if self.kept is not None:
            opens = self.drops.starts(self.drops.numbers_at(times))
            horizon = np.where(opens > self.first, np.maximum(horizon, opens - self.kept), horizon)
        return event_times < horizon


def visible_times(event_times: Ints, drop_starts: Ints, seal: int, arrivals: pa.ChunkedArray | None = None) -> Ints:
    """The times at which landed rows become visible: the greatest of a row's event time, its arrival (if it has none,
    its drop's start) and the seal when it landed."""
    came = drop_starts if arrivals is None else np.where(present(arrivals), numbers(arrivals), drop_starts)
    return np.maximum(np.maximum(event_times, came), seal)


def consolidate_rows(updates: pa.Table) -> pa.Table:
    """The updates with the diffs of equal ones summed, without those that cancel.

    Updates are equal if all their columns except `diff` are: numbers bit for bit, maps in any order of their keys. Only
    updates with the same `row_id` can be equal."""
    row_ids = numbers(updates["row_id"])
    shared = np.isin(row_ids, repeated_values(row_ids))
    if not shared.any():
        return updates.filter(pc.not_equal(updates["diff"], 0))
    several = updates.filter(pa.array(shared))
    columns = {name: _comparable(several[name]) for name in several.column_names if name != "diff"}
    keys = pa.table({**columns, "diff": several["diff"], "place": pa.array(np.arange(several.num_rows))})
    summed = keys.group_by(list(columns)).aggregate([("diff", "sum"), ("place", "min")])
    summed = summed.filter(pc.not_equal(summed["diff_sum"], 0))
    left = several.take(summed["place_min"])
    place = left.schema.get_field_index("diff")
    left = left.set_column(place, left.schema.field("diff"), summed["diff_sum"].cast(left.schema.field("diff").type))
    alone = updates.filter(pa.array(~shared))
    return pa.concat_tables([alone.filter(pc.not_equal(alone["diff"], 0)), left])


def _comparable(column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    """Values that Arrow can group by, equal where the column's values are: bits for floats, texts for maps."""
    if pa.types.is_floating(column.type):
        values = column.combine_chunks()
        bits = values.fill_null(0.0).to_numpy(zero_copy_only=False).astype(np.float64)
        bits = np.where(np.isnan(bits), np.nan, bits).view(np.int64)
        return pa.array(bits, mask=values.is_null().to_numpy(zero_copy_only=False))
    if pa.types.is_map(column.type):
        return pa.array([None if pairs is None else repr(sorted(pairs)) for pairs in column.to_pylist()], pa.string())
    return column


def sort_numbers(updates: pa.Table, numbers_of: Ints, by: Sequence[str]) -> Ints:
    """The numbers `numbers_of` of updates, in the ascending order of the columns `by`, of which the first is a text.

    It copies the columns that decide the order, and no other: rows may be wide."""
    first = updates[by[0]].take(pa.array(numbers_of)).combine_chunks().dictionary_encode()
    rank = np.empty(len(first.dictionary), np.int64)
    rank[pc.sort_indices(first.dictionary).to_numpy()] = np.arange(rank.size)
    codes = rank[first.indices.to_numpy()]
    plain = {name: numbers(updates[name])[numbers_of] for name in ("row_id", "event_time")}
    order = np.lexsort([*plain.values(), codes])
    if repeated_values(plain["row_id"][order]).size:
        # rows that were retracted, or landed again with other values: the other columns decide their order
        keys = {"code": pa.array(codes), **{name: updates[name].take(pa.array(numbers_of)) for name in by[1:]}}
        order = pc.sort_indices(pa.table(keys), sort_keys=[(name, "ascending") for name in keys]).to_numpy()
    return numbers_of[order]
