"""When the DAG of a source runs: its data intervals are the source's drops."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pendulum
from airflow.timetables.base import DagRunInfo, DataInterval, TimeRestriction, Timetable
from pendulum import DateTime

from spark_jobs.sources.drops import Schedule
from spark_jobs.sources.quantities import instant_at

_TICK = timedelta(microseconds=1)


class DropTimetable(Timetable):
    """Data intervals that are the drops of a source, from its start on.

    With `by_itself`, Airflow starts a run after each drop's end. Without, only people start runs; a backfill, and
    whoever else asks for the intervals of a range, is told the drops all the same.
    """

    def __init__(self, drops: Schedule, *, by_itself: bool) -> None:
        self._drops = drops
        self._by_itself = by_itself
        self.description = (
            f"After the end of each drop of {drops.every}"
            if by_itself
            else f"When people ask for it, by drops of {drops.every}"
        )

    @classmethod
    def deserialize(cls, data: dict[str, Any]) -> Timetable:
        """What `serialize` gave."""
        calendar = data.get("calendar")
        drops = Schedule(
            data["start_us"],
            data["every_us"],
            None if calendar is None else (calendar[0], calendar[1]),
            data.get("timezone", "UTC"),
        )
        return cls(drops, by_itself=data["by_itself"])

    def serialize(self) -> dict[str, Any]:
        """Plain JSON values."""
        drops = self._drops
        plain: dict[str, Any] = {"start_us": drops.start_us, "every_us": drops.every_us, "by_itself": self._by_itself}
        if drops.calendar is not None:
            plain |= {"calendar": list(drops.calendar), "timezone": drops.timezone}
        return plain

    @property
    def summary(self) -> str:
        """What the grid shows as the schedule."""
        return f"every {self._drops.every}" if self._by_itself else "manual"

    def infer_manual_data_interval(self, *, run_after: DateTime) -> DataInterval:
        """The drop that holds the run's logical date; if it has not ended yet, the last one that has."""
        return self._interval(min(self._number(run_after), self._last_ended()))

    def next_dagrun_info(
        self, *, last_automated_data_interval: DataInterval | None, restriction: TimeRestriction
    ) -> DagRunInfo | None:
        """The next drop of a range, or for Airflow's scheduler the next one to run."""
        # the scheduler asks without an end, since no source has one; who asks for a range names it
        if restriction.latest is None and not self._by_itself:
            return None
        number = 0 if restriction.earliest is None else max(self._number(restriction.earliest - _TICK) + 1, 0)
        if not restriction.catchup:
            number = max(number, self._last_ended())
        if last_automated_data_interval is not None:
            last_lo, last_hi = last_automated_data_interval
            number = max(number, self._number(last_hi))
            if self._interval(number).start <= last_lo:
                number += 1
        lo, hi = self._interval(number)
        if restriction.latest is not None and lo > restriction.latest:
            return None
        return DagRunInfo.interval(lo, hi)

    def _number(self, time: DateTime) -> int:
        """The number of the drop that holds `time`, negative before the start."""
        time_us = time.int_timestamp * 1_000_000 + time.microsecond
        return self._drops.number_at(time_us)

    def _last_ended(self) -> int:
        return self._number(pendulum.now("UTC")) - 1

    def _interval(self, number: int) -> DataInterval:
        lo_us, hi_us = self._drops.interval(number)
        return DataInterval(pendulum.instance(instant_at(lo_us)), pendulum.instance(instant_at(hi_us)))
