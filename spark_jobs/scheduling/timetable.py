"""The timetable of a source's DAG: its data intervals are the source's drops."""

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

    With `by_itself`, Airflow starts a run after the end of each drop. Without it, only people start runs. A backfill,
    or any other caller that asks for the intervals of a range, gets the drops in both cases.
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
        """The timetable from the result of `serialize`."""
        calendar = data.get("calendar")
        drops = Schedule(
            data["start_us"],
            data["every_us"],
            None if calendar is None else (calendar[0], calendar[1]),
            data.get("timezone", "UTC"),
        )
        return cls(drops, by_itself=data["by_itself"])

    def serialize(self) -> dict[str, Any]:
        """The timetable as plain JSON values."""
        drops = self._drops
        plain: dict[str, Any] = {"start_us": drops.start_us, "every_us": drops.every_us, "by_itself": self._by_itself}
        if drops.calendar is not None:
            plain |= {"calendar": list(drops.calendar), "timezone": drops.timezone}
        return plain

    @property
    def summary(self) -> str:
        """The schedule as Airflow's grid shows it."""
        return f"every {self._drops.every}" if self._by_itself else "manual"

    def infer_manual_data_interval(self, *, run_after: DateTime) -> DataInterval:
        """The drop that contains the run's time `run_after`, or the last drop that has ended if that one has not."""
        return self._interval(min(self._number(run_after), self._last_ended()))

    def next_dagrun_info(
        self, *, last_automated_data_interval: DataInterval | None, restriction: TimeRestriction
    ) -> DagRunInfo | None:
        """The run of the next drop: of a range, or for Airflow's scheduler of the next one to run. None if there is
        none."""
        # the scheduler asks without an end, since no source has one; a caller that asks for a range gives its end
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
        """The number of the drop that contains `time`, negative before the start."""
        time_us = time.int_timestamp * 1_000_000 + time.microsecond
        return self._drops.number_at(time_us)

    def _last_ended(self) -> int:
        return self._number(pendulum.now("UTC")) - 1

    def _interval(self, number: int) -> DataInterval:
        lo_us, hi_us = self._drops.interval(number)
        return DataInterval(pendulum.instance(instant_at(lo_us)), pendulum.instance(instant_at(hi_us)))
