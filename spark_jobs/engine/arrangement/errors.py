"""The refusals of an arrangement: one class per rule. Their codes and facts are part of the API.

Facts are JSON values: a frontier is `[t]` or `[]`, a range is `[lo, hi]`. So `as_json()` returns the form that case
files and `--json` output show. Every refusal leaves the arrangement as it was.
"""

from __future__ import annotations

from collections.abc import Sequence

from spark_jobs.engine.updates.refusals import SinceRegression
from spark_jobs.errors import TidemarkError
from spark_jobs.model import Frontier

MAKE_AGAIN = "leave the batch out, and make it again from the batches that it was made of"
"""The next step for a batch whose data can't be right."""


def _text_of(frontier: Frontier) -> str:
    return "[]" if frontier.time is None else f"[{frontier.time}]"


class ArrangementError(TidemarkError):
    """A rule of the arrangement does not allow the operation, or a batch or its metadata breaks an invariant."""

    code = "arrangement"


class TimeBelowSeal(ArrangementError):
    """A written update is below the seal (the check of the front door); the whole write is refused."""

    code = "time_below_seal"

    def __init__(self, time: int, seal: Frontier) -> None:
        super().__init__(
            expected=f"every update at or beyond the seal {_text_of(seal)}",
            found=f"an update at {time}",
            consequence="the whole write was refused",
            next_step="forward late updates to the seal before writing them",
            time=time,
            seal=seal.to_json(),
        )


class SeqnoMismatch(ArrangementError):
    """The range of an append does not start at the end of the last one: an append was lost, repeated or is foreign."""

    code = "seqno_mismatch"

    def __init__(self, expected: int, got: int) -> None:
        super().__init__(
            expected=f"a sequence range that starts at {expected}",
            found=f"one that starts at {got}",
            next_step="read `seqno_upper` again; if another writer appended, rebase on its state",
        )
        # the fact `expected` has the name of the base class's sentence part, so it can't go through its keywords
        self.facts = {"expected": expected, "got": got}
        for name, value in self.facts.items():
            setattr(self, name, value)


class TimeBelowTraceUpper(ArrangementError):
    """An appended update is of an interval that is in the trace already, so it could never be moved there."""

    code = "time_below_trace_upper"

    def __init__(self, time: int, trace_upper: Frontier) -> None:
        super().__init__(
            expected=f"every update at or beyond the trace's upper {_text_of(trace_upper)}",
            found=f"an update at {time}",
            consequence="the whole batch was refused",
            next_step="forward late updates to the seal before appending them",
            time=time,
            trace_upper=trace_upper.to_json(),
        )


class EmptyBatch(ArrangementError):
    """A batch without updates has no bounds and may not be stored."""

    code = "empty_batch"

    def __init__(self) -> None:
        super().__init__(expected="at least one update", found="none", next_step="skip the append")


class EmptySeqnoRange(ArrangementError):
    """A sequence range must have at least one number: its end must be beyond its start."""

    code = "empty_seqno_range"

    def __init__(self, seqno: tuple[int, int]) -> None:
        super().__init__(
            expected="a sequence range whose end is beyond its start",
            found=f"[{seqno[0]}, {seqno[1]})",
            next_step="give each batch at least one sequence number",
            range=list(seqno),
        )


class SealRegression(ArrangementError):
    """A seal is before the present one; sealing again at the same time is accepted."""

    code = "seal_regression"

    def __init__(self, seal: Frontier, ts: int) -> None:
        super().__init__(
            expected=f"a time at or beyond the seal {_text_of(seal)}",
            found=str(ts),
            next_step="seal at or beyond the present seal",
            seal=seal.to_json(),
            ts=ts,
        )


