"""The calendar of drops has the days of the source's own time zone."""

from __future__ import annotations

import pytest

from spark_jobs.portal.months import calendar
from spark_jobs.sources import parse_source
from tests.jobs.harness import SOURCE


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/New_York"])
def test_a_day_of_the_calendar_is_the_drops_own(zone: str) -> None:
    source = parse_source(SOURCE + f"timezone: {zone}\n", file="meters.yml")
    [month] = calendar([(n, "ok", "published", None) for n in range(3)], source)
    assert (month.title, [day.number for day in month.days]) == ("January 2024", [1, 2, 3])
    assert [day.label[:10] for day in month.days] == [source.drops.label(n) for n in range(3)]
