"""What is wrong with updates of a trace: each judged by itself, and such as are there twice."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..plain import Flags, among, holds, numbers, present, repeated
from .sums import Adds

Interval = tuple[int, int]
"""First and last time that an update of a batch may have."""

_ALIKE = ("batch", "row_id", "time", "sign", "below_horizon")


def judge_updates(
    updates: pa.Table, *, intervals: Mapping[str, Interval], sealed_us: int, merged: Sequence[str]
) -> Adds:
    """Per update that an attempt wrote what it adds to the measures of the trace.

    Args:
        updates: the columns batch, time, diff, row_id, entity, event_time, in the order in which a file has them.
        intervals: of the batches that the attempt may have written to.
        sealed_us: the seal before the attempt: nothing may be added below it.
        merged: the batches in which older ones were merged, whose updates are below it.
    """
    time, diff, event_time = (numbers(updates[column]) for column in ("time", "diff", "event_time"))
    has_time, has_event_time = present(updates["time"]), present(updates["event_time"])
    # the last place is that of batches that are none of these
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
    """Which updates belong before the one that they follow, by entity, then event time, then row id, if both are of one
    batch."""
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
    """What updates of batches add that others have taken the place of."""
    return {"updates_added": -numbers(updates["diff"])}


def repeated_updates(tables: Iterable[pa.Table]) -> pa.Table:
    """The updates of one row, time and sign of which a batch holds several: what tells them, and how many `times`.

    Args:
        tables: the columns batch, row_id, time, diff, below_horizon, some updates at a time.
    """
    # nearly always there is one of each row, and no more has to be held
    met_again = pa.array(repeated(np.concatenate([numbers(table["row_id"]) for table in tables])))
    alike = pa.concat_tables(
        table.filter(pc.is_in(pc.fill_null(table["row_id"], 0), value_set=met_again)) for table in tables
    )
    sign = pa.array(np.sign(numbers(alike["diff"])), mask=~present(alike["diff"]))
    alike = alike.append_column("sign", sign)
    counted = alike.group_by(list(_ALIKE)).aggregate([([], "count_all")]).rename_columns([*_ALIKE, "times"])
    return counted.filter(pc.greater(counted["times"], 1))


def judge_repeats(repeats: pa.Table) -> Adds:
    """One for each update that is there several times."""
    return {"repeated_updates": np.ones(repeats.num_rows, np.bool_)}
