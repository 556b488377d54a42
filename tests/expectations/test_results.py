"""Which rows of quality.results count, which runs are the newest, and what becomes of dbt's tests."""

from __future__ import annotations

from typing import Any

import pytest

from spark_jobs.gates.results import newest_runs, results_that_count
from spark_jobs.judging.mart_tests import verdict_of
from spark_jobs.publish.marts import MartTest


def row(run_id: str, token: int, name: str, verdict: str = "passed", source: str = "a", **more: Any) -> dict[str, Any]:
    of_run = {"source": source, "run_id": run_id, "token": token}
    return {**of_run, "gate": "bronze", "kind": "check", "relation": None, "name": name, "verdict": verdict, **more}


def test_of_a_check_that_a_repeated_stage_asks_again_the_last_answer_counts() -> None:
    rows = [
        row("r", 5, "x", "failed"),
        row("r", 9, "x", "overridden"),
        row("r", 5, "y"),
        row("r", 9, "x", gate="silver"),
    ]
    counted = {(r["gate"], r["name"]): r["verdict"] for r in results_that_count(rows)}
    assert counted == {("bronze", "x"): "overridden", ("bronze", "y"): "passed", ("silver", "x"): "passed"}


def test_the_newest_runs_of_each_source_are_shown_newest_first() -> None:
    rows = [row(f"r{n}", n, "x") for n in range(7)] + [row("other", 3, "x", source="b")]
    shown = newest_runs(rows, runs=2)
    assert [(of_run[0]["source"], of_run[0]["run_id"]) for of_run in shown] == [
        ("a", "r6"),
        ("a", "r5"),
        ("b", "other"),
    ]
    assert [r[0]["run_id"] for r in newest_runs(rows, source="a", run_id="r1")] == ["r1"]
    assert newest_runs(rows, source="c") == []


@pytest.mark.parametrize(
    ("status", "severity", "verdict", "stops"),
    [
        ("pass", "error", "passed", False),
        ("fail", "error", "failed", True),
        ("warn", "warn", "warned", False),
        ("error", "error", "error", True),
    ],
)
def test_a_test_of_dbt_is_a_result_like_others(status: str, severity: str, verdict: str, stops: bool) -> None:
    failures = 2 if status in ("fail", "warn") else 0 if status == "pass" else None
    test = MartTest("grain_x", "airport_delays", frozenset(), status, failures, severity, "Got 2 results", "SELECT 1")
    told = verdict_of(test, [{"origin": "JFK"}] if failures else [])
    assert (told.verdict, told.stops, told.kind, told.relation) == (verdict, stops, "mart_test", "marts.airport_delays")
    assert (told.on_failure is None) == (verdict == "passed")
    assert told.failing == failures
