"""Instants as a source's files write them, so that landing reads back exactly the same instant."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

from spark_jobs.engine.records import DAY_US, EPOCH_POWERS, READ, landed_instant, read_pattern
from spark_jobs.sources.columns import EPOCH_FORMATS, DeclaredColumn
from spark_jobs.storage.descriptions.times import instant

STEPS_US = (1, 1_000, 1_000_000, 60_000_000, 3_600_000_000, DAY_US)
"""The smallest distances in microseconds between times that a format distinguishes, the smallest first."""


def written_time(column: DeclaredColumn, time_us: int) -> datetime | int | str | None:
    """The instant as a column of times writes it in the first of its formats: a datetime for `iso`, else a number or a
    text. None if the format can't express exactly this instant: it has no seconds, or the zone's clock shows the time
    twice."""
    form = column.formats[0]
    if form == "iso" and column.type == "timestamp":
        return instant(time_us)
    if form in EPOCH_FORMATS:
        power = EPOCH_POWERS[form]
        number = time_us * 10**-power if power < 0 else time_us // 10**power
        back = number // 10**-power if power < 0 else number * 10**power
        return number if _instant_of(column, back, READ) == time_us else None
    pattern = "%Y-%m-%d" if form == "iso" else form
    text = instant(time_us).astimezone(ZoneInfo(column.timezone)).strftime(pattern)
    return text if _instant_of(column, *read_pattern(text, pattern)) == time_us else None


def _instant_of(column: DeclaredColumn, time_us: int, how: int) -> int | None:
    """The instant that landing makes of a time that was read as `how`; None if landing refuses the time."""
    return landed_instant(time_us, how, zone=column.timezone, dst=column.dst, is_date=column.type == "date")
