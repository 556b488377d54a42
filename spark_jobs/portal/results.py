"""Checks and their results: the rows of `quality.results`, and rows of `quality.verdicts` that an earlier version of
Tidemark left."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from expectations import AUDIT, GATES
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
_TIMES = {"started_at": "TIMESTAMP", "ended_at": "TIMESTAMP", **_SPAN}
_OF_RUN = ("run_id", "outcome", "failed_stage", "error", "error_code", "source_version", "code_version")
_RUNS = _read("runs", _OF_RUN, **_TIMES)
_WHOLE_RUNS = _read("runs", (*_OF_RUN, "stages", "outputs"), **_TIMES)


def results(lake: HeldLake, source: Source) -> dict[str, list[Row]]:
    """The results by run id on which what is shown of a source depends; `results_of_run` has all of a run.

    These are the newest results of checks that ever did not pass, and one result of each run.
    """
    rows = lake.of_source(_RESULTS, source.name)
    by_run: dict[str, list[Row]] = {}
    for row in _newest([*_verdicts(lake, source), *_telling(rows).to_pylist()]):
        by_run.setdefault(row["run_id"], []).append(_with_sample(row))
    return {run: sorted(of_run, key=_first) for run, of_run in by_run.items()}


def _telling(rows: pa.Table) -> pa.Table:
    """The rows of checks that ever did not pass, and one row of each run, of a gate rather than of an audit."""
    notable = rows.filter(pc.field("verdict") != "passed")
    names = {(row["gate"], row["name"]) for row in notable.select(["gate", "name"]).to_pylist()}
    is_telling = np.isin(np.arange(len(rows)), _one_of_each_run(rows))
    for gate, name in names:
        same = pc.and_kleene(pc.equal(rows["gate"], gate), pc.equal(rows["name"], name))
        is_telling |= pc.fill_null(same, False).to_numpy(zero_copy_only=False)
    return rows.filter(pa.array(is_telling))


def _one_of_each_run(rows: pa.Table) -> Any:
    """The place of one row of each run, of a gate if the run has one."""
    of_audit = pc.fill_null(pc.equal(rows["gate"], AUDIT), False).cast(pa.int64())
    order = pc.add(pc.multiply(of_audit, len(rows)), pa.array(np.arange(len(rows))))
    first = pa.table({"run_id": rows["run_id"], "order": order}).group_by("run_id").aggregate([("order", "min")])
    return first["order_min"].to_numpy() % max(len(rows), 1)


def results_of_run(lake: HeldLake, source: Source, run_id: str) -> list[Row]:
    """The newest result of each check of a run.

    Results that stopped the run come first, then others that a person should see. `sample` is a list of rows.
    """
    verdicts = (row for row in _verdicts(lake, source) if row["run_id"] == run_id)
    rows = lake.of_source(_RESULTS, source.name, _of_run(run_id)).to_pylist()
    return sorted(map(_with_sample, _newest([*verdicts, *rows])), key=_first)


def _verdicts(lake: HeldLake, source: Source) -> list[Row]:
    return list(map(_of_verdict, lake.records(_VERDICTS, pc.field("source") == source.name)))


def _newest(rows: Iterable[Row]) -> list[Row]:
    """The newest result of each check of each run."""
    newest: dict[tuple[Any, ...], Row] = {}
    for row in sorted(rows, key=lambda row: row["token"]):
        # suites on two tables may each have a check of the same name; an invariant's findings name their tables
        table = None if row["kind"] == "invariant" else row["relation"]
        newest[row["run_id"], row["gate"], row["name"], table] = row
    return list(newest.values())


def _of_run(run_id: str) -> pc.Expression:
    return pc.field("run_id") == run_id


def newest_test_results(lake: HeldLake, sources: Iterable[str]) -> dict[str, Row]:
    """The newest result of each of dbt's tests, by name, from the runs of these sources.

    A test that reads the marts of two sources runs with both. `sample` is a list of rows.
    """
    newest: dict[str, Row] = {}
    # tokens are compared within a source: between sources, the machine's clock decides what came later
    for row in sorted((row for source in sources for row in _tests(lake, source)), key=_when):
        newest[row["name"]] = row
    return {name: _with_sample(row) for name, row in newest.items()}


def _tests(lake: HeldLake, source: str) -> list[Row]:
    """The newest result of each of dbt's tests in the runs of a source, from memory unless the source has run since."""

    def read() -> list[Row]:
        rows = lake.of_source(_RESULTS, source, pc.field("kind") == "mart_test").to_pylist()
        return list({row["name"]: row for row in sorted(rows, key=_when)}.values())

    return lake.kept(("tests", source), lake.version_of(_RESULTS, source), read)


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
    """The newest manifest of each run, by run id, without its stages; a killed run has none."""
    rows = lake.of_source(_RUNS, source.name).to_pylist()
    return {row["run_id"]: row for row in sorted(rows, key=lambda row: row["token"])}


def manifest_of_run(lake: HeldLake, source: Source, run_id: str) -> Row | None:
    """The newest manifest of a run, with `stages` and `outputs` parsed; None if it left none."""
    rows = lake.of_source(_WHOLE_RUNS, source.name, _of_run(run_id)).to_pylist()
    newest = max(rows, key=lambda row: row["token"], default=None)
    if newest is None:
        return None
    return newest | {name: json.loads(newest[name]) if newest[name] else None for name in ("stages", "outputs")}


def _of_verdict(row: Row) -> Row:
    blank = dict.fromkeys((*_TEXTS, "failing", "recorded_at", *_SPAN))
    result = {name: row[name] for name in ("source", "token", "run_id", "gate", "expectation", "observed")}
    verdict = "passed" if row["success"] else "failed"
    return blank | result | {"name": row["measure"], "kind": "invariant", "verdict": verdict, "treatment": "fail"}


def _first(row: Row) -> tuple[Any, ...]:
    gates = {gate: place for place, gate in enumerate(GATES)}
    weight = 0 if row["verdict"] in STOPPED else 1 if row["verdict"] in NOTABLE else 2
    return weight, gates.get(row["gate"], len(gates)), row["name"] or ""
