"""Instants as a source's files write them, so that landing reads back exactly the same instant."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

from spark_jobs.kernels.records import times
from spark_jobs.sources.columns import EPOCH_FORMATS, Column
from spark_jobs.storage.descriptions.times import instant

STEPS_US = (1, 1_000, 1_000_000, 60_000_000, 3_600_000_000, times.DAY_US)
"""Distances in microseconds between two times that some format can tell apart, the smallest first."""


def written_time(column: Column, time_us: int) -> datetime | int | str | None:
    """The instant as a column of times writes it in the first of its formats: a datetime for `iso`, else a number or a
    text. None if the format can't express exactly this instant: it has no seconds, or the zone's clock shows the time
    twice."""
    form = column.formats[0]
    if form == "iso" and column.type == "timestamp":
        return instant(time_us)
    if form in EPOCH_FORMATS:
        power = times.EPOCH_POWERS[form]
        number = time_us * 10**-power if power < 0 else time_us // 10**power
        back = number // 10**-power if power < 0 else number * 10**power
        return number if _instant_of(column, back, times.READ) == time_us else None
    pattern = "%Y-%m-%d" if form == "iso" else form
    text = instant(time_us).astimezone(ZoneInfo(column.timezone)).strftime(pattern)
    return text if _instant_of(column, *times.read_pattern(text, pattern)) == time_us else None


def _instant_of(column: Column, time_us: int, how: int) -> int | None:
    """The instant that landing makes of a time that was read as `how`; None if landing refuses the time."""
    if how == times.BAD:
        return None
    if column.type == "date":
        time_us, how = time_us - time_us % times.DAY_US, times.LOCAL
    if how == times.READ:
        return time_us
    earliest, latest, change = times.local_to_utc(time_us, column.timezone)
    refused = column.dst == "refuse" and change in (times.AMBIGUOUS, times.SKIPPED)
    return None if refused else latest if column.dst == "latest" else earliest
