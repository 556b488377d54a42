"""Refusals of the correction buffer and its bucket chain. `code` and facts are part of the API."""

from __future__ import annotations

from spark_jobs.errors import ParameterError, TidemarkError
from spark_jobs.model import Frontier


class SinceRegression(TidemarkError):
    """`advance_since` was asked to move since back. Facts: `since` (now) and `asked`, both frontiers as lists."""

    code = "since_regression"

    def __init__(self, since: Frontier, asked: Frontier) -> None:
        super().__init__(
            expected=f"a frontier at or beyond since {since.to_json()}",
            found=str(asked.to_json()),
            next_step="advance since only to the upper of what was written",
            since=since.to_json(),
            asked=asked.to_json(),
        )


class MinBitsTooLarge(TidemarkError):
    """The least bucket width is wider than the whole time domain. Fact: `min_bits`."""

    code = "min_bits_too_large"

    def __init__(self, min_bits: int, domain_bits: int) -> None:
        super().__init__(
            expected=f"min_bits <= domain_bits = {domain_bits}",
            found=f"min_bits = {min_bits}",
            consequence="no bucket chain was made",
            next_step="choose a smaller min_bits or a wider domain",
            min_bits=min_bits,
        )


class NoBucket(TidemarkError):
    """A time lies below every bucket that is left. Fact: `time`, the first such time."""

    code = "no_bucket"

    def __init__(self, time: int, lower: int | None) -> None:
        super().__init__(
            expected="a bucket that covers the time" if lower is None else f"times at or beyond the lower {lower}",
            found=f"time {time}" + (" and no bucket at all" if lower is None else ""),
            consequence="nothing was inserted",
            next_step="keep updates below the lower outside of the bucket chain",
            time=time,
        )


class TimeOutOfRange(ParameterError):
    """A time is no integer of 0 .. 2^64 - 1."""

    code = "time_out_of_range"


class DiffOverflow(ParameterError):
    """The diffs of one row could add up beyond 64 bits. Fact: `bound`, the magnitude that they could add up to."""

    code = "diff_overflow"

    def __init__(self, bound: int) -> None:
        super().__init__(
            expected="diffs of one row that add up to a signed 64-bit integer, whichever of its times are read",
            found=f"a sum of magnitude {bound}",
            consequence="nothing was inserted",
            next_step="consolidate first, or split the row's diff over several rows",
            bound=bound,
        )


class MalformedUpdates(ParameterError):
    """The columns of a batch of updates are not what they must be (lengths, types, nulls)."""

    code = "malformed_updates"
