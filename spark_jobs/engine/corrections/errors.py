"""Refusals of the bucket chain. `code` and facts are part of the API."""

from __future__ import annotations

from spark_jobs.errors import TidemarkError


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
    """A time is below every bucket that is left. Fact: `time`, the first such time."""

    code = "no_bucket"

    def __init__(self, time: int, lower: int | None) -> None:
        super().__init__(
            expected="a bucket that covers the time" if lower is None else f"times at or beyond the lower {lower}",
            found=f"time {time}" + (" and no bucket at all" if lower is None else ""),
            consequence="nothing was inserted",
            next_step="keep updates below the lower outside of the bucket chain",
            time=time,
        )
