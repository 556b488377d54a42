"""What a plan was made on: it survives its file, and says what is different by the name of the drop."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_jobs.jobs.base import Base, PlanUnreadable, StalePlan
from spark_jobs.sources import read_sources
from tests.architecture.source_tree import ROOT

FLIGHTS = read_sources(ROOT / "dags" / "sources").sources["flights"]
BASE = Base(
    source="flights",
    lo_us=0,
    hi_us=10,
    only_file=None,
    retract=False,
    replay=None,
    definition="{}",
    files={"flights/a": (3, "c0"), "flights/b": (4, "c1")},
    seal_us=5,
    reached_us=5,
    horizon_us=0,
    landed=((0, 3),),
    landed_through=7,
    published_us=5,
    published_reached_us=5,
    published_definition="{}",
)


def test_a_plan_reads_back_from_its_file_and_keeps_its_name() -> None:
    assert Base.from_json(BASE.to_json(), "plan.json") == BASE
    assert Base.from_json(BASE.to_json(), "plan.json").plan_id == BASE.plan_id
    again = replace(BASE, replay=("flights/a",))
    assert Base.from_json(again.to_json(), "plan.json") == again
    assert replace(BASE, seal_us=6).plan_id != BASE.plan_id


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"files": []}', BASE.to_json().replace('"c0"', '0,"c0"')])
def test_a_file_that_holds_no_plan_is_refused_by_its_path(text: str) -> None:
    with pytest.raises(PlanUnreadable, match=r"plan\.json"):
        Base.from_json(text, "plan.json")


@pytest.mark.parametrize(
    ("now", "found", "intervals"),
    [
        (replace(BASE, files={**BASE.files, "flights/b": (4, "c2")}), "other files in", ["2013-01-05"]),
        (replace(BASE, files={"flights/b": (4, "c1")}), "other files in", ["2013-01-04"]),
        (replace(BASE, landed=((0, 5),), landed_through=9), "drops landed since in", ["2013-01-04", "2013-01-05"]),
        (replace(BASE, definition="{1}"), "another source file", []),
        (replace(BASE, seal_us=6), "a run since", []),
        (replace(BASE, retract=True), "another interval", []),
    ],
)
def test_a_stale_plan_says_what_changed_and_in_which_drops(now: Base, found: str, intervals: list[str]) -> None:
    BASE.check(BASE, FLIGHTS)
    with pytest.raises(StalePlan, match=found) as refusal:
        BASE.check(now, FLIGHTS)
    assert refusal.value.facts["intervals"] == intervals
