"""What the portal shows of a run's checks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa

from spark_jobs.portal.held_lake import HeldLake
from spark_jobs.portal.results import _RESULTS, checks, results_of_run
from spark_jobs.sources import Source
from spark_jobs.storage.descriptions.schema import Table

RESULT = dict.fromkeys(_RESULTS.column_names) | {"run_id": "run-1", "gate": "silver", "kind": "suite", "token": 7}


class Stored:
    """A lake that holds these results and nothing else."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows = rows

    def of_source(self, table: Table, _: str, columns: Any = (), where: Any = None, repeated: Any = ()) -> pa.Table:
        kinds = {"token": pa.int64(), "failing": pa.int64()}
        schema = pa.schema([(name, kinds.get(name, pa.string())) for name in table.column_names])
        rows = pa.Table.from_pylist(self.rows if table.table == "results" else [], schema=schema)
        rows = rows if where is None else rows.filter(where)
        return rows.select(columns) if columns else rows


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


def test_of_checks_that_always_pass_no_result_is_told() -> None:
    passed = [{"name": name, "verdict": "passed", "run_id": run} for name in "abcd" for run in ("run-1", "run-2")]
    warned = {"name": "d", "verdict": "warned", "run_id": "run-3"}
    audited: dict[str, Any] = {"name": "e", "verdict": "passed", "run_id": "run-1", "gate": "audit", "token": 1}
    rows = [RESULT | row for row in (audited, *passed, warned)]
    lake, source = cast(HeldLake, Stored(rows)), cast(Source, SimpleNamespace(name="meters"))
    of_checks = checks(lake, source)
    assert len(of_checks.rows) == len(rows)
    # a later result of a check decides whether its warning still counts
    assert [(row["run_id"], row["name"], row["verdict"]) for row in of_checks.telling] == [
        ("run-1", "d", "passed"),
        ("run-2", "d", "passed"),
        ("run-3", "d", "warned"),
    ]
    assert len(results_of_run(lake, source, "run-1")) == 5


def test_of_a_result_that_stopped_a_run_its_words_are_told() -> None:
    words = {"expectation": "Loads are small.", "observed": "101"}
    stopped = RESULT | {"name": "low", "verdict": "failed", **words}
    rows = [stopped, RESULT | {"name": "low", "verdict": "passed", "run_id": "run-2", "token": 9}]
    lake, source = cast(HeldLake, Stored(rows)), cast(Source, SimpleNamespace(name="meters"))
    failed, passed = checks(lake, source).telling
    assert words.items() <= failed.items() and not words.keys() & passed.keys()
