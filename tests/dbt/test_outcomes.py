"""What a build of dbt comes to: which marts may be shown, and what people are told of those that may not."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil

from spark_jobs.config import Settings
from spark_jobs.judging.mart_tests import verdict_of
from spark_jobs.publish.marts import MartsResult, MartTest, marts_failed
from spark_jobs.publish.project import PROJECT, Project
from spark_jobs.server.state import SupervisorState, write_state

STACK = "\n".join(["  Query execution failed: [UNRESOLVED_COLUMN] `dely`", *["\tat org.apache.spark.Frame"] * 80])


def model(name: str, status: str = "success", message: str | None = "OK", file: str | None = None) -> Any:
    path = file or f"models/own/{name}.sql"
    node = SimpleNamespace(name=name, resource_type="model", original_file_path=path)
    return SimpleNamespace(node=node, status=status, message=message, failures=None)


def came_of_test(name: str, status: str, *reads: str, severity: str = "ERROR", failures: int | None = None) -> Any:
    node = SimpleNamespace(
        name=name,
        resource_type="test",
        depends_on_nodes=[*(f"model.tidemark.{each}" for each in reads), "source.tidemark.silver.x"],
        config=SimpleNamespace(severity=severity),
        compiled_code="select 1",
        original_file_path=f"tests/own/{name}.sql",
    )
    message = f"Got {failures} results, configured to fail if != 0" if failures else None
    return SimpleNamespace(node=node, status=status, message=message, failures=failures)


def run_with_airflow(settings: Settings) -> None:
    """Write the state of a supervisor with Airflow that is alive: this process."""
    me = psutil.Process()
    write_state(settings, SupervisorState(me.pid, me.create_time(), "code", True, {}, ()))


def built(*results: Any) -> MartsResult:
    return MartsResult.of("flights", results, 1.0)


def test_a_mart_whose_test_was_skipped_since_another_model_failed_is_not_shown() -> None:
    result = built(model("good"), model("bad", "error", STACK), came_of_test("they_agree", "skipped", "good", "bad"))
    assert result.passed == []
    assert result.stay == ["bad", "good"]
    assert [failure.name for failure in result.failed] == ["bad"], "what failed by itself"


def test_a_mart_is_shown_if_each_test_that_reads_it_has_run_and_passed() -> None:
    result = built(
        model("good"),
        model("other"),
        model("skipped", "skipped", None),
        came_of_test("holds", "pass", "good"),
        came_of_test("warns", "warn", "good", failures=2),
        came_of_test("may_be_left_out", "skipped", "good", "skipped", severity="WARN"),
        came_of_test("breaks", "fail", "other", failures=2),
    )
    assert (result.passed, result.stay) == (["good"], ["other", "skipped"])


def test_a_test_that_was_skipped_without_a_failure_fails_the_build_all_the_same() -> None:
    result = built(model("good"), came_of_test("alone", "skipped", "good"))
    assert (result.passed, [failure.name for failure in result.failed]) == ([], ["alone"])


def test_a_test_that_was_not_run_is_recorded_as_one_that_could_not_be_checked() -> None:
    verdict = verdict_of(MartTest.of(came_of_test("they_agree", "skipped", "good", "bad")))
    assert verdict.verdict == "error"
    assert "not run" in verdict.observed


def test_the_error_says_what_failed_how_many_rows_who_acts_and_where_to_look(tmp_path: Path) -> None:
    own = tmp_path / "our-dbt"
    (own / "models").mkdir(parents=True)
    settings = Settings(home=tmp_path, dbt=own)
    shipped = "models/marts/aircraft_state.sql"
    result = built(
        model("bad", "error", STACK),
        model("aircraft_state", "error", "x" * 5000, shipped),
        model("delays"),
        came_of_test("none_is_late", "fail", "delays", failures=1234),
    )
    source: Any = SimpleNamespace(name="flights", dag=SimpleNamespace(owner="data-team"))
    project, again = Project(tmp_path / "project"), "tidemark run flights --from 2013-01-01"
    run_with_airflow(settings)
    error = marts_failed(settings, project, source, result, visible={"bad", "delays"}, again=again)
    told = str(error)
    for part in (
        "model bad",
        "[UNRESOLVED_COLUMN] `dely`",
        str(own / "models" / "bad.sql"),
        str(PROJECT / shipped),
        "test none_is_late",
        "1,234 rows",
        str(own / "tests" / "none_is_late.sql"),
        settings.page_url("marts", "delays"),
        "the owner of flights (data-team)",
        "marts.bad, marts.delays stay as they were; marts.aircraft_state is not there until its tests pass",
        f"`{again}` builds the marts again",
        "dbt.log",
    ):
        assert part in told, part
    assert told.count("at org.apache") < 5
    assert len(told) < 4000
    assert error.failed["bad"].startswith("Query execution failed")


def test_no_page_is_named_where_no_airflow_serves_it(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path)
    source: Any = SimpleNamespace(name="flights", dag=SimpleNamespace(owner="data-team"))
    result = built(model("delays"), came_of_test("none_is_late", "fail", "delays", failures=1))
    error = marts_failed(settings, Project(tmp_path), source, result, visible=(), again="tidemark run")
    assert "http" not in str(error)
    assert "Airflow" not in str(error)
    assert "silver and gold are published; marts.delays is not there until its tests pass" in error.consequence


def test_a_build_without_failures_names_its_marts_and_counts_their_tests() -> None:
    tests = [came_of_test("holds", "pass", "good"), came_of_test("warns", "warn", "good", severity="WARN", failures=2)]
    assert built(model("good"), *tests).describe() == "marts.good built in 1.0 s; 1 test passed, 1 warned"
    assert built(model("good"), model("other")).describe() == (
        "marts.good, marts.other built in 1.0 s; no test is about them"
    )
