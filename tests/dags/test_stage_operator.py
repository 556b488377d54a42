"""What a task does in its process: which interval it runs, what it retries, how it ends."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spark_jobs.errors import ConfigurationError, TidemarkError
from spark_jobs.gates.verdicts import GateFailed, Verdict
from spark_jobs.server.errors import ServerUnreachable

pytestmark = pytest.mark.slow

DAY_US = 86_400_000_000


@pytest.fixture(scope="module")
def factory() -> Iterator[Any]:
    """The module as Airflow imports it, from the DAGs' folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parents[2] / "dags"))
        import _factory

        yield _factory
        sys.modules.pop("_factory", None)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def context(*, lo: str | None = None, hi: str | None = None, run_type: str = "manual", **params: Any) -> dict[str, Any]:
    """A task's context as Airflow gives it."""
    run = SimpleNamespace(
        run_type=run_type,
        data_interval_start=at(lo) if lo else None,
        data_interval_end=at(hi) if hi else None,
        run_after=at("2013-01-05T09:30:00"),
    )
    return {"dag_run": run, "run_id": "r", "params": {"from": None, "to": None, "dry_run": False, **params}}


def operator(factory: Any, **changes: Any) -> Any:
    return factory.StageOperator(
        **{"task_id": "seal", "source": "flights", "start_us": 0, "every_us": DAY_US, "by_hand": False, **changes}
    )


def ending(factory: Any, monkeypatch: pytest.MonkeyPatch, outcome: Any) -> Any:
    """An operator whose stage ends with `outcome`; returns it and the calls that it made."""
    from spark_jobs.jobs import stage

    calls: list[Any] = []

    def run_stage(name: str, **arguments: Any) -> Any:
        calls.append((name, arguments))
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    monkeypatch.setattr(stage, "run_stage", run_stage)
    monkeypatch.setattr(factory, "_preload_beside", lambda _: None)
    return operator(factory), calls


def test_a_scheduled_run_covers_its_data_interval(factory: Any) -> None:
    run = context(lo="2013-01-02", hi="2013-01-03", run_type="scheduled")
    assert factory.run_interval(run, start_us=0, every_us=DAY_US) == (at("2013-01-02"), at("2013-01-03"))


def test_parameters_name_the_first_and_the_last_drop_both_included(factory: Any) -> None:
    run = context(lo="2013-02-01", hi="2013-02-02", **{"from": "2013-01-02", "to": "2013-01-04"})
    assert factory.run_interval(run, start_us=0, every_us=DAY_US) == (at("2013-01-02"), at("2013-01-05"))


def test_a_first_drop_alone_is_the_last_one_too(factory: Any) -> None:
    assert factory.run_interval(context(**{"from": "2013-01-02"}), start_us=0, every_us=DAY_US) == (
        at("2013-01-02"),
        at("2013-01-03"),
    )


@pytest.mark.parametrize("empty", [(None, None), ("2013-01-05T09:30:00", "2013-01-05T09:30:00")])
def test_a_run_without_an_interval_covers_the_last_drop_that_has_ended(factory: Any, empty: tuple[Any, Any]) -> None:
    run = context(lo=empty[0], hi=empty[1])
    assert factory.run_interval(run, start_us=0, every_us=DAY_US) == (at("2013-01-04"), at("2013-01-05"))


def test_weekly_drops_count_from_the_start_of_the_source_not_from_airflows_weeks(factory: Any) -> None:
    monday, week = int(at("2012-12-03").timestamp() * 1_000_000), 7 * DAY_US
    drop = (at("2012-12-24"), at("2012-12-31"))
    for run in (context(), context(lo="2012-12-27", hi="2013-01-03"), context(lo="2012-12-24", hi="2012-12-31")):
        assert factory.run_interval(run, start_us=monday, every_us=week) == drop


