"""What a task does in its process: which interval it runs, what it retries, how it ends."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from spark_jobs.errors import ConfigurationError, ParameterError, TidemarkError
from spark_jobs.extraction.errors import OriginUnreachable
from spark_jobs.gates.verdicts import GateFailed, Verdict
from spark_jobs.jobs.request import Request
from spark_jobs.landing.opened import LandingUnreachable
from spark_jobs.server.errors import ServerUnreachable
from spark_jobs.sources.drops import Schedule
from spark_jobs.storage.delta.commits import CommitsContended

pytestmark = pytest.mark.slow

DAY_US = 86_400_000_000


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The module as Airflow imports it, from the DAGs' folder; its tasks write into a home of the tests' own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIDEMARK_HOME", str(tmp_path_factory.mktemp("home")))
        patch.syspath_prepend(str(Path(__file__).parents[2] / "dags"))
        import _tasks

        yield _tasks
        sys.modules.pop("_tasks", None)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


DAILY = Schedule(start_us=1_356_998_400_000_000, every_us=DAY_US)
"""Drops since 2013-01-01."""


def dag_run(lo: str | None = None, hi: str | None = None, date: str | None = None, **facts: Any) -> SimpleNamespace:
    """A DAG run as a task sees it."""
    return SimpleNamespace(
        **{
            "run_id": "r",
            "run_type": "manual",
            "data_interval_start": at(lo) if lo else None,
            "data_interval_end": at(hi) if hi else None,
            "logical_date": at(date) if date else None,
            "run_after": at("2013-01-05T09:30:00"),
            "conf": None,
            "triggering_user_name": None,
            **facts,
        }
    )


def context(run: SimpleNamespace, previous: SimpleNamespace | None = None, **params: Any) -> dict[str, Any]:
    """A task's context as Airflow gives it; `previous` is on its way, too."""
    params = {"from": None, "to": None, "pass_gap": False, "dry_run": False, **params}
    before = lambda state: previous if state == "running" else None  # noqa: E731
    kept: dict[str, Any] = {}
    instance = SimpleNamespace(
        id="id",
        get_previous_dagrun=before,
        start_date=datetime.now(UTC) - timedelta(seconds=3),
        try_number=1,
        xcom_pull=lambda task_ids, key="return_value": kept.get(key),
        xcom_push=lambda key, value: kept.update({key: value}),
    )
    return {"dag_run": run, "run_id": run.run_id, "params": params, "ti": instance}


JANUARY_2 = ("2013-01-02", "2013-01-03")


def operator(tasks: Any, stage: str = "seal") -> Any:
    return tasks.StageOperator(task_id=stage, source="flights", drops=DAILY)


def ending(tasks: Any, monkeypatch: pytest.MonkeyPatch, outcome: Any) -> Any:
    """An operator whose stage ends with `outcome`; returns it and the calls that it made."""
    from spark_jobs.jobs import stage

    calls: list[Any] = []

    def run_stage(name: str, *, report_step: Any, **arguments: Any) -> Any:
        calls.append((name, arguments))
        report_step("reading 2 files")
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    monkeypatch.setattr(stage, "run_stage", run_stage)
    monkeypatch.setattr(tasks, "_preload_beside", lambda _: None)
    return operator(tasks), calls


def interval(tasks: Any, run: SimpleNamespace, drops: Schedule = DAILY, **params: Any) -> tuple[datetime, datetime]:
    return tasks.run_interval(run, params, drops)


def test_a_scheduled_run_covers_its_data_interval(tasks: Any) -> None:
    assert interval(tasks, dag_run(*JANUARY_2, run_type="scheduled")) == (at("2013-01-02"), at("2013-01-03"))


def test_parameters_name_the_first_and_the_last_drop_both_included(tasks: Any) -> None:
    run = dag_run("2013-02-01", "2013-02-02")
    assert interval(tasks, run, DAILY, **{"from": "2013-01-02", "to": "2013-01-04"}) == (
        at("2013-01-02"),
        at("2013-01-05"),
    )


def test_a_first_drop_alone_is_the_last_one_too(tasks: Any) -> None:
    assert interval(tasks, dag_run(), DAILY, **{"from": "2013-01-02"}) == (at("2013-01-02"), at("2013-01-03"))


@pytest.mark.parametrize("empty", [(None, None), ("2013-01-05T09:30:00", "2013-01-05T09:30:00")])
def test_a_run_without_an_interval_covers_the_last_drop_that_has_ended(tasks: Any, empty: tuple[Any, Any]) -> None:
    assert interval(tasks, dag_run(*empty)) == (at("2013-01-04"), at("2013-01-05"))


