"""Faults of the updates of a trace: those of an update by itself, and updates that occur several times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.engine.columns.plain import Flags, among, holds, numbers, present, repeated_values
from spark_jobs.engine.measures.sums import Adds

Interval = tuple[int, int]
"""The first and the last time that an update of a batch may have."""

_ALIKE = ("batch", "row_id", "time", "sign", "below_horizon")


def judge_updates(
    updates: pa.Table, *, intervals: Mapping[str, Interval], sealed_us: int, merged: Sequence[str]
) -> Adds:
    """The amount that each update of an attempt adds to the measures of the trace.

    Args:
        updates: the columns batch, time, diff, row_id, entity, event_time, in the order in which a file has them.
        intervals: the intervals of the batches that the attempt may have written to, by batch.
        sealed_us: the seal before the attempt, in microseconds: no update may be added below it.
        merged: the batches that are merges of older ones; their updates may be below the seal.
    """
    time, diff, event_time = (numbers(updates[column]) for column in ("time", "diff", "event_time"))
    has_time, has_event_time = present(updates["time"]), present(updates["event_time"])
    # the last place is for all batches without an interval
    names = list(intervals)
    at = pc.fill_null(pc.index_in(updates["batch"], pa.array(names, pa.string())), len(names)).combine_chunks()
    place = at.to_numpy(zero_copy_only=False)
    first = np.array([*(lo for lo, _ in intervals.values()), 0], np.int64)[place]
    last = np.array([*(hi for _, hi in intervals.values()), -1], np.int64)[place]
    return {
        "updates_below_previous_seal": has_time & (time < sealed_us) & ~among(updates["batch"], list(merged)),
        "updates_outside_batch": ~(has_time & (time >= first) & (time <= last) & (place < len(names))),
        "updates_without_diff": diff == 0,
        "updates_without_identity": ~(has_time & has_event_time & present(updates["row_id"]))
        | ~present(updates["entity"]),
        "visible_before_event": has_time & has_event_time & (time < event_time),
        "updates_out_of_order": out_of_order(updates),
        "updates_added": diff,
    }


def out_of_order(updates: pa.Table) -> Flags:
    """Flags of the updates that belong before their predecessor, by entity, then event time, then row id.

    Only updates that are of the same batch as their predecessor count."""
    if updates.num_rows < 2:
        return np.zeros(updates.num_rows, np.bool_)
    before, after = updates.slice(0, updates.num_rows - 1), updates.slice(1)
    same_batch = holds(pc.equal(before["batch"], after["batch"]))
    falls, same = (holds(compare(after["entity"], before["entity"])) for compare in (pc.less, pc.equal))
    for name in ("event_time", "row_id"):
        values = numbers(updates[name])
        falls |= same & (values[1:] < values[:-1])
        same &= values[1:] == values[:-1]
    return np.concatenate([[False], same_batch & falls])


def taken_from(updates: pa.Table) -> Adds:
    """The amounts that the updates of replaced batches add: their diffs, negated."""
    return {"updates_added": -numbers(updates["diff"])}


def repeated_updates(tables: Iterable[pa.Table]) -> pa.Table:
    """The updates that a batch has several times, with the same row, time and sign; `times` is their number.

    Args:
        tables: the columns batch, row_id, time, diff, below_horizon, some updates at a time.
    """
    # nearly every row id occurs once: only the updates of the other ids are kept in memory
    met_again = pa.array(repeated_values(np.concatenate([numbers(table["row_id"]) for table in tables])))
    alike = pa.concat_tables(
        table.filter(pc.is_in(pc.fill_null(table["row_id"], 0), value_set=met_again)) for table in tables
    )
    sign = pa.array(np.sign(numbers(alike["diff"])), mask=~present(alike["diff"]))
    alike = alike.append_column("sign", sign)
    counted = alike.group_by(list(_ALIKE)).aggregate([([], "count_all")]).rename_columns([*_ALIKE, "times"])
    return counted.filter(pc.greater(counted["times"], 1))


def judge_repeated_updates(repeats: pa.Table) -> Adds:
    """One for each update that occurs several times."""
    return {"repeated_updates": np.ones(repeats.num_rows, np.bool_)}
