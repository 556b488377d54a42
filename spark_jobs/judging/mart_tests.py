"""The results of dbt's tests, recorded beside those of the gates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from spark_jobs.gates import Verdict
from spark_jobs.gates.verdicts import MAX_EXAMPLES, Answer
from spark_jobs.judging.gate import JudgedRun, keep_verdicts, write_verdicts
from spark_jobs.publish.marts import MartTest
from spark_jobs.storage.lakes.lake import FrameLake
from spark_jobs.storage.names.shown_marts import MARTS

_ANSWERS: dict[str, Answer] = {"pass": "passed", "warn": "warned", "fail": "failed"}


def keep_mart_tests(run: JudgedRun, lake: FrameLake, seal_us: int, tests: Sequence[MartTest]) -> None:
    """Record a verdict for each test, with some rows that break it; `seal_us` is as in `write_verdicts`.

    A test that dbt skipped has a verdict too, since it may hold marts back.
    """
    verdicts = [verdict_of(test, _rows(lake, test)) for test in tests]
    keep_verdicts(run.lease, MARTS, [asdict(verdict) for verdict in verdicts], ("mart_test",))
    write_verdicts(lake, run, seal_us)


def verdict_of(test: MartTest, rows: Sequence[dict[str, Any]] = ()) -> Verdict:
    """The verdict of one of dbt's tests, with `rows` that break it."""
    answer = _ANSWERS.get(test.status, "error")
    warns = test.severity == "warn"
    act = f"Correct the model or the data, then run the publish stage again; dbt says: {test.message}"
    return Verdict(
        MARTS,
        test.name,
        f"dbt's test {test.name} finds no row",
        f"{test.failures} rows" if test.failures is not None and answer != "error" else test.message,
        answer,
        expected="0 rows",
        kind="mart_test",
        relation=f"{MARTS}.{test.mart}" if test.mart else None,
        severity="warning" if warns else "critical",
        treatment="warn" if warns else "fail",
        failing=test.failures,
        sample=tuple(rows),
        on_failure=None if answer == "passed" else act,
    )


def _rows(lake: FrameLake, test: MartTest) -> list[dict[str, Any]]:
    """Some rows that break a test; none if its query can't be run again."""
    from pyspark.errors import PySparkException

    if test.status not in ("fail", "warn") or not test.query:
        return []
    try:
        failing = lake.spark.sql(test.query).limit(MAX_EXAMPLES).toArrow()
    except PySparkException:
        return []
    return list(failing.to_pylist())
