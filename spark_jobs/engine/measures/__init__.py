"""The measures of the gates: the amount that each row, or each thing that several rows describe, adds to each measure.

A function takes an Arrow table and returns, per measure, the amount that each row adds. So the rows behind a sum can
be shown as well: an example of a fault is a row that adds to its measure. Times are timestamps in UTC, in microseconds.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spark_jobs.engine.measures.balance import Balance
    from spark_jobs.engine.measures.chains import (
        REFUSING,
        ends_of_chains,
        judge_ends,
        judge_segments,
        past_balance,
        refused_deltas,
        weigh_updates,
    )
    from spark_jobs.engine.measures.chunks import CHUNK, judge_chunks, judge_repeated_rows, repeated_row_ids
    from spark_jobs.engine.measures.drops import DropChange, Key, drop_changes
    from spark_jobs.engine.measures.histories import FAULTS, judge_history
    from spark_jobs.engine.measures.rates import BUSIEST, EntityCounts, busiest, hourly, rate_change
    from spark_jobs.engine.measures.states import (
        BALANCE,
        OVERFLOWN,
        OVERFLOWN_BEFORE,
        gained_by_rows,
        gained_by_states,
        judge_off_their_row,
        judge_states,
        off_their_row,
        overflown,
    )
    from spark_jobs.engine.measures.sums import Addends, Adds, both, nonzero_places, take_amounts, total
    from spark_jobs.engine.measures.survivors import BatchFacts, BatchNote, changed_batches, judge_changed_batches
    from spark_jobs.engine.measures.updates import (
        Interval,
        judge_repeated_updates,
        judge_updates,
        repeated_updates,
        taken_from,
    )
    from spark_jobs.engine.measures.versions import faulty_things, judge_versions
    from spark_jobs.engine.measures.windows import diffs, judge_windows
else:
    from spark_jobs.engine.faces import lazy_names

    __getattr__ = lazy_names(__name__)

__all__ = [
    "BALANCE",
    "BUSIEST",
    "CHUNK",
    "FAULTS",
    "OVERFLOWN",
    "OVERFLOWN_BEFORE",
    "REFUSING",
    "Addends",
    "Adds",
    "Balance",
    "BatchFacts",
    "BatchNote",
    "DropChange",
    "EntityCounts",
    "Interval",
    "Key",
    "both",
    "busiest",
    "changed_batches",
    "diffs",
    "drop_changes",
    "ends_of_chains",
    "faulty_things",
    "gained_by_rows",
    "gained_by_states",
    "hourly",
    "judge_changed_batches",
    "judge_chunks",
    "judge_ends",
    "judge_history",
    "judge_off_their_row",
    "judge_repeated_rows",
    "judge_repeated_updates",
    "judge_segments",
    "judge_states",
    "judge_updates",
    "judge_versions",
    "judge_windows",
    "nonzero_places",
    "off_their_row",
    "overflown",
    "past_balance",
    "rate_change",
    "refused_deltas",
    "repeated_row_ids",
    "repeated_updates",
    "take_amounts",
    "taken_from",
    "total",
    "weigh_updates",
]