def test_the_last_drop_that_has_ended_is_one_of_the_sources_also_where_drops_are_weeks(tasks: Any) -> None:
    weekly = Schedule(DAILY.start_us, 7 * DAY_US)
    run = dag_run(run_after=at("2013-01-20"))
    assert interval(tasks, run, weekly) == (at("2013-01-08"), at("2013-01-15"))


def test_a_run_started_for_a_logical_date_covers_the_drop_of_that_date(tasks: Any) -> None:
    # what Airflow's command line makes of the date: the interval is that of now
    last_ended = ("2013-01-04", "2013-01-05")
    assert interval(tasks, dag_run(*last_ended, date="2013-01-02")) == (at("2013-01-02"), at("2013-01-03"))
    assert interval(tasks, dag_run(*last_ended, date="2013-01-05T09:30:00")) == (at("2013-01-04"), at("2013-01-05"))
    explicit = dag_run("2013-01-01", "2013-01-04", date="2013-01-05T09:30:00")
    assert interval(tasks, explicit) == (at("2013-01-01"), at("2013-01-04"))


@pytest.mark.parametrize("text", ["garbage", "9999-12-31T23:00:00-14:00", "9999-12-31", "2012-12-31"])
def test_a_parameter_that_names_no_drop_is_refused_and_not_retried(
    tasks: Any, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    task, calls = ending(tasks, monkeypatch, {})
    with pytest.raises(AirflowFailException, match="parameter: expected"):
        task.execute(context(dag_run(*JANUARY_2), None, **{"from": text}))
    assert calls == []


def test_a_task_runs_its_stage_under_the_runs_id(tasks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    task, calls = ending(tasks, monkeypatch, {"rows": 3})
    assert task.execute(context(dag_run(*JANUARY_2))) == {"rows": 3}
    assert task.execute(context(dag_run(*JANUARY_2), pass_gap=True)) == {"rows": 3}
    assert task.execute(context(dag_run(*JANUARY_2), accept_definition=True)) == {"rows": 3}
    run = {"source": "flights", "lo": at("2013-01-02"), "hi": at("2013-01-03"), "run_id": "r"}
    asked = (Request(), Request(pass_gap=True), Request(accept_definition=True))
    assert calls == [("seal", {**run, "request": request}) for request in asked]


def test_the_log_has_a_stages_steps_and_its_summary_as_a_table(tasks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    summary = {"rows": 1976, "files": 1, "empty_drops": [], "accounts": {"hourly": {"rows": 3}}, "moved": True}
    summary["seconds"] = 0.0
    task, _ = ending(tasks, monkeypatch, summary)
    lines: list[str] = []
    quiet = dict.fromkeys(("debug", "warning", "error"), lambda *_: None)
    log = SimpleNamespace(**quiet, info=lambda text, *values: lines.extend((text % values).splitlines()))
    monkeypatch.setattr(type(task), "log", log, raising=False)
    task.execute(context(dag_run(*JANUARY_2)))
    assert lines[0] == "seal: reading 2 files"
    assert lines[2:-1] == [
        "  rows                  1,976",
        "  files                 1",
        "  accounts.hourly.rows  3",
        "  moved                 True",
        "  seconds               0.0",
    ]
    assert lines[-1].startswith("seal took 3.")
    assert "s, most of it start (seconds: start 3." in lines[-1]
    assert lines[-1].endswith("work 0.0)")


def test_what_the_trigger_form_overrides_reaches_the_stage(tasks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    task, calls = ending(tasks, monkeypatch, {"rows": 3})
    task.execute(context(dag_run(*JANUARY_2), override=["low", "high"], because="a new sensor"))
    task.execute(context(dag_run(*JANUARY_2), override=None, because=None))
    asked = [given["request"].overrides for _, given in calls]
    assert asked == [{"low": "a new sensor", "high": "a new sensor"}, {}]


def test_what_the_trigger_form_takes_back_or_reads_again_reaches_the_stage(
    tasks: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, calls = ending(tasks, monkeypatch, {"rows": 3})
    by_ada = dag_run(*JANUARY_2, triggering_user_name="ada")
    task.execute(context(by_ada, retract=True, file="flights/2013-01-02/a.csv"))
    task.execute(context(by_ada, override=["low"], because="a new sensor"))
    task.execute(replaying := context(by_ada, replay=True, rule="bad_int"))
    asked = [given["request"] for _, given in calls]
    assert asked == [
        Request(retract=True, only_file="flights/2013-01-02/a.csv", asked_by="ada"),
        Request(overrides={"low": "a new sensor"}, asked_by="ada"),
        # the first task says which files
        Request(replay=frozenset(), asked_by="ada"),
    ]
    first, _ = operator(tasks, "land"), calls.clear()
    monkeypatch.setattr(tasks, "open_files", lambda params, *_: frozenset({f"{params['rule']}.csv"}))
    for each in (first, task):
        each.execute(replaying)
    assert [given["request"].replay for _, given in calls] == 2 * [frozenset({"bad_int.csv"})]


def test_a_replay_that_is_tried_again_goes_on_though_its_records_are_closed(
    tasks: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    _, calls = ending(tasks, monkeypatch, {})

    def open_files(*_: Any) -> frozenset[str]:
        raise ParameterError(expected="a file with open records", found="none", next_step="look")

    monkeypatch.setattr(tasks, "open_files", open_files)
    replaying = context(dag_run(*JANUARY_2), replay=True, file="a.csv")
    with pytest.raises(AirflowFailException, match="a file with open records"):
        operator(tasks, "land").execute(replaying)
    replaying["ti"].try_number = 2
    operator(tasks, "land").execute(replaying)
    assert [given["request"].replay for _, given in calls] == [frozenset()]


def test_a_run_does_not_replay_and_retract(tasks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    task, calls = ending(tasks, monkeypatch, {})
    with pytest.raises(AirflowFailException, match="expected `replay` or `retract`, found both"):
        task.execute(context(dag_run(*JANUARY_2), replay=True, retract=True))
    assert calls == []


def gate_failed() -> GateFailed:
    failed = [Verdict("bronze", "ledger_rows", "nothing is lost.", "3", "failed", on_failure="look.")]
    return GateFailed(
        gate="bronze", source="flights", run_id="r", failed=failed, page="runs/flights/r", report="index.html"
    )


@pytest.mark.parametrize(
    "refusal", [gate_failed(), ConfigurationError(expected="a", found="b")], ids=["failed gate", "wrong setting"]
)
def test_a_refusal_that_would_be_the_same_again_is_not_retried(
    tasks: Any, monkeypatch: pytest.MonkeyPatch, refusal: TidemarkError
) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    task, _ = ending(tasks, monkeypatch, refusal)
    with pytest.raises(AirflowFailException) as failure:
        task.execute(context(dag_run(*JANUARY_2)))
    assert refusal.code in str(failure.value)


@pytest.mark.parametrize(
    "error",
    [
        ServerUnreachable(expected="a", found="b"),
        OriginUnreachable(expected="a", found="b"),
        LandingUnreachable(expected="a", found="b"),
        CommitsContended(expected="a", found="b"),
        RuntimeError("lost"),
    ],
    ids=lambda error: getattr(error, "code", "any other error"),
)
def test_what_may_pass_by_itself_is_retried(tasks: Any, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    task, _ = ending(tasks, monkeypatch, error)
    with pytest.raises(type(error)):
        task.execute(context(dag_run(*JANUARY_2)))


def test_a_failed_task_says_what_the_lake_server_logged_meanwhile(
    tasks: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TIDEMARK_HOME", str(tmp_path))
    log = tmp_path / "logs" / "lake.log"
    log.parent.mkdir()
    log.write_text("2013-01-01T00:00:00.000Z WARN Old: an earlier task's\n\tat old.Frame\n")
    task, _ = ending(tasks, monkeypatch, RuntimeError("lost"))
    with pytest.raises(RuntimeError):
        task.execute(context(dag_run(*JANUARY_2)))
    assert "lake server" not in capsys.readouterr().out
    with log.open("a") as more:
        more.write("2999-01-01T00:00:00.000Z WARN TaskSetManager: Lost task 0.0\n")
        more.writelines(f"\tat frame.{n}\n" for n in range(60))
    with pytest.raises(RuntimeError):
        task.execute(context(dag_run(*JANUARY_2)))
    told = capsys.readouterr().out
    frames = [line.strip().split()[1] for line in told.splitlines() if "at frame." in line]
    assert frames == [f"frame.{n}" for n in range(10, 60)]
    assert "earlier task" not in told


def test_a_task_that_failed_for_want_of_room_says_what_to_do(
    tasks: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TIDEMARK_HOME", str(tmp_path))
    task, _ = ending(tasks, monkeypatch, RuntimeError("Job aborted: No space left on device\n\tat a.Frame"))
    with pytest.raises(RuntimeError):
        task.execute(context(dag_run(*JANUARY_2)))
    assert "free some space" in capsys.readouterr().out


def test_the_codes_that_are_retried_exist(tasks: Any) -> None:
    import spark_jobs.publish.marts
    import spark_jobs.storage.coordination.leases  # noqa: F401

    def codes(error: type[TidemarkError]) -> set[str]:
        return {error.code}.union(*(codes(each) for each in error.__subclasses__()))

    import _failures

    assert codes(TidemarkError) >= _failures.RETRIED


def test_a_dry_run_lists_files_and_does_nothing(tasks: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from airflow.sdk.exceptions import AirflowSkipException

    drop = tmp_path / "landing" / "flights" / "2013-01-02"
    drop.mkdir(parents=True)
    (drop / "a.csv").write_text("x")
    monkeypatch.setenv("TIDEMARK_LANDING", str(tmp_path / "landing"))
    lines = list(tasks.planned_files("flights", at("2013-01-02"), at("2013-01-04")))
    assert lines == [
        "drop 2013-01-02: 1 files, 1 bytes: flights/2013-01-02/a.csv",
        "drop 2013-01-03: 0 files, 0 bytes: ",
    ]
    task, calls = ending(tasks, monkeypatch, {})
    with pytest.raises(AirflowSkipException):
        task.execute(context(dag_run(*JANUARY_2), dry_run=True))
    assert calls == []


def first_stage(tasks: Any, monkeypatch: pytest.MonkeyPatch, home: Path, outcome: Any = None) -> tuple[Any, Any]:
    """The first stage in an installation at `home`."""
    monkeypatch.setenv("TIDEMARK_HOME", str(home))
    _, calls = ending(tasks, monkeypatch, outcome or {})
    return operator(tasks, "land"), calls


def test_a_run_waits_for_its_turn_without_a_slot_and_says_for_whom(
    tasks: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from airflow.sdk.exceptions import TaskDeferred

    from spark_jobs.storage.coordination.turns import NoDriver, Turn, hold_turn

    task, calls = first_stage(tasks, monkeypatch, tmp_path)
    with (
        hold_turn(tmp_path / "leases", "flights", Turn("cli-1", 0, "2013-01-01"), driver=NoDriver()),
        pytest.raises(TaskDeferred) as waiting,
    ):
        task.execute(context(dag_run(*JANUARY_2)))
    assert calls == []
    path, arguments = waiting.value.trigger.serialize()
    assert path == "spark_jobs.scheduling.trigger.TurnTrigger"
    assert (arguments["run_id"], arguments["drops"]) == ("r", "2013-01-02")
    task.execute(context(dag_run(*JANUARY_2)))
    assert len(calls) == 1


def test_a_run_lets_the_one_before_it_pass_if_its_drops_are_earlier(
    tasks: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from airflow.sdk.exceptions import TaskDeferred

    task, calls = first_stage(tasks, monkeypatch, tmp_path)
    monkeypatch.setattr("spark_jobs.scheduling.trigger.DagRuns.is_on", lambda self, run_id: True)
    before = dag_run("2013-01-01", "2013-01-02", run_id="first", run_type="backfill")
    with pytest.raises(TaskDeferred) as waiting:
        task.execute(context(dag_run(*JANUARY_2), before))
    assert waiting.value.trigger.serialize()[1]["before"] == "first"
    later = dag_run("2013-01-01", "2013-01-02", run_id="first", conf={"from": "2013-01-03"})
    task.execute(context(dag_run(*JANUARY_2), later))
    assert len(calls) == 1


def test_the_trigger_fires_once_the_run_has_its_turn(tasks: Any, tmp_path: Path) -> None:
    import asyncio

    from spark_jobs.scheduling import trigger
    from spark_jobs.storage.coordination.turns import Line, NoDriver, Turn

    other = Line(tmp_path, "flights", Turn("cli-1", 0, "2013-01-01"), NoDriver())
    assert other.step() is None
    arguments: dict[str, Any] = {
        "leases": str(tmp_path),
        "dag_id": "flights",
        "run_id": "r",
        "lo_us": 1,
        "drops": "2013-01-02",
    }
    waiting = trigger.TurnTrigger(**arguments, before=None)

    async def fires() -> Any:
        run = waiting.run()
        event = asyncio.ensure_future(anext(run))
        await asyncio.sleep(0)
        other.end()
        return await event

    asyncio.run(fires())
    mine = Line(tmp_path, "flights", Turn("r", 1, "2013-01-02", staged=True), NoDriver())
    assert mine.has_turn()


def test_a_scheduled_run_takes_the_drops_before_its_own_that_an_outage_left_out(
    tasks: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from spark_jobs.jobs import catching_up

    task, calls = first_stage(tasks, monkeypatch, tmp_path)
    monkeypatch.setattr(catching_up, "drops_due", lambda _, __, drops: range(1, drops.stop))
    given = context(dag_run("2013-01-04", "2013-01-05", run_type="scheduled"))
    task.execute(given)
    # by now these drops are sealed: a later stage takes those of the first one all the same
    monkeypatch.setattr(catching_up, "drops_due", lambda _, __, drops: drops)
    operator(tasks).execute(given)
    task.execute(context(dag_run("2013-01-04", "2013-01-05", run_type="scheduled")))
    assert [(name, run["lo"], run["hi"]) for name, run in calls] == [
        ("land", at("2013-01-02"), at("2013-01-05")),
        ("seal", at("2013-01-02"), at("2013-01-05")),
        ("land", at("2013-01-04"), at("2013-01-05")),
    ]


def test_a_run_that_somebody_started_takes_no_other_drops(
    tasks: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from spark_jobs.jobs import catching_up

    task, calls = first_stage(tasks, monkeypatch, tmp_path)
    monkeypatch.setattr(catching_up, "drops_due", lambda _, __, drops: range(drops.stop))
    for run_type in ("manual", "backfill"):
        task.execute(context(dag_run("2013-01-04", "2013-01-05", run_type=run_type)))
    assert {run["lo"] for _, run in calls} == {at("2013-01-04")}


def test_a_run_that_catches_up_waits_for_the_inputs_of_all_its_drops_and_in_line_by_its_own(
    tasks: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from airflow.sdk.exceptions import TaskDeferred

    from spark_jobs.jobs import catching_up
    from spark_jobs.scheduling import inputs
    from spark_jobs.storage.coordination.turns import NoDriver, Turn, hold_turn

    first_stage(tasks, monkeypatch, tmp_path)
    task = tasks.StageOperator(task_id="land", source="flights", drops=DAILY, waits=True)
    monkeypatch.setattr(catching_up, "drops_due", lambda _, __, drops: range(1, drops.stop))
    monkeypatch.setattr(inputs.RunInputs, "missing_input", lambda *_: "a file")
    given = context(dag_run("2013-01-04", "2013-01-05", run_type="scheduled"))
    with pytest.raises(TaskDeferred) as waiting:
        task.execute(given)
    arguments = waiting.value.trigger.serialize()[1]
    assert (arguments["lo_us"], arguments["hi_us"]) == (DAILY.start(1), DAILY.start(4))
    monkeypatch.setattr(inputs.RunInputs, "missing_input", lambda *_: None)
    with (
        hold_turn(tmp_path / "leases", "flights", Turn("cli-1", 0, "2013-01-01"), driver=NoDriver()),
        pytest.raises(TaskDeferred) as waiting,
    ):
        task.execute(given)
    # a backfill on its way has run those drops by the time that it is this run's turn
    assert waiting.value.trigger.serialize()[1]["lo_us"] == DAILY.start(3)


def test_a_drop_without_files_is_shown_as_skipped(tasks: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from airflow.sdk.exceptions import AirflowSkipException

    summary = {"files": 0, "known_files": 0, "empty_drops": ["2013-01-02"]}
    task, calls = first_stage(tasks, monkeypatch, tmp_path, summary)
    with pytest.raises(AirflowSkipException, match="no file for 2013-01-02: taken as empty"):
        task.execute(context(dag_run(*JANUARY_2)))
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("landing", "missing"),
    [
        ({"kind": "table", "connection": "c", "table": "t", "snapshot": True}, "no row for 2013-01-02"),
        ({"kind": "topic", "connection": "c", "topic": "t", "format": "ndjson"}, "no message for 2013-01-02"),
    ],
)
def test_what_an_empty_drop_lacks_is_a_row_of_a_table_and_a_message_of_a_topic(
    tasks: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, landing: dict[str, Any], missing: str
) -> None:
    import yaml
    from airflow.sdk.exceptions import AirflowSkipException

    file = yaml.safe_load((Path(tasks.__file__).parent / "sources" / "flights.yml").read_text())
    (tmp_path / "flights.yml").write_text(yaml.safe_dump(file | {"landing": landing}))
    monkeypatch.setenv("TIDEMARK_SOURCES", str(tmp_path))
    summary = {"files": 0, "known_files": 0, "empty_drops": ["2013-01-02"]}
    task, _ = first_stage(tasks, monkeypatch, tmp_path / "home", summary)
    with pytest.raises(AirflowSkipException, match=f"^{missing}: taken as empty"):
        task.execute(context(dag_run(*JANUARY_2)))


def test_a_plan_is_asked_about_first_and_what_was_approved_is_what_runs(
    tasks: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import _plans
    from airflow.api_fastapi.execution_api.datamodels.hitl import HITLDetailRequest
    from airflow.sdk.exceptions import AirflowSkipException, TaskAwaitingInput
    from airflow.sdk.execution_time import hitl

    from spark_jobs.jobs.base import Base
    from spark_jobs.plans.plan import Plan

    texts: dict[str, Any] = dict.fromkeys(("definition", "published_definition"), "d")
    times: dict[str, Any] = dict.fromkeys(
        ("seal_us", "reached_us", "horizon_us", "published_us", "published_reached_us"), 0
    )
    about: dict[str, Any] = {
        "only_file": None,
        "retract": False,
        "replay": None,
        "files": {},
        "landed": (),
        "landed_through": 0,
    }
    base = Base(source="flights", lo_us=1, hi_us=2, **about, **texts, **times)
    monkeypatch.setattr(_plans, "_plan", lambda *_: Plan(base, [], [], [], None))
    shown: list[dict[str, Any]] = []

    def send(**detail: Any) -> None:
        """As Airflow's server takes it, to which a task sends what it does not say as nothing."""
        detail = {"params": None, "body": None, **detail, "ti_id": uuid4()}
        shown.append(HITLDetailRequest.model_validate(detail).model_dump())

    monkeypatch.setattr(hitl, "upsert_hitl_detail", send)

    task, calls = first_stage(tasks, monkeypatch, tmp_path)
    given = context(dag_run(*JANUARY_2), plan=True)
    with pytest.raises(TaskAwaitingInput) as waiting:
        task.execute(given)
    assert (calls, shown[0]["options"], shown[0]["defaults"]) == ([], ["Approve", "Reject"], ["Reject"])
    assert shown[0]["subject"] == "flights, no drop: the run would change no published row. Approve?"
    assert waiting.value.method_name == "answered"

    for event, why in (
        ({"chosen_options": ["Reject"], "responded_by_user": {"name": "Eve"}}, "rejected by Eve"),
        ({"chosen_options": ["Reject"], "timedout": True}, "nobody approved the plan within 24 hours"),
    ):
        with pytest.raises(AirflowSkipException, match=why):
            task.answered(given, event, **waiting.value.kwargs)
    with pytest.raises(AirflowSkipException, match="rejected"):
        operator(tasks).execute(given)
    assert calls == []

    given = context(dag_run(*JANUARY_2), plan=True)
    task.answered(given, {"chosen_options": ["Approve"], "responded_by_user": None}, **waiting.value.kwargs)
    operator(tasks).execute(given)
    assert [request["request"] for _, request in calls] == [Request.of_plan(base), Request(accept_definition=True)]

    # a retry of the task asks nobody as long as the plan is the approved one
    calls.clear()
    task.execute(context(dag_run(*JANUARY_2), plan=True))
    assert [request["request"] for _, request in calls] == [Request.of_plan(base)]
    monkeypatch.setattr(_plans, "_plan", lambda *_: Plan(replace(base, seal_us=1), [], [], [], None))
    with pytest.raises(TaskAwaitingInput):
        task.execute(context(dag_run(*JANUARY_2), plan=True))


def test_a_plan_shows_names_and_rows_of_other_people_as_text(tasks: Any) -> None:
    import _plans

    hostile = "<script>alert(1)</script> | [x](javascript:1) `y`\n# z"
    assert not set("<>|[]`\n#") - set(hostile)
    assert not set(_plans._cell(hostile).replace("&#", "")) & set("<>|[]`\n#")
    values = (None, 1234567, datetime(2024, 1, 1, 0, 10, tzinfo=UTC), 0.1, True)
    assert [_plans._cell(value) for value in values] == ["", "1,234,567", "2024-01-01 00:10Z", "0.1", "True"]


def test_what_the_source_file_waits_for_holds_no_slot(
    tasks: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import asyncio

    from airflow.sdk.exceptions import TaskDeferred

    from spark_jobs.scheduling import inputs

    text = (Path(tasks.__file__).parent / "sources" / "flights.yml").read_text()
    monkeypatch.setenv("TIDEMARK_SOURCES", str(tmp_path))
    monkeypatch.setenv("TIDEMARK_LANDING", str(tmp_path / "landing"))
    (tmp_path / "flights.yml").write_text(text.replace("landing:\n", "landing:\n  wait: 2 h\n"))
    asked: dict[str, Any] = {"source": "flights", "lo_us": DAILY.start(1), "hi_us": DAILY.start(3), "scheduled": True}
    waiting = inputs.RunInputs(**asked)
    in_time, too_late = at("2013-01-04T01:59"), at("2013-01-04T02:00")
    assert waiting.missing_input(in_time) == "files of 2013-01-02, 2013-01-03, until 2013-01-04 02:00:00 UTC"
    assert waiting.missing_input(too_late) is None
    for day, files in (("2013-01-02", ["a.csv"]), ("2013-01-03", ["_temporary", ".part"])):
        folder = tmp_path / "landing" / "flights" / day
        folder.mkdir(parents=True)
        for name in files:
            (folder / name).write_text("x")
    assert waiting.missing_input(in_time) == "files of 2013-01-03, until 2013-01-04 02:00:00 UTC"

    # a task that has nothing to wait for any more takes its turn at once; one that has is deferred
    _, calls = first_stage(tasks, monkeypatch, tmp_path / "home")
    task = tasks.StageOperator(task_id="land", source="flights", drops=DAILY, waits=True)
    task.execute(context(dag_run(*JANUARY_2)))
    assert len(calls) == 1
    monkeypatch.setattr(inputs.RunInputs, "missing_input", lambda *_: "a file")
    with pytest.raises(TaskDeferred) as deferred:
        task.execute(context(dag_run(*JANUARY_2)))
    path, arguments = deferred.value.trigger.serialize()
    assert path == "spark_jobs.scheduling.inputs.InputsTrigger"

    answers = iter(["a file", None])
    monkeypatch.setattr(inputs.RunInputs, "missing_input", lambda *_: next(answers))
    monkeypatch.setattr(inputs, "POLL_S", 0.0)

    async def fires() -> Any:
        return await anext(inputs.InputsTrigger(**arguments).run())

    assert asyncio.run(fires()).payload is None


def test_a_scheduled_run_waits_for_the_sources_that_it_comes_after(
    tasks: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from spark_jobs.scheduling.inputs import RunInputs
    from spark_jobs.storage.coordination import publication
    from spark_jobs.trace import frontiers

    folder = Path(tasks.__file__).parent / "sources"
    monkeypatch.setenv("TIDEMARK_SOURCES", str(tmp_path))
    monkeypatch.setenv("TIDEMARK_HOME", str(tmp_path / "home"))
    (tmp_path / "flights.yml").write_text((folder / "flights.yml").read_text())
    text = (folder / "weather.yml").read_text().replace("schedule: manual", "schedule: every\n  after: [flights]")
    (tmp_path / "weather.yml").write_text(text)
    # seven days, of which flights have published six in all
    asked: dict[str, Any] = {"source": "weather", "lo_us": DAILY.start(1), "hi_us": DAILY.start(8)}
    landed: list[tuple[int, int]] = [(0, 4), (5, 8)]

    def published(lake: Any, source: Any, _: Any) -> Any:
        return frontiers.SourceFrontiers.start(source).with_landed(range(0)) if not landed else standing(source)

    def standing(source: Any) -> Any:
        found = frontiers.SourceFrontiers.start(source)
        for lo, hi in landed:
            found = found.with_landed(range(lo, hi))
        return found

    monkeypatch.setattr(frontiers, "published_frontiers", published)
    monkeypatch.setattr(publication, "load", lambda *_: None)
    now = at("2013-01-10")
    assert RunInputs(**asked, scheduled=True).missing_input(now) == "flights, which has not published 2013-01-05"
    assert RunInputs(**asked, scheduled=False).missing_input(now) is None
    landed.append((4, 5))
    assert RunInputs(**asked, scheduled=True).missing_input(now) is None


def test_the_events_of_a_publication_say_of_which_rows_and_drops(tasks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.sdk import Asset
    from airflow.sdk.execution_time.context import OutletEventAccessors

    ending(tasks, monkeypatch, {"published_us": DAILY.start(3), "moved": True, "published_by": "r"})
    monkeypatch.setattr(tasks, "end_turn", lambda *_: None)
    outlets = [Asset(uri) for uri in ("tidemark://published/flights", "tidemark://drops/flights")]
    task = tasks.StageOperator(task_id="publish", source="flights", drops=DAILY, outlets=outlets)
    given = context(dag_run("2013-01-02", "2013-01-04")) | {"outlet_events": OutletEventAccessors()}
    given["ti"].xcom_push("return_value", {"rows": 1976})
    task.execute(given)
    plain, of_drops = (given["outlet_events"][asset] for asset in outlets)
    assert plain.extra == of_drops.extra
    assert plain.extra | {"page": ""} == {
        "run_id": "r",
        "from": "2013-01-02",
        "to": "2013-01-03",
        "lo": "2013-01-02T00:00:00+00:00",
        "hi": "2013-01-04T00:00:00+00:00",
        "rows": 1976,
        "published": "2013-01-04T00:00:00+00:00",
        "changed": True,
        "page": "",
    }
    assert plain.extra["page"].endswith("/runs/flights/r.html")
    # whose event has partitions starts only who listens to partitions
    assert (plain.partition_keys, of_drops.partition_keys) == (set(), {"2013-01-02", "2013-01-03"})


@pytest.mark.parametrize(("published_by", "changed"), [("r", True), ("earlier", False), ("", False)])
def test_an_event_says_what_the_run_published_also_where_an_earlier_try_did(
    tasks: Any, monkeypatch: pytest.MonkeyPatch, published_by: str, changed: bool
) -> None:
    from airflow.sdk import Asset
    from airflow.sdk.execution_time.context import OutletEventAccessors

    # the first try published and its marts failed: for the second there is nothing to publish
    ending(tasks, monkeypatch, {"published_us": DAILY.start(3), "moved": False, "published_by": published_by})
    monkeypatch.setattr(tasks, "end_turn", lambda *_: None)
    outlet = Asset("tidemark://published/flights")
    task = tasks.StageOperator(task_id="publish", source="flights", drops=DAILY, outlets=[outlet])
    given = context(dag_run(*JANUARY_2)) | {"outlet_events": OutletEventAccessors()}
    task.execute(given)
    assert given["outlet_events"][outlet].extra["changed"] is changed


def test_ending_a_task_unwinds_its_stage(tasks: Any) -> None:
    with pytest.raises(KeyboardInterrupt):
        operator(tasks).on_kill()


def test_whom_the_file_names_is_told_of_empty_drops_and_of_checks_that_warn(
    tasks: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spark_jobs.scheduling import alerts
    from spark_jobs.storage.lakes import results

    told: list[Any] = []
    monkeypatch.setattr(alerts, "send", lambda _, alert, to: told.append((alert.event, alert.message, to)))
    monkeypatch.setattr(results, "warned_checks", lambda *_: ["load_is_sane (3 rows)"])
    monkeypatch.setattr(tasks, "end_turn", lambda *_: None)
    for stage, outcome in (
        ("window", {"empty_drops": ["2013-01-02"], "files": 0, "known_files": 1}),
        ("publish", {}),
    ):
        ending(tasks, monkeypatch, outcome)
        for notify in ((), ("team@example.org",)):
            tasks.StageOperator(task_id=stage, source="flights", drops=DAILY, notify=notify).execute(
                context(dag_run(*JANUARY_2))
            )
    assert told == [
        ("empty", "no file for 2013-01-02: taken as empty", ["team@example.org"]),
        ("warned", "checks of run r warn: load_is_sane (3 rows)", ["team@example.org"]),
    ]


def maintaining(tasks: Any, monkeypatch: pytest.MonkeyPatch, outcome: Any) -> Any:
    from spark_jobs.upkeep import maintenance

    def maintain(*_: Any) -> Any:
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    monkeypatch.setattr(maintenance, "maintain", maintain)
    return tasks.MaintenanceOperator(task_id="maintain_flights", source="flights")


def maintenance_step(step: str, do: str = "") -> Any:
    from spark_jobs.storage.delta.file_upkeep import Footprint
    from spark_jobs.upkeep.maintenance import MaintenanceStep

    return MaintenanceStep("flights", step, "in use", Footprint(9, 1234), Footprint(2, 1000), 0.5, "done", do)


def test_the_log_of_a_maintenance_has_its_steps_as_a_table(tasks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    task = maintaining(tasks, monkeypatch, [maintenance_step("chunks"), maintenance_step("fold")])
    told: list[str] = []
    log = SimpleNamespace(info=lambda text, *of: told.append(text % of), warning=lambda *_: None)
    monkeypatch.setattr(type(task), "log", log)
    assert [step["step"] for step in task.execute({"run_id": "r"})] == ["chunks", "fold"]
    lines = told[0].splitlines()
    assert lines[1].split()[:3] == ["about", "step", "counted"]
    assert lines[2].split() == ["flights", "chunks", "in", "use", "9", "2", "1,234", "1,000", "0.5", "done"]


def test_a_maintenance_of_which_a_step_failed_fails_without_a_retry_and_names_it(
    tasks: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    steps = [maintenance_step("chunks"), maintenance_step("fold", "free some space"), maintenance_step("vacuum")]
    with pytest.raises(AirflowFailException, match=r"flights, fold.*free some space"):
        maintaining(tasks, monkeypatch, steps).execute({"run_id": "r"})


def test_a_maintenance_is_tried_again_where_the_lake_server_was_away(
    tasks: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = ServerUnreachable(expected="a server", found="none")
    with pytest.raises(ServerUnreachable):
        maintaining(tasks, monkeypatch, away).execute({"run_id": "r"})
