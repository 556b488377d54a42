"""The rate of a source's rows: in `quality.metrics`, in the portal, and as a check that stops a run by name."""

from __future__ import annotations

import json

import pytest

from spark_jobs.config import Settings
from spark_jobs.gates import GateFailed
from spark_jobs.portal.pages import Portal
from spark_jobs.sources import SourceFileError, parse_source
from spark_jobs.storage.descriptions.quality_tables import METRICS
from tests.jobs.harness import SOURCE, Reading, Session, lake_of, published, run, write_drops, write_source

CHECK = "checks:\n  steady: {kind: rate, change: 0.5}\n"
DAY_MINUTES = 24 * 60


def a_day(day: int, rows: int) -> list[Reading]:
    """Rows of a day, of which three in four are of the meter `a`."""
    return [Reading(day, day * DAY_MINUTES + n, "aaab"[n % 4], n) for n in range(rows)]


def test_rates_are_recorded_shown_and_checked(lake: Session, settings: Settings) -> None:
    home = write_source(settings, SOURCE + CHECK)
    write_drops(home, [reading for day in range(10) for reading in a_day(day, 48)])
    run(lake, home, 0, 9)
    rows = [row for row in lake_of(lake).records(METRICS) if row["trace_batches"] is None]
    assert [row["rate"] for row in sorted(rows, key=lambda row: row["seq_no"])] == [2.0] * 10
    assert [json.loads(row["busiest"]) for row in rows] == [{"a": 1.5, "b": 0.5}] * 10

    shown = published(lake, "silver.hourly")
    # the mean of five drops is (4 * 2 + 20) / 5 = 5.6 rows an hour, of the ten before at most 2
    write_drops(home, a_day(10, 480))
    with pytest.raises(GateFailed, match="steady") as failure:
        run(lake, home, 10, 10)
    (failed,) = failure.value.failed
    assert failed["sample"] == ({"drop": "2024-01-11", "rows_an_hour": 20.0, "rate_change": pytest.approx(1.8)},)
    assert published(lake, "silver.hourly") == shown

    run(lake, home, 10, 10, overrides={"steady": "a sale"})
    assert published(lake, "silver.hourly") != shown
    page = Portal(home.model_copy(update={"lake": lake_of(lake).folder.root}), is_live=True).page("sources/meters.html")
    assert "Rate per drop: 20 rows an hour in 2024-01-11, most 20 in 2024-01-11" in page
    assert "Of the busiest by meter, from the busiest on: a, b" in page


@pytest.mark.parametrize("wrong", ["change: 0", "change: 0.5, table: hourly", "change: 0.5, treatment: quarantine"])
def test_a_wrong_check_of_a_rate_is_refused(wrong: str) -> None:
    with pytest.raises(SourceFileError):
        parse_source(f"{SOURCE}checks:\n  steady: {{kind: rate, {wrong}}}\n", file="meters.yml")
