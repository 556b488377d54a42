"""The drops that a run of a source's DAG takes.

They follow from facts of the run that Airflow passes to the run's tasks, and also returns over its REST API.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spark_jobs.errors import ParameterError
from spark_jobs.sources.drops import Schedule
from spark_jobs.sources.quantities import instant_at

MANUAL = "manual"
"""The type of runs that somebody started."""
REJECTED = "rejected"
"""The key of the XCom of the first task of a run whose plan was not approved: nothing was done."""
FAILURE = "failure"
"""The key of the XCom of a task that failed: the error as text, its code first."""


def takes_whole_drops(params: Mapping[str, Any]) -> bool:
    """True if a run with these parameters lands all files of its drops.

    Other runs read one file, or read landed files again, or take them back.
    """
    return not any(params.get(name) for name in ("file", "retract", "replay"))


@dataclass(frozen=True, slots=True)
class DagRun:
    """The facts of a DAG run that decide which drops it takes. All times are microseconds since 1970.

    `first` and `last` are the run's parameters `from` and `to`. `after_us` is the time from which it may begin,
    `data_us` its data interval, and `date_us` the logical date of a run that somebody started.
    """

    first: str | None
    last: str | None
    after_us: int
    data_us: tuple[int, int] | None
    date_us: int | None

    def interval(self, drops: Schedule) -> tuple[int, int]:
        """The time span `[lo, hi)` of the drops that the run takes.

        These are the drops that the parameters name, else the data interval. If that is missing or empty, it is the
        last drop that had ended. A run that somebody started for a logical date takes the drop of that date, or the
        last drop that had ended if that is earlier.

        Raises:
            ParameterError: a parameter does not name a drop.
        """
        if self.first:
            numbers = drops_named(drops, self.first, self.last or self.first)
            return drops.start(numbers.start), drops.start(numbers.stop)
        ended = drops.interval(drops.number_at(self.after_us) - 1)
        if self.data_us is None or self.data_us[0] == self.data_us[1]:
            return ended
        lo, hi = self.data_us
        # `airflow dags trigger --logical-date` sets the data interval of the present time, whatever the date
        if self.date_us is not None and self.data_us == ended and not lo <= self.date_us < hi:
            return min(drops.interval(drops.number_at(self.date_us)), ended)
        return self.data_us


def drops_named(drops: Schedule, first: str, last: str) -> range:
    """The numbers of the drops from `first` to `last`, both included. Raises ParameterError: a text names no drop."""
    try:
        numbers = drops.seq_nos(drops.time_named(first), drops.time_named(last))
        instant_at(drops.start(numbers.stop))
    except (ValueError, OverflowError):
        raise ParameterError(
            expected="drops by their starts, such as 2013-01-07 or 2013-01-07T12:00:00Z, of the years 1 to 9999 in UTC",
            found=f"{first!r} to {last!r}",
            consequence="nothing was run",
            next_step="trigger it again, with times in the form of ISO 8601",
        ) from None
    return numbers