class MergeSinceRegression(SinceRegression):
    """The since of a merge is before that of an input, which has lost the detail already. Facts: `since`,
    `batch_since`."""

    def __init__(self, since: Frontier, batch_since: Frontier) -> None:
        TidemarkError.__init__(
            self,
            expected=f"a merge at or beyond its input's since {_text_of(batch_since)}",
            found=f"one at {_text_of(since)}",
            next_step="merge at the arrangement's present since",
            since=since.to_json(),
            batch_since=batch_since.to_json(),
        )


class SnapshotUpperBelowLower(ArrangementError):
    """An interval to read ends before it starts."""

    code = "snapshot_upper_below_lower"

    def __init__(self, lo: Frontier, hi: Frontier) -> None:
        super().__init__(
            expected=f"an upper bound at or beyond {_text_of(lo)}",
            found=_text_of(hi),
            consequence="nothing was read",
            next_step="swap the bounds",
            lo=lo.to_json(),
            hi=hi.to_json(),
        )


class InvalidBatchBounds(ArrangementError):
    """The seal is before the upper of the trace: it was rolled back after its updates had been drained."""

    code = "invalid_batch_bounds"

    def __init__(self, lower: Frontier, upper: Frontier) -> None:
        super().__init__(
            expected=f"a seal at or beyond the trace's upper {_text_of(lower)}",
            found=_text_of(upper),
            next_step="seal again at or beyond the trace's upper",
            lower=lower.to_json(),
            upper=upper.to_json(),
        )


class NonConsecutive(ArrangementError):
    """The two batches of a merge do not have adjoining intervals."""

    code = "non_consecutive"

    def __init__(self, upper: Frontier, lower: Frontier) -> None:
        super().__init__(
            expected=f"a later batch that starts at {_text_of(upper)}",
            found=f"one that starts at {_text_of(lower)}",
            next_step="merge neighbours of the trace, earlier first",
            upper=upper.to_json(),
            lower=lower.to_json(),
        )


class LevelMismatch(ArrangementError):
    """The two batches of a merge differ in their level; merges within a level keep the work per update logarithmic."""

    code = "level_mismatch"

    def __init__(self, levels: tuple[int, int]) -> None:
        super().__init__(
            expected="two batches of one level",
            found=f"levels {levels[0]} and {levels[1]}",
            next_step="merge what `compaction_request` names",
            levels=list(levels),
        )


class SeqnoOverlap(ArrangementError):
    """Two unsealed batches have the same sequence number."""

    code = "seqno_overlap"

    def __init__(self, seqno: tuple[int, int], previous_end: int) -> None:
        super().__init__(
            expected=f"a sequence range that starts at or beyond {previous_end}",
            found=f"[{seqno[0]}, {seqno[1]})",
            next_step="the metadata is damaged: restore the last good state",
            range=list(seqno),
        )


class BatchSinceBeyondSince(ArrangementError):
    """The since of a trace batch is beyond that of the arrangement: it was compacted too far."""

    code = "batch_since_beyond_since"

    def __init__(self, lower: Frontier, upper: Frontier, *, batch_since: Frontier, since: Frontier) -> None:
        super().__init__(
            expected=f"a batch since at or before {_text_of(since)}",
            found=f"{_text_of(batch_since)} for the batch [{_text_of(lower)}, {_text_of(upper)})",
            next_step="the metadata is damaged: restore the last good state",
            batch=[lower.to_json(), upper.to_json()],
        )


class BatchUpperBeyondSeal(ArrangementError):
    """The upper of a trace batch is beyond the seal, where updates may still arrive."""

    code = "batch_upper_beyond_seal"

    def __init__(self, lower: Frontier, upper: Frontier, *, seal: Frontier) -> None:
        super().__init__(
            expected=f"a batch that ends at or before the seal {_text_of(seal)}",
            found=f"[{_text_of(lower)}, {_text_of(upper)})",
            next_step="seal again at or beyond the batch's upper",
            batch=[lower.to_json(), upper.to_json()],
        )


