"""The timetable of a source's drops: what Airflow's scheduler, a backfill and a manual run are told."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

pytestmark = pytest.mark.slow

DAY = timedelta(days=1)


@pytest.fixture(scope="module")
def pendulum() -> Any:
    import pendulum

    return pendulum


def timetable(*, by_itself: bool, days: int = 1) -> Any:
    from spark_jobs.scheduling.timetable import DropTimetable

    return DropTimetable(1_420_070_400_000_000, days * 86_400_000_000, by_itself=by_itself)  # since 2015-01-01


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


def test_a_manual_run_covers_the_drop_of_its_logical_date_or_the_last_that_has_ended(pendulum: Any) -> None:
    table, now = timetable(by_itself=False), pendulum.now("UTC")
    for date in (pendulum.datetime(2015, 3, 6), pendulum.datetime(2015, 3, 6, 15, 30)):
        assert table.infer_manual_data_interval(run_after=date).start == pendulum.datetime(2015, 3, 6)
    for date in (now, now.add(days=40)):
        assert table.infer_manual_data_interval(run_after=date).end == now.start_of("day")


def test_airflow_stores_it_and_reads_it_back(pendulum: Any) -> None:
    table = timetable(by_itself=False, days=7)
    again = type(table).deserialize(json.loads(json.dumps(table.serialize())))
    assert (again.serialize(), again.summary) == (table.serialize(), "manual")


def test_airflow_finds_the_timetable_by_the_packages_entry_point() -> None:
    from airflow import plugins_manager

    assert "spark_jobs.scheduling.timetable.DropTimetable" in plugins_manager.get_timetables_plugins()
