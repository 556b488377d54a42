"""The requests to Airflow that the portal's forms become, and the forms and pages of actions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spark_jobs.config import Settings
from spark_jobs.errors import ParameterError
from spark_jobs.model import ACTIONS
from spark_jobs.portal.actions.airflow import AirflowFacts, AirflowRun, Question, _run, html_of
from spark_jobs.portal.actions.forms import ALL, BY_NAME, MOST_CHARACTERS, airflow_request
from spark_jobs.portal.asking import PageMissing, VisibleSources
from spark_jobs.portal.pages import Portal
from spark_jobs.sources import Source, load_source
from tests.jobs.harness import SOURCE, write_source

EVIL = "</script><script>alert('x')</script> \"&"
EVERYBODY = VisibleSources(acts_on=lambda _: True)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return write_source(Settings(home=tmp_path_factory.mktemp("home")))


@pytest.fixture(scope="module")
def meters(home: Settings) -> Source:
    return load_source(home.sources / "meters.yml")


def body(action: str, source: Source, **values: Any) -> Any:
    given = {name: value if isinstance(value, list) else [value] for name, value in values.items()}
    return airflow_request(BY_NAME[action], source, given).body


def test_a_run_of_drops_is_a_run_of_the_sources_own_dag(meters: Source) -> None:
    given = {"from": ["2024-01-01"], "to": [" 2024-01-03 "], "because": ["late files"], "plan": ["on"]}
    request = airflow_request(BY_NAME["run"], meters, given)
    assert request.path == "dags/meters/dagRuns"
    conf = {"from": "2024-01-01", "to": "2024-01-03", "plan": True, "because": "late files"}
    assert request.body == {"logical_date": None, "conf": conf, "note": "Run drops: late files"}
    overriding = body("run", meters, **{"from": "2024-01-01", "because": "new", "override": ["low", "high"]})
    assert overriding["conf"] == {"from": "2024-01-01", "override": ["low", "high"], "because": "new"}


def test_a_retraction_always_shows_its_plan_first(meters: Source) -> None:
    conf = body("retract", meters, **{"from": "2024-01-01", "file": "a.ndjson", "because": "wrong"})["conf"]
    assert conf == {"from": "2024-01-01", "file": "a.ndjson", "retract": True, "plan": True, "because": "wrong"}
    assert body("replay", meters, **{"from": "2024-01-01", "rule": "bad_int", "because": "?"})["conf"]["replay"] is True


def test_a_backfill_is_airflows_own_one_drop_after_another(meters: Source) -> None:
    given = {"from": ["2024-01-01"], "to": ["2024-01-03"], "because": ["all"]}
    request = airflow_request(BY_NAME["backfill"], meters, given)
    assert request.path == "backfills"
    assert request.body == {
        "dag_id": "meters",
        "from_date": "2024-01-01T00:00:00+00:00",
        "to_date": "2024-01-03T00:00:00+00:00",
        "dag_run_conf": {"because": "all"},
        "reprocess_behavior": "failed",
        "max_active_runs": 1,
    }


def test_other_actions_name_their_source_to_the_dag_of_actions(meters: Source) -> None:
    for name in ("dismiss", "audit", "pin"):
        request = airflow_request(BY_NAME[name], meters, {"name": ["books"], "rule": ["r"], "because": ["b"]})
        assert request.path == f"dags/{ACTIONS}/dagRuns"
        assert (request.body["conf"]["action"], request.body["conf"]["source"]) == (name, "meters")


@pytest.mark.parametrize("action", [action.name for action in ALL])
def test_nobody_acts_without_a_reason(meters: Source, action: str) -> None:
    given = {"from": "2024-01-01", "to": "2024-01-01", "name": "books"}
    with pytest.raises(ParameterError, match="`why`"):
        body(action, meters, **given, because="  ")


def test_a_text_that_names_no_drop_is_refused_before_airflow_is_asked(meters: Source) -> None:
    for text in ("tomorrow", "9999-12-31T23:00:00-14:00"):
        with pytest.raises(ParameterError, match="drops by their starts"):
            body("run", meters, **{"from": text, "because": "?"})
    with pytest.raises(ParameterError, match="first drop"):
        body("retract", meters, because="?")


def test_a_drop_may_be_named_by_its_time(meters: Source) -> None:
    given = {"from": "2024-01-01T00:00:00Z", "to": "2024-01-02T02:00:00+02:00", "because": "?"}
    conf = body("run", meters, **given)["conf"]
    assert (conf["from"], conf["to"]) == ("2024-01-01", "2024-01-02")


def test_a_form_that_would_do_more_than_it_says_is_refused(meters: Source) -> None:
    for action in ("dismiss", "run", "retract"):
        with pytest.raises(ParameterError, match="first drop"):
            body(action, meters, to="2024-01-01", file="a.ndjson", because="?")
    with pytest.raises(ParameterError, match="which records to close"):
        body("dismiss", meters, because="?")


@pytest.mark.parametrize("action", ["run", "backfill", "retract"])
def test_a_wrong_digit_in_a_year_plans_no_drops_of_the_future(meters: Source, action: str) -> None:
    with pytest.raises(ParameterError, match="drops that have begun"):
        body(action, meters, **{"from": "2024-01-01", "to": "9024-01-02", "because": "?"})


def test_a_text_that_airflow_does_not_keep_is_refused(meters: Source) -> None:
    longest = "w" * MOST_CHARACTERS
    assert body("audit", meters, because=longest)["note"].endswith(longest)
    for action in ALL:
        assert len(f"{action.title}: {longest}") <= 1000, "the most that Airflow takes"
    for text in (f"{longest}w", "a\x00b", "a\nb"):
        with pytest.raises(ParameterError, match="no control characters"):
            body("audit", meters, because=text)


def test_a_run_that_failed_says_why(home: Settings) -> None:
    run = AirflowRun("r", ACTIONS, "Pin", "failed", "ann", "?", None, None, {}, failure=f"act: pin_exists: {EVIL}")
    portal = Portal(home, is_live=True)
    for page in (
        portal.page("runs/meters/r.html", airflow=AirflowFacts(run=run)),
        portal.page("activity/meters.html", airflow=AirflowFacts(actions=[run])),
    ):
        assert "act: pin_exists: " in page and "<script>alert" not in page


HOSTILE_CONFS: list[dict[str, Any]] = [
    {"action": ["audit"], "source": ["meters"], "because": {"a": EVIL}},
    {"action": {"a": 1}, "source": 1, "from": {"a": 1}, "because": [EVIL]},
    {"action": EVIL, "source": {}, "because": 0},
    {"replay": [], "retract": {"x": 1}, "because": True},
    {"action": "a" * 1_000_000, "because": "b" * 1_000_000},
]


@pytest.mark.parametrize("conf", HOSTILE_CONFS)
def test_a_run_of_any_parameters_is_listed_as_text(home: Settings, conf: dict[str, Any]) -> None:
    """Who starts a run in Airflow itself may give it any JSON."""
    facts = {"dag_run_id": "r", "dag_id": "meters", "run_type": "manual", "state": "running", "conf": conf}
    times = dict.fromkeys(("start_date", "end_date", "note", "triggering_user_name"))
    run = _run({**facts, **times}, {}, None)
    for name in ("activity/meters.html", "sources/meters.html"):
        page = Portal(home, is_live=True).page(name, {}, EVERYBODY, airflow=AirflowFacts(actions=[run]))
        assert "<script>alert" not in page and len(page) < 100_000


@pytest.mark.parametrize("action", [action.name for action in ALL])
def test_a_form_shows_its_first_values_as_text(home: Settings, action: str) -> None:
    asked = {field.name: [EVIL] for field in BY_NAME[action].fields}
    facts = AirflowFacts(is_paused=True, problem=EVIL)
    page = Portal(home, is_live=True).page(f"act/meters/{action}.html", asked, EVERYBODY, airflow=facts)
    assert "alert(&#39;x&#39;)" in page and "<script>alert" not in page
    assert ("is paused" in page) == (BY_NAME[action].dag is None)


def test_drops_of_days_are_chosen_as_dates_and_others_as_times(home: Settings, tmp_path: Path) -> None:
    portal = Portal(home, is_live=True)
    assert portal.page("act/meters/run.html", {}, EVERYBODY).count('type="date"') == 2
    text = SOURCE.replace("every: 1 day", "every: 5 min").replace("{date}", "{date}T{hour}{minute}")
    hourly = write_source(Settings(home=tmp_path), text)
    assert 'type="date"' not in Portal(hourly, is_live=True).page("act/meters/run.html", {}, EVERYBODY)


def test_who_may_not_act_is_shown_no_form_and_no_button(home: Settings) -> None:
    portal = Portal(home, is_live=True)
    with pytest.raises(PageMissing):
        portal.page("act/meters/run.html")
    assert "Run drops" not in portal.page("sources/meters.html")
    assert 'href="../act/meters/run.html"' in portal.page("sources/meters.html", {}, EVERYBODY)
    with pytest.raises(PageMissing):
        portal.page("act/meters/nothing.html", {}, EVERYBODY)


def test_a_run_on_its_way_shows_its_question_and_who_asked_for_it(home: Settings) -> None:
    plan = html_of(f"| a | b |\n| --- | ---: |\n| {EVIL} | 1 |\n\n[x](javascript:alert(1)) ![y](http://evil.example/y)")
    # the policy of pages forbids styles in them
    assert "style" not in plan and '<td class="num">1</td>' in plan
    question = Question("1", "land", f"meters: {EVIL}", plan, ("Approve", "Reject"))
    run = AirflowRun("r 1", "meters", EVIL, "running", EVIL, EVIL, None, None, {"land": "awaiting_input"}, question)
    portal = Portal(home, is_live=True)
    for scope, may_answer in ((VisibleSources(), False), (EVERYBODY, True)):
        page = portal.page("runs/meters/r~201.html", {}, scope, airflow=AirflowFacts(run=run))
        assert "<script>alert" not in page and 'javascript:alert(1)"' not in page and "<img" not in page
        assert "awaiting input" in page
        assert (">Approve</button>" in page) == may_answer
    listed = portal.page("activity/meters.html", {}, EVERYBODY, airflow=AirflowFacts(actions=[run]))
    assert "<script>alert" not in listed and 'data-reload="4"' in listed
