"""Faults of every kind, and readers under publications: short forms of `make chaos` and of the long tests."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from spark_jobs.sample import prepare_sample, sample_rows
from tests.chaos.campaign import Campaign, Plan, plan_of_environment, seed_of_environment
from tests.chaos.days import write_sources
from tests.chaos.publications import publish, readers, torn
from tests.chaos.site import Site

pytestmark = [pytest.mark.server, pytest.mark.timeout(1800)]

QUICK = (
    *("kill of the command", "interrupt", "cut connections", "full disk", "kill of workers"),
    *("commit", "two at once", "loss of a folder"),
)
"""Kinds after which a server seldom has to start."""
SEED = 7
"""Of the short ones, where the environment names none: what `make test` tries should not change by itself."""
ROWS = 80
"""Of a day's file, where the number of publications counts, not their size."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """An installation in which nothing has run, with the sample's weather."""
    folder = tmp_path_factory.mktemp("chaos")
    prepare_sample(folder / "landing", last=dt.date(2013, 1, 7), sources=("weather",))
    site = Site(folder, write_sources(folder), folder / "landing", reader_statements=64)
    try:
        started = site.do("up", "--no-airflow")
        assert started.ok, started.text
        yield site
    finally:
        site.close()


def expect_whole_publications(site: Site, landing: Path, publications: int, count: int, seed: int) -> None:
    """So many publications under so many readers, with failures in between."""
    print(f"seed {seed}")
    chance = random.Random(seed)
    header, rows = sample_rows("flights")
    by_day: dict[str, list[str]] = {}
    for day, line in rows:
        by_day.setdefault(day.isoformat(), []).append(line)
    files = {day: header + "".join(lines[:ROWS]) for day, lines in islice(sorted(by_day.items()), publications)}
    first, *days = sorted(files)
    publish(site, landing, [first], files)
    with readers(site, count) as reads:
        failures = publish(site, landing, days, files, chance, after_each=reads.wait_for_new_answer)
    answers = sum(reads.answers.values())
    wrong = torn(site, reads)
    print(
        f"{len(files)} publications under {count} readers, failures: {failures}; {answers} answers, of them"
        f" {len(reads.answers)} different, {len(wrong)} torn"
    )
    assert reads.errors == []
    assert wrong == []
    assert len(reads.answers) >= len(days), "each day changes the answer"


@pytest.mark.turns
def test_readers_of_joined_names_see_whole_publications_whatever_fails_between_them(site: Site) -> None:
    expect_whole_publications(
        site, Path(site.settings.landing), publications=3, count=4, seed=seed_of_environment(SEED)
    )


@pytest.mark.turns
def test_every_published_table_is_an_undisturbed_lakes_after_each_of_some_faults(site: Site, tmp_path: Path) -> None:
    plan = Plan(seed_of_environment(SEED), faults=2, days=7, sources=("weather",), audits=False, kinds=QUICK)
    account = Campaign(plan, tmp_path).on(site)
    print(account)
    assert account.broken == []
    assert account.reads > 0
    audit = site.do("audit", "weather")
    assert audit.ok, audit.text


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_readers_of_joined_names_see_whole_publications_fifty_times(tmp_path: Path) -> None:
    site = Site(tmp_path, write_sources(tmp_path), tmp_path / "landing", reader_statements=64)
    try:
        assert site.do("up", "--no-airflow").ok
        expect_whole_publications(site, tmp_path / "landing", publications=50, count=20, seed=seed_of_environment())
    finally:
        site.close()


@pytest.mark.long
@pytest.mark.timeout(14400)
def test_the_campaign(tmp_path: Path) -> None:
    account = Campaign(plan_of_environment(), tmp_path).run()
    print(account)
    assert account.broken == []
