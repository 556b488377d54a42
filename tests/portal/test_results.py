"""What the portal shows of a run's checks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from spark_jobs.portal.held_lake import HeldLake
from spark_jobs.portal.results import _RESULTS, results
from spark_jobs.sources import Source

RESULT = dict.fromkeys(_RESULTS.column_names) | {"run_id": "run-1", "gate": "silver", "kind": "suite", "token": 7}


class Stored:
    """A lake that holds these results and nothing else."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows = rows

    def records(self, table: object, _: object) -> list[dict[str, Any]]:
        return self.rows if table is _RESULTS else []


def shown(*rows: dict[str, Any]) -> list[tuple[Any, ...]]:
    lake, source = cast(HeldLake, Stored([RESULT | row for row in rows])), cast(Source, SimpleNamespace(name="meters"))
    of_run = results(lake, source)["run-1"]
    return sorted((row["relation"] or "", row["verdict"]) for row in of_run)


def test_checks_of_one_name_on_two_tables_are_both_shown() -> None:
    hourly = {"name": "between", "relation": "silver.hourly", "verdict": "passed"}
    assert shown(hourly, {**hourly, "relation": "silver.shifts", "verdict": "failed"}) == [
        ("silver.hourly", "passed"),
        ("silver.shifts", "failed"),
    ]


def test_the_newest_result_of_a_check_is_shown_whatever_tables_it_names() -> None:
    first = {"name": "rows_due", "kind": "invariant", "relation": None, "verdict": "passed"}
    assert shown(first, {**first, "token": 8, "relation": "silver.hourly", "verdict": "failed"}) == [
        ("silver.hourly", "failed")
    ]
