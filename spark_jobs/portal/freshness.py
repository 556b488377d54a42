"""The freshness of a source: the drop that comes next, when it is due, and how many drops are behind the schedule."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from spark_jobs.sources import Source
from spark_jobs.storage.descriptions.times import instant, micros


@dataclass(frozen=True)
class SourceFreshness:
    """The freshness of a source at a time.

    `next_drop`: the label of the first drop that is not published, and `ends` its end; None if nothing is published.
    `due`: the end with the deadline of the source file; None for a source without a deadline or a schedule.
    `behind`: the number of drops that have ended and are not published, with the one that is filling up.
    """

    next_drop: str | None = None
    ends: datetime | None = None
    due: datetime | None = None
    is_late: bool = False
    behind: int = 0


def freshness_of(source: Source, reached: datetime | None, now: datetime) -> SourceFreshness:
    """The freshness at `now` of a source that is published up to `reached` (None: nothing is published)."""
    if reached is None:
        return SourceFreshness()
    number = source.drops.number_at(micros(reached))
    label, ends = source.drops.label(number), instant(source.drops.interval(number)[1])
    if source.dag.schedule != "every":
        return SourceFreshness(label, ends)
    deadline_us = source.dag.deadline_us
    due = None if deadline_us is None else ends + timedelta(microseconds=deadline_us)
    behind = max(source.drops.number_at(micros(now)) - number, 0)
    return SourceFreshness(label, ends, due, due is not None and now > due, behind)
