"""Checks and their results: the rows of `quality.results`, and rows of `quality.verdicts` that an earlier version of
Tidemark left."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pyarrow.compute as pc

from expectations import GATES
from spark_jobs.portal.held_lake import HeldLake
from spark_jobs.sources import Source
from spark_jobs.storage.descriptions.schema import Column, Table

Row = dict[str, Any]
STOPPED = ("failed", "error")
"""Verdicts that stop a run."""
NOTABLE = ("warned", "quarantined", "overridden")
"""Verdicts that a person should see, and that stop nothing."""
_TEXTS = (
    *("run_id", "gate", "kind", "relation", "name", "expectation", "severity", "treatment", "verdict", "observed"),
    *("expected", "sample", "because", "on_failure"),
)


def _read(name: str, texts: Iterable[str], **others: str) -> Table:
    """A table of `quality` with only the columns that the portal reads."""
    kinds = {"source": "STRING", "token": "BIGINT", **dict.fromkeys(texts, "STRING"), **others}
    return Table("quality", name, "", tuple(Column(column, kind, "") for column, kind in kinds.items()), ("source",))


_SPAN = {"drop_lo": "TIMESTAMP", "drop_hi": "TIMESTAMP"}
_RESULTS = _read("results", _TEXTS, failing="BIGINT", recorded_at="TIMESTAMP", **_SPAN)
_VERDICTS = _read("verdicts", ("run_id", "gate", "expectation", "measure", "observed"), success="BOOLEAN")
_RUNS = _read(
    "runs",
    ("run_id", "outcome", "failed_stage", "error", "error_code", "source_version", "code_version", "stages", "outputs"),
    started_at="TIMESTAMP",
    ended_at="TIMESTAMP",
    **_SPAN,
)


def results(lake: HeldLake, source: Source) -> dict[str, list[Row]]:
    """The newest result of each check of each run, by run id.

    Results that stopped the run come first, then others that a person should see. `sample` is a list of rows.
    """
    of_source = pc.field("source") == source.name
    rows = [*map(_of_verdict, lake.records(_VERDICTS, of_source)), *lake.records(_RESULTS, of_source)]
    newest: dict[tuple[Any, ...], Row] = {}
    for row in sorted(rows, key=lambda row: row["token"]):
        # suites on two tables may each have a check of the same name; an invariant's findings name their tables
        table = None if row["kind"] == "invariant" else row["relation"]
        newest[row["run_id"], row["gate"], row["name"], table] = row
    by_run: dict[str, list[Row]] = {}
    for row in newest.values():
        by_run.setdefault(row["run_id"], []).append(_with_sample(row))
    return {run: sorted(rows, key=_first) for run, rows in by_run.items()}


def newest_test_results(lake: HeldLake) -> dict[str, Row]:
    """The newest result of each of dbt's tests, by name, from the runs of all sources.

    A test that reads the marts of two sources runs with both. `sample` is a list of rows.
    """
    newest: dict[str, Row] = {}
    # tokens are compared within a source: between sources, the machine's clock decides what came later
    for row in sorted(lake.records(_RESULTS, pc.field("kind") == "mart_test"), key=_when):
        newest[row["name"]] = row
    return {name: _with_sample(row) for name, row in newest.items()}


def tests_version(lake: HeldLake) -> int:
    """A number that changes whenever the results may have changed."""
    return lake.version(_RESULTS)


def _when(row: Row) -> tuple[float, int]:
    recorded = row["recorded_at"]
    return (recorded.timestamp() if recorded is not None else 0.0, row["token"])


def _with_sample(row: Row) -> Row:
    """The row, with its sample as rows of the same columns: one check may have rows of several tables."""
    sample = json.loads(row["sample"]) if row["sample"] else []
    columns = list(dict.fromkeys(name for each in sample for name in each))
    return {**row, "sample": [{name: each.get(name) for name in columns} for each in sample]}


def manifests(lake: HeldLake, source: Source) -> dict[str, Row]:
    """The newest manifest of each run, by run id, with `stages` and `outputs` parsed; a killed run has none."""
    newest: dict[str, Row] = {}
    for row in sorted(lake.records(_RUNS, pc.field("source") == source.name), key=lambda row: row["token"]):
        parsed = {name: json.loads(row[name]) if row[name] else None for name in ("stages", "outputs")}
        newest[row["run_id"]] = row | parsed
    return newest


def _of_verdict(row: Row) -> Row:
    blank = dict.fromkeys((*_TEXTS, "failing", "recorded_at", *_SPAN))
    result = {name: row[name] for name in ("source", "token", "run_id", "gate", "expectation", "observed")}
    verdict = "passed" if row["success"] else "failed"
    return blank | result | {"name": row["measure"], "kind": "invariant", "verdict": verdict, "treatment": "fail"}


def _first(row: Row) -> tuple[Any, ...]:
    gates = {gate: place for place, gate in enumerate(GATES)}
    weight = 0 if row["verdict"] in STOPPED else 1 if row["verdict"] in NOTABLE else 2
    return weight, gates.get(row["gate"], len(gates)), row["name"] or ""
