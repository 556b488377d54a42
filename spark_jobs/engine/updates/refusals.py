"""Errors that arrangements and correction buffers share: malformed updates, times out of range, sums of diffs beyond 64
bits, and a since that would go back."""

from __future__ import annotations

from spark_jobs.errors import ParameterError, TidemarkError
from spark_jobs.model import Frontier


class MalformedUpdates(ParameterError):
    """Updates do not fit the collection: columns are missing, of another type or length, or have nulls. Fact:
    `column`, if the error is about one column."""

    code = "malformed_updates"

    def __init__(self, expected: str, found: str, next_step: str, *, column: str | None = None) -> None:
        facts = {} if column is None else {"column": column}
        consequence = "the whole write was refused"
        super().__init__(expected=expected, found=found, consequence=consequence, next_step=next_step, **facts)


class TimeOutOfRange(ParameterError):
    """A frontier or a time is not a whole number in the range of the collection's times. Facts: `time`, `greatest`."""

    code = "time_out_of_range"

    def __init__(self, time: object, greatest: int) -> None:
        super().__init__(
            expected=f"a whole number of 0 to {greatest}",
            found=repr(time),
            next_step="count times from an origin before all; the frontier beyond all times is []",
            time=time,
            greatest=greatest,
        )


class DiffOverflow(ParameterError):
    """The diffs of one row could add up to a number beyond 64 bits. Fact: `bound`, the magnitude that they could add up
    to, if it is known."""

    code = "diff_overflow"

    def __init__(self, bound: int | None = None) -> None:
        super().__init__(
            expected="diffs of one row that add up to a signed 64-bit integer, whichever of its times are read",
            found="a sum beyond it" if bound is None else f"a sum of magnitude {bound}",
            consequence="nothing was added",
            next_step="look for a writer that repeats its diffs; or split the row's diff over several rows",
            **({} if bound is None else {"bound": bound}),
        )


class SinceRegression(TidemarkError):
    """A since before the present one was asked for. Since only advances: compacted times can't be told apart again.
    Facts: `since` (now) and `asked`, both frontiers as lists."""

    code = "since_regression"

    def __init__(self, since: Frontier, asked: Frontier) -> None:
        super().__init__(
            expected=f"a since at or beyond {since.to_json()}",
            found=str(asked.to_json()),
            next_step="ask for the present since or a later one",
            since=since.to_json(),
            asked=asked.to_json(),
        )
