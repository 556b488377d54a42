"""What the portal shows of a run's checks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.portal.held_lake import HeldLake
from spark_jobs.portal.results import _RESULTS, results, results_of_run
from spark_jobs.sources import Source

RESULT = dict.fromkeys(_RESULTS.column_names) | {"run_id": "run-1", "gate": "silver", "kind": "suite", "token": 7}


class Stored:
    """A lake that holds these results and nothing else."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows = rows

    def records(self, table: object, _: object) -> list[dict[str, Any]]:
        return []

    def of_source(self, _: object, __: str, where: pc.Expression | None = None) -> pa.Table:
        kinds = {"token": pa.int64(), "failing": pa.int64()}
        schema = pa.schema([(name, kinds.get(name, pa.string())) for name in _RESULTS.column_names])
        rows = pa.Table.from_pylist(self.rows, schema=schema)
        return rows if where is None else rows.filter(where)


def shown(*rows: dict[str, Any]) -> list[tuple[Any, ...]]:
    lake, source = cast(HeldLake, Stored([RESULT | row for row in rows])), cast(Source, SimpleNamespace(name="meters"))
    of_run = results_of_run(lake, source, "run-1")
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


def test_of_checks_that_always_pass_one_result_of_a_run_stays_in_memory() -> None:
    passed = [{"name": name, "verdict": "passed", "run_id": run} for name in "abcd" for run in ("run-1", "run-2")]
    warned = {"name": "d", "verdict": "warned", "run_id": "run-3"}
    audited: dict[str, Any] = {"name": "e", "verdict": "passed", "run_id": "run-1", "gate": "audit", "token": 1}
    rows = [RESULT | row for row in (audited, *passed, warned)]
    lake, source = cast(HeldLake, Stored(rows)), cast(Source, SimpleNamespace(name="meters"))
    kept = {run: [(row["gate"], row["name"]) for row in found] for run, found in results(lake, source).items()}
    # a later result of a check decides whether its warning still counts
    assert kept == {
        "run-1": [("silver", "a"), ("silver", "d")],
        "run-2": [("silver", "a"), ("silver", "d")],
        "run-3": [("silver", "d")],
    }
    assert len(results_of_run(lake, source, "run-1")) == 5
