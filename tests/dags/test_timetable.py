"""The timetable of a source's drops: what Airflow's scheduler, a backfill and a manual run are told."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

import pytest

from spark_jobs.sources import Schedule
from spark_jobs.sources.drops import schedule
from spark_jobs.sources.quantities import parse_every, parse_instant_in

pytestmark = pytest.mark.slow

DAY = timedelta(days=1)


@pytest.fixture(scope="module")
def pendulum() -> Any:
    import pendulum

    return pendulum


def timetable(*, by_itself: bool, days: int = 1) -> Any:
    from spark_jobs.scheduling.timetable import DropTimetable

    return DropTimetable(
        Schedule(1_420_070_400_000_000, days * 86_400_000_000), by_itself=by_itself
    )  # since 2015-01-01


def of_calendar(every: str, zone: str | None, start: str) -> Any:
    """The timetable of a source whose drops are of the calendar."""
    from spark_jobs.scheduling.timetable import DropTimetable

    start_us = parse_instant_in(datetime.fromisoformat(start), zone or "UTC")
    return DropTimetable(schedule(start_us, parse_every(every), zone), by_itself=True)


def scheduler_asks(table: Any, last: Any = None, *, catchup: bool = False) -> Any:
    import pendulum as times
    from airflow.timetables.base import TimeRestriction

    start = TimeRestriction(times.datetime(2015, 1, 1), None, catchup)
    return table.next_dagrun_info(last_automated_data_interval=last, restriction=start)


def backfill_lists(table: Any, first: Any, last: Any) -> list[Any]:
    """As Airflow's backfill does, and all other things that ask for a range."""
    from airflow.timetables.base import TimeRestriction

    found: list[Any] = []
    while True:
        before = found[-1].data_interval if found else None
        info = table.next_dagrun_info(
            last_automated_data_interval=before, restriction=TimeRestriction(first, last, True)
        )
        if info is None:
            return found
        found.append(info)


@pytest.mark.parametrize("by_itself", [False, True])
def test_a_backfill_is_told_the_drops_of_its_range(pendulum: Any, by_itself: bool) -> None:
    listed = backfill_lists(
        timetable(by_itself=by_itself), pendulum.datetime(2015, 2, 27), pendulum.datetime(2015, 3, 2)
    )
    assert [f"{info.data_interval.start:%m-%d} {info.data_interval.end:%m-%d}" for info in listed] == [
        "02-27 02-28",
        "02-28 03-01",
        "03-01 03-02",
        "03-02 03-03",
    ]


def test_drops_of_a_week_are_those_of_the_source_also_from_a_day_in_the_middle(pendulum: Any) -> None:
    listed = backfill_lists(
        timetable(by_itself=False, days=7), pendulum.datetime(2015, 1, 3), pendulum.datetime(2015, 1, 20)
    )
    assert [f"{info.data_interval.start:%m-%d}" for info in listed] == ["01-08", "01-15"]


def test_nothing_is_scheduled_of_a_source_that_people_run(pendulum: Any) -> None:
    table = timetable(by_itself=False)
    last = table.infer_manual_data_interval(run_after=pendulum.datetime(2015, 5, 1))
    assert [scheduler_asks(table), scheduler_asks(table, last)] == [None, None]
    assert scheduler_asks(table, last, catchup=True) is None
    assert table.summary == "manual"


def test_a_source_with_a_schedule_runs_its_last_drop_and_then_each_next_one(pendulum: Any) -> None:
    table = timetable(by_itself=True)
    today = pendulum.now("UTC").start_of("day")
    first = scheduler_asks(table)
    assert (first.data_interval.start, first.run_after) == (today - DAY, today)
    following = scheduler_asks(table, first.data_interval)
    assert (following.data_interval.start, following.run_after) == (today, today + DAY)
    assert table.summary == "every 1 day"


def test_after_an_outage_the_next_run_is_of_the_last_drop_that_has_ended(pendulum: Any) -> None:
    # and catches up with those between by itself (`jobs.catching_up`)
    table = timetable(by_itself=True)
    today = pendulum.now("UTC").start_of("day")
    last = table.infer_manual_data_interval(run_after=today - 9 * DAY)
    assert scheduler_asks(table, last).data_interval == (today - DAY, today)


def test_a_manual_run_covers_the_drop_of_its_logical_date_or_the_last_that_has_ended(pendulum: Any) -> None:
    table, now = timetable(by_itself=False), pendulum.now("UTC")
    for date in (pendulum.datetime(2015, 3, 6), pendulum.datetime(2015, 3, 6, 15, 30)):
        assert table.infer_manual_data_interval(run_after=date).start == pendulum.datetime(2015, 3, 6)
    for date in (now, now.add(days=40)):
        assert table.infer_manual_data_interval(run_after=date).end == now.start_of("day")


@pytest.mark.parametrize(
    ("zone", "range_", "hours"),
    [
        ("America/New_York", ("2026-03-07T05:00", "2026-03-09T23:00"), [24, 23, 24]),
        ("America/New_York", ("2026-10-31T04:00", "2026-11-02T23:00"), [24, 25, 24]),
        ("Australia/Lord_Howe", ("2026-04-03T13:00", "2026-04-06T00:00"), [24, 24.5, 24]),
        ("Australia/Lord_Howe", ("2026-10-02T13:30", "2026-10-05T00:00"), [24, 23.5, 24]),
        ("Asia/Kathmandu", ("2026-03-07T20:00", "2026-03-09T20:00"), [24, 24]),
    ],
)
def test_days_of_a_time_zone_follow_each_other_whatever_its_clocks_do(
    pendulum: Any, zone: str, range_: tuple[str, str], hours: list[float]
) -> None:
    table = of_calendar("1 day", zone, "2026-01-01")
    listed = [i.data_interval for i in backfill_lists(table, *map(pendulum.parse, range_))]
    assert [(each.end - each.start).total_seconds() / 3600 for each in listed] == hours
    assert [a.end for a in listed[:-1]] == [b.start for b in listed[1:]]
    assert {f"{each.start.in_timezone(zone):%H:%M}" for each in listed} == {"00:00"}


def test_months_are_those_of_the_calendar(pendulum: Any) -> None:
    table = of_calendar("1 month", None, "2024-01-01")
    listed = backfill_lists(table, pendulum.datetime(2024, 1, 15), pendulum.datetime(2024, 4, 1))
    assert [f"{i.data_interval.start:%m-%d} {i.data_interval.end:%m-%d}" for i in listed] == [
        "02-01 03-01",
        "03-01 04-01",
        "04-01 05-01",
    ]
    again = type(table).deserialize(json.loads(json.dumps(table.serialize())))
    assert (again.serialize(), again.summary) == (table.serialize(), "every 1 month")


def test_airflow_stores_it_and_reads_it_back(pendulum: Any) -> None:
    table = timetable(by_itself=False, days=7)
    again = type(table).deserialize(json.loads(json.dumps(table.serialize())))
    assert (again.serialize(), again.summary) == (table.serialize(), "manual")


def test_airflow_finds_the_timetable_by_the_packages_entry_point() -> None:
    from airflow import plugins_manager

    assert "spark_jobs.scheduling.timetable.DropTimetable" in plugins_manager.get_timetables_plugins()
