"""Batches of the trace merge, by retention or as they are; answers stay, and tables and the portal show the space."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pytest

from spark_jobs.cli.commands.demo import WEATHER_RUNS
from spark_jobs.config import CHECKOUT, Settings
from spark_jobs.portal.pages import Portal
from spark_jobs.sample import prepare_sample
from spark_jobs.sources import load_source
from spark_jobs.storage.descriptions.quality_tables import METRICS
from spark_jobs.trace import frontiers, maintenance
from tests.jobs.harness import Reading, Session, lake_of, published, run, write_drops, write_source

WEATHER = (CHECKOUT / "dags" / "sources" / "weather.yml").read_text()
RETENTION = "retention: {since: 7 days}\n"
YEAR = datetime(2013, 1, 1, tzinfo=UTC)


def trace_of(lake: Session, home: Settings, name: str) -> list[tuple[int, int]]:
    """The level of each batch of a source's trace, and its number of updates."""
    source = load_source(home.sources / f"{name}.yml")
    return [(b.level, b.n_updates) for b in frontiers.load(lake_of(lake), source).arrangement.trace]


def sizes(lake: Session, name: str) -> list[dict[str, Any]]:
    """The rows of `quality.metrics` that have the size of the trace, oldest first."""
    rows = [row for row in lake_of(lake).records(METRICS) if row["source"] == name]
    return sorted((row for row in rows if row["trace_batches"] is not None), key=lambda row: row["landing"])


@pytest.mark.turns
def test_the_demos_weather_merges_by_its_retention_and_every_published_row_stays(
    lake: Session, settings: Settings
) -> None:
    """The source `climate` is `weather` without retention."""
    assert RETENTION in WEATHER
    prepare_sample(settings.landing_folder, last=date.fromisoformat(WEATHER_RUNS[-1][-1]), sources=("weather",))
    home = write_source(settings, WEATHER, "weather")
    plain = WEATHER.replace(RETENTION, "").replace("source: weather\n", "source: climate\n")
    write_source(settings, plain, "climate")
    for name in ("weather", "climate"):
        for days in WEATHER_RUNS:
            first, last = (int(day[-2:]) - 1 for day in days)
            run(lake, home, first, last, source=name, start=YEAR)
    (_, first), (_, second), *later = trace_of(lake, home, "climate")
    merged, *rest = trace_of(lake, home, "weather")
    assert merged == (1, first + second)
    assert rest == later == [(0, n) for _, n in later]
    assert published(lake, "gold.weather") == published(lake, "gold.climate")

    measured = sizes(lake, "weather")
    updates = [sum(n for _, n in batches) for batches in ([(0, first)], [(0, first), (0, second)])]
    assert [row["trace_updates"] for row in measured][:2] == updates
    assert [row["trace_batches"] for row in measured] == [1, 2, 3, 3]
    share = (first + second) / measured[-1]["trace_updates"]
    assert [row["trace_consolidated"] for row in measured] == [0, 0, 0, share]
    assert all(row["trace_bytes"] > 0 for row in measured)

    shown = home.model_copy(update={"lake": lake_of(lake).folder.root})
    page = Portal(shown, is_live=True).page("sources/weather.html")
    assert f"{share:.0%} of the updates are in merged batches" in page
    assert "Space of the trace, after the run of each drop" in page
    assert f'<td>1</td><td class="num">1</td><td class="num">{first + second:,}</td>' in page.replace("\n", "")


READINGS = [
    Reading(day, day * 24 * 60 + minute - 400 * (minute > 80), "ab"[day % 2], minute)
    for day in range(6)
    for minute in (10, 75, 90)
]
SHOWN = (
    "silver.hourly",
    "silver.shifts",
    "silver.hourly_changes",
    "silver.hourly_causes",
    "silver.late",
    "gold.meters",
)


@pytest.mark.turns
def test_a_trace_without_retention_merges_its_published_batches_as_they_are(
    lake: Session, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = write_source(settings)
    write_drops(settings, READINGS)
    for day in range(5):
        run(lake, home, day, day)
    shown = {name: published(lake, name, "update_token") for name in SHOWN}
    assert trace_of(lake, home, "meters") == [(0, 3)] * 5
    monkeypatch.setattr(maintenance, "MOST_BATCHES", 4)
    *_, compact, _ = run(lake, home, 4, 4)  # nothing has landed
    assert compact["merges"] == 3
    assert trace_of(lake, home, "meters") == [(2, 12), (0, 3)]
    assert {name: published(lake, name, "update_token") for name in SHOWN} == shown
    assert sizes(lake, "meters")[-1]["trace_consolidated"] == 0.8
    # the run after it starts from the merged batches, and its gate has the merge among the batches that survive
    run(lake, home, 5, 5)
    assert trace_of(lake, home, "meters") == [(2, 12), (0, 3), (0, 3)]


@pytest.mark.turns
def test_a_gate_that_rejects_a_run_after_a_merge_leaves_answers_as_they_were(
    lake: Session, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = write_source(settings)
    write_drops(settings, READINGS)
    monkeypatch.setattr(maintenance, "MOST_BATCHES", 2)
    for day in range(3):
        run(lake, home, day, day)
    shown = {name: published(lake, name, "update_token") for name in SHOWN}
    run(lake, home, 3, 3, stages=["land", "seal", "window", "compact"])
    assert [level for level, _ in trace_of(lake, home, "meters")] == [1, 0, 0]
    assert {name: published(lake, name, "update_token") for name in SHOWN} == shown
    run(lake, home, 3, 3)
    once = {name: published(lake, name, "update_token") for name in SHOWN}
    assert once != shown
    run(lake, home, 3, 3)
    assert {name: published(lake, name, "update_token") for name in SHOWN} == once