def test_a_task_runs_its_stage_under_the_runs_id(factory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    task, calls = ending(factory, monkeypatch, {"rows": 3})
    assert task.execute(context(lo="2013-01-02", hi="2013-01-03")) == {"rows": 3}
    assert calls == [("seal", {"source": "flights", "lo": at("2013-01-02"), "hi": at("2013-01-03"), "run_id": "r"})]


def test_the_log_has_a_stages_summary_as_a_table(factory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    summary = {"rows": 1976, "files": 1, "empty_drops": [], "accounts": {"hourly": {"rows": 3}}, "moved": True}
    task, _ = ending(factory, monkeypatch, summary)
    lines: list[str] = []
    quiet = dict.fromkeys(("debug", "warning", "error"), lambda *_: None)
    log = SimpleNamespace(**quiet, info=lambda text, *values: lines.extend((text % values).splitlines()))
    monkeypatch.setattr(type(task), "log", log, raising=False)
    task.execute(context(lo="2013-01-02", hi="2013-01-03"))
    assert lines[1:] == [
        "  rows                  1,976",
        "  files                 1",
        "  accounts.hourly.rows  3",
        "  moved                 True",
    ]


def gate_failed() -> GateFailed:
    failed = [Verdict("bronze", "nothing is lost.", "ledger_rows", "3", False)]
    return GateFailed(
        gate="bronze", source="flights", run_id="r", failed=failed, on_failure="look.", examples={}, report="index.html"
    )


@pytest.mark.parametrize(
    "refusal", [gate_failed(), ConfigurationError(expected="a", found="b")], ids=["failed gate", "wrong setting"]
)
def test_a_refusal_that_would_be_the_same_again_is_not_retried(
    factory: Any, monkeypatch: pytest.MonkeyPatch, refusal: TidemarkError
) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    task, _ = ending(factory, monkeypatch, refusal)
    with pytest.raises(AirflowFailException) as failure:
        task.execute(context(lo="2013-01-02", hi="2013-01-03"))
    assert refusal.code in str(failure.value)


@pytest.mark.parametrize(
    "error", [ServerUnreachable(expected="a", found="b"), RuntimeError("lost")], ids=["no server", "any other error"]
)
def test_what_may_pass_by_itself_is_retried(factory: Any, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    task, _ = ending(factory, monkeypatch, error)
    with pytest.raises(type(error)):
        task.execute(context(lo="2013-01-02", hi="2013-01-03"))


def test_the_codes_that_are_retried_exist(factory: Any) -> None:
    import spark_jobs.publish.marts
    import spark_jobs.storage.fence  # noqa: F401

    def codes(error: type[TidemarkError]) -> set[str]:
        return {error.code}.union(*(codes(each) for each in error.__subclasses__()))

    assert codes(TidemarkError) >= factory.RETRIED


def test_a_dry_run_lists_files_and_does_nothing(factory: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from airflow.sdk.exceptions import AirflowSkipException

    drop = tmp_path / "landing" / "flights" / "2013-01-02"
    drop.mkdir(parents=True)
    (drop / "a.csv").write_text("x")
    monkeypatch.setenv("TIDEMARK_LANDING", str(tmp_path / "landing"))
    lines = list(factory.planned_files("flights", at("2013-01-02"), at("2013-01-04")))
    assert lines == [
        "drop 2013-01-02: 1 files, 1 bytes: flights/2013-01-02/a.csv",
        "drop 2013-01-03: 0 files, 0 bytes: ",
    ]
    task, calls = ending(factory, monkeypatch, {})
    with pytest.raises(AirflowSkipException):
        task.execute(context(lo="2013-01-02", hi="2013-01-03", dry_run=True))
    assert calls == []


def test_the_schedule_of_a_source_run_by_hand_does_nothing(factory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.sdk.exceptions import AirflowSkipException

    task, calls = ending(factory, monkeypatch, {})
    task.by_hand = True
    with pytest.raises(AirflowSkipException):
        task.execute(context(lo="2013-01-02", hi="2013-01-03", run_type="scheduled"))
    assert calls == []
    task.execute(context(lo="2013-01-02", hi="2013-01-03", run_type="backfill"))
    assert len(calls) == 1


def test_ending_a_task_unwinds_its_stage(factory: Any) -> None:
    with pytest.raises(KeyboardInterrupt):
        operator(factory).on_kill()
