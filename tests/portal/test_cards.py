"""The states of the cards of the first page."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import pytest
import time_machine

from spark_jobs.config import Settings
from spark_jobs.portal.cards import NEED_MEANINGS, NEEDS, mart_card, source_card
from spark_jobs.portal.held_lake import HeldLake
from spark_jobs.portal.marts import Mart, MartRows, ModelTest
from spark_jobs.portal.overview import source_facts
from spark_jobs.portal.pages import Portal
from spark_jobs.sources import load_source
from tests.jobs.harness import DAY, SOURCE, START, Reading, Session, run, write_drops, write_source

DEADLINE = timedelta(hours=3)


def test_every_state_has_a_meaning() -> None:
    assert [*NEEDS] == [*NEED_MEANINGS]


@pytest.mark.parametrize("drops, need", [(0, "right"), (1, "late"), (9, "late")])
def test_a_mart_of_a_late_source_is_late(lake: Session, spark_settings: Settings, drops: int, need: str) -> None:
    settings = write_source(spark_settings, SOURCE + "dag: {deadline: 3 h, notify: [team@example.org]}\n")
    write_drops(settings, [Reading(0, 600, "a", 5)])
    run(lake, settings, 0, 0)
    source = load_source(settings.sources / "meters.yml")
    with time_machine.travel(START + (drops + 1) * DAY + DEADLINE + timedelta(minutes=1), tick=False):
        facts = source_facts(HeldLake(Path(settings.lake)), source)
        card = source_card(facts)
        passed = ModelTest("sums", "sums", None, frozenset({"meters"}), {"verdict": "passed"})
        rows = MartRows(1, [], facts.frontier_times["published"])
        of_mart = mart_card(mart(passed), rows, (), {"meters": facts})
        page = Portal(settings, is_live=True).page("index.html")
    assert (card.need, of_mart.need) == (need, need)
    assert [each.words for each in of_mart.needs] == ["its source meters is late, so rows are missing"] * (drops > 0)
    # the time at which a drop was due stands on the card once
    assert re.sub("<[^>]+>", "", page).count("due") == 1 and card.names_due == (drops == 1)


def test_a_mart_whose_tests_never_ran_is_worth_a_look() -> None:
    card = mart_card(mart(ModelTest("sums", "sums", None, frozenset(), None)), MartRows(1, [], None), (), {})
    assert (card.need, [each.words for each in card.needs]) == ("look", ["1 test never run"])


def mart(test: ModelTest) -> Mart:
    """A mart of the meters with one test."""
    return Mart("loads", "", {}, (), [], "meters", frozenset({"meters"}), None, [test])
