"""The invariants of an arrangement as checks over its metadata and over the data of a batch.

Each check raises at the first offender. `check_meta` is O(batches); the trace gate uses it. `check_trace_batch` reads
all updates of a batch; `Arrangement.check` and `tidemark trace` use it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from spark_jobs.engine.arrangement.batches import Description, SeqnoRange, TraceBatch
from spark_jobs.engine.arrangement.errors import (
    BatchSinceBeyondSince,
    BatchUpperBeyondSeal,
    EmptyBatch,
    EmptyInterval,
    EmptySeqnoRange,
    LevelIncreases,
    SeqnoOverlap,
    TimeAtOrBeyondUpper,
    TimeBelowLower,
    TimeBeyondSince,
    TraceNotContiguous,
    Unconsolidated,
    Unsorted,
    ZeroDiff,
)
from spark_jobs.engine.arrangement.state import ArrangementState
from spark_jobs.engine.updates.consolidation import DIFF, TIME, data_columns, dense_ranks
from spark_jobs.model import Frontier


def check_state(state: ArrangementState) -> None:
    """Check a whole state's metadata; see `check_meta`."""
    check_meta(state.seal, state.since, state.trace, (batch.seqno for batch in state.unsealed))


def check_meta(seal: Frontier, since: Frontier, trace: Iterable[TraceBatch], unsealed: Iterable[SeqnoRange]) -> None:
    """Check the metadata's invariants.

    Raises, per sequence range in order: EmptySeqnoRange, SeqnoOverlap (gaps are fine); then per trace batch, oldest
    first: BatchSinceBeyondSince, BatchUpperBeyondSeal, EmptyInterval, TraceNotContiguous, LevelIncreases. Since may
    pass the seal.
    """
    previous_end = None
    for seqno in unsealed:
        check_seqno_range(seqno)
        if previous_end is not None and seqno[0] < previous_end:
            raise SeqnoOverlap(seqno, previous_end)
        previous_end = seqno[1]
    previous = None
    for batch in trace:
        if not batch.since <= since:
            raise BatchSinceBeyondSince(batch.lower, batch.upper, batch_since=batch.since, since=since)
        if not batch.upper <= seal:
            raise BatchUpperBeyondSeal(batch.lower, batch.upper, seal=seal)
        check_interval(batch.description)
        if previous is not None and batch.lower != previous.upper:
            raise TraceNotContiguous(batch.lower, previous.upper)
        if previous is not None and batch.level > previous.level:
            raise LevelIncreases((previous.level, batch.level))
        previous = batch


def check_seqno_range(seqno: SeqnoRange) -> None:
    """Refuse a range without a number (EmptySeqnoRange)."""
    if seqno[1] <= seqno[0]:
        raise EmptySeqnoRange(seqno)


def check_interval(description: Description) -> None:
    """Refuse an interval without a time (EmptyInterval)."""
    if description.upper <= description.lower:
        raise EmptyInterval(description.lower, description.upper)


def check_unsealed_batch(seqno: SeqnoRange, n_updates: int) -> None:
    """Check one unsealed batch. Raises EmptySeqnoRange, then EmptyBatch."""
    check_seqno_range(seqno)
    if n_updates <= 0:
        raise EmptyBatch


def check_trace_batch(description: Description, updates: pa.Table, *, by: str | None = None) -> None:
    """Check one trace batch's data, in stored order, against its description.

    Raises EmptyInterval, then for the first update that breaks a rule the first of: TimeBelowLower,
    TimeAtOrBeyondUpper (if since < upper) or TimeBeyondSince (if not), Unconsolidated, Unsorted (both against the
    update before it), ZeroDiff. A batch without updates is valid.

    Args:
        by: given for a batch, or a file of a batch, that is sorted by this column only. Then neither the order of
            equal values nor consolidation is checked.
    """
    check_interval(description)
    names = data_columns(updates.schema) if by is None else [by]
    rules = _broken_rules(description, updates, names, is_whole=by is None)
    offenders = [int(np.argmax(broken)) for broken in rules if broken.any()]
    if not offenders:
        return
    row = min(offenders)
    rule = next(i for i, broken in enumerate(rules) if broken[row])
    time = updates.column(TIME)[row].as_py()
    at = [*(updates.column(name)[row].as_py() for name in names), time]
    beyond = (
        TimeAtOrBeyondUpper(time, description.upper)
        if description.since < description.upper
        else TimeBeyondSince(time, description.since)
    )
    raise (TimeBelowLower(time, description.lower), beyond, Unconsolidated(at), Unsorted(at), ZeroDiff(at))[rule]


def _broken_rules(
    description: Description, updates: pa.Table, names: Sequence[str], *, is_whole: bool
) -> list[np.ndarray]:
    """One boolean column per rule of `check_trace_batch`, in the order in which the rules are checked.

    With `is_whole`, updates must be in the order of `names`, then time, and each must occur only once."""
    times = updates.column(TIME).to_numpy()
    lower, upper, since = description.lower.time, description.upper.time, description.since.time
    everything, nothing = np.ones(len(times), dtype=bool), np.zeros(len(times), dtype=bool)
    below = everything if lower is None else times < lower
    if description.since < description.upper:
        beyond = nothing if upper is None else times >= upper
    else:
        beyond = nothing if since is None else times > since
    equal, less = everything.copy(), nothing.copy()
    ranks = [dense_ranks(updates.column(name)) for name in names]
    equal[:1] = False
    for column in [*ranks, times] if is_whole else ranks:
        # a later column decides only where all columns before it are equal
        less[1:] |= equal[1:] & (column[1:] < column[:-1])
        equal[1:] &= column[1:] == column[:-1]
    return [below, beyond, equal if is_whole else nothing, less, updates.column(DIFF).to_numpy() == 0]