class EmptyInterval(ArrangementError):
    """The interval of a trace batch has no time."""

    code = "empty_interval"

    def __init__(self, lower: Frontier, upper: Frontier) -> None:
        super().__init__(
            expected=f"an upper beyond {_text_of(lower)}",
            found=_text_of(upper),
            next_step="leave out batches of no interval",
            lower=lower.to_json(),
            upper=upper.to_json(),
        )


class TraceNotContiguous(ArrangementError):
    """A trace batch does not start at the end of the one before it: an interval is missing, or covered twice."""

    code = "trace_not_contiguous"

    def __init__(self, lower: Frontier, previous_upper: Frontier) -> None:
        super().__init__(
            expected=f"a batch that starts at {_text_of(previous_upper)}",
            found=f"one that starts at {_text_of(lower)}",
            next_step="the metadata is damaged: restore the last good state",
            lower=lower.to_json(),
        )


class LevelIncreases(ArrangementError):
    """A trace batch has a higher level than an older one; then reads and merges lose their logarithmic bounds."""

    code = "level_increases"

    def __init__(self, levels: tuple[int, int]) -> None:
        super().__init__(
            expected=f"a level of at most {levels[0]}",
            found=str(levels[1]),
            next_step="the metadata is damaged: restore the last good state",
            levels=list(levels),
        )


class TimeBelowLower(ArrangementError):
    """A trace batch has an update from before its interval."""

    code = "time_below_lower"

    def __init__(self, time: int, lower: Frontier) -> None:
        expected = f"times at or beyond {_text_of(lower)}"
        super().__init__(expected=expected, found=str(time), next_step=MAKE_AGAIN, time=time)


class TimeAtOrBeyondUpper(ArrangementError):
    """A trace batch has an update from after its interval."""

    code = "time_at_or_beyond_upper"

    def __init__(self, time: int, upper: Frontier) -> None:
        expected = f"times before {_text_of(upper)}"
        super().__init__(expected=expected, found=str(time), next_step=MAKE_AGAIN, time=time)


class TimeBeyondSince(ArrangementError):
    """A batch that was compacted beyond its interval has an update after its since, which no forwarding produces."""

    code = "time_beyond_since"

    def __init__(self, time: int, since: Frontier) -> None:
        expected = f"times at or before {_text_of(since)}"
        super().__init__(expected=expected, found=str(time), next_step=MAKE_AGAIN, time=time)


class _OrderError(ArrangementError):
    rule = ""

    def __init__(self, at: Sequence[object]) -> None:
        found = f"an offender at {list(at)}"
        super().__init__(expected=self.rule, found=found, next_step=MAKE_AGAIN, at=list(at))


class Unconsolidated(_OrderError):
    """Two updates of a trace batch have the same data and time."""

    code = "unconsolidated"
    rule = "one update for each data and time"


class Unsorted(_OrderError):
    """An update of a trace batch comes before its predecessor in the order of data, then time."""

    code = "unsorted"
    rule = "updates in the order of data, then time"


class ZeroDiff(_OrderError):
    """An update of a trace batch has the diff 0."""

    code = "zero_diff"
    rule = "diffs other than 0"


class ReadBelowSince(ArrangementError):
    """A definite read asks for a time below since, whose detail may have been compacted away."""

    code = "read_below_since"

    def __init__(self, at: int, since: Frontier) -> None:
        super().__init__(
            expected=f"a time at or beyond since {_text_of(since)}",
            found=str(at),
            consequence="nothing was read",
            next_step="read at since or later; a lease taken earlier would have held since back",
            at=at,
            since=since.to_json(),
        )


class ReadNotSealed(ArrangementError):
    """A definite read asks for a time at or beyond the seal, at which updates may still arrive."""

    code = "read_not_sealed"

    def __init__(self, at: int, seal: Frontier) -> None:
        super().__init__(
            expected=f"a time before the seal {_text_of(seal)}",
            found=str(at),
            consequence="nothing was read",
            next_step="read before the seal, or wait for a later seal",
            at=at,
            seal=seal.to_json(),
        )
