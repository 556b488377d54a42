"""Checks and their results: the rows of `quality.results`, and rows of `quality.verdicts` that an earlier version of
Tidemark left."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
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
_TIMES = {"started_at": "TIMESTAMP", "ended_at": "TIMESTAMP", **_SPAN}
_OF_RUN = ("run_id", "outcome", "failed_stage", "error", "error_code", "source_version", "code_version")
_RUNS = _read("runs", (*_OF_RUN, "stages", "outputs"), **_TIMES)
_REPEATED = ("run_id", "gate", "kind", "relation", "name", "verdict")
CHECKED = (*_REPEATED, "token", *_SPAN)
MANIFEST = ("run_id", "token", "outcome", "error_code", *_SPAN)


@dataclass(frozen=True)
class Checks:
    """The results of the checks of a source, as far as what is shown of it depends on them.

    `rows`: all results, with the columns CHECKED. `telling`: the newest results of checks that ever did not pass, with
    the columns CHECKED; of those that stopped a run also `expectation` and `observed`. `results_of_run` has all of a
    run.
    """

    rows: pa.Table
    telling: list[Row]


def checks(lake: HeldLake, source: Source) -> Checks:
    """The results of the checks of a source."""
    rows = lake.of_source(_RESULTS, source.name, CHECKED, repeated=_REPEATED)
    older = _verdicts(lake, source)
    if older:
        plain = pa.schema([(f.name, pa.string() if f.name in _REPEATED else f.type) for f in rows.schema])
        listed = pa.Table.from_pylist([{name: row[name] for name in CHECKED} for row in older], schema=plain)
        rows = pa.concat_tables([rows, listed.cast(rows.schema)]).unify_dictionaries()
    telling = [row for row in _newest(_ever_failing(rows).to_pylist()) if row["verdict"] is not None]
    if any(row["verdict"] in STOPPED for row in telling):
        telling = [*map(_with_words(lake, source, older), telling)]
    return Checks(rows, telling)


def _ever_failing(rows: pa.Table) -> pa.Table:
    """The rows of checks that ever did not pass."""
    is_notable = ~is_text(rows["verdict"], "passed")
    if not is_notable.any():
        return rows.slice(0, 0)
    notable = rows.select(["gate", "name"]).filter(pa.array(is_notable)).to_pylist()
    names = {(row["gate"], row["name"]) for row in notable}
    same = [is_text(rows["gate"], gate) & is_text(rows["name"], name) for gate, name in names]
    return rows.filter(pa.array(np.logical_or.reduce(same)))


def is_text(column: pa.ChunkedArray, text: str | None) -> Any:
    """A truth value for each row of a column: it has this text. Of a dictionary only its few texts are compared."""
    parts = [np.zeros(0, bool)]
    for chunk in column.chunks:
        encoded = chunk if pa.types.is_dictionary(chunk.type) else chunk.dictionary_encode()
        # the last place is that of null
        is_wanted = np.array([*(each == text for each in encoded.dictionary.to_pylist()), text is None])
        parts.append(is_wanted[pc.fill_null(encoded.indices, len(is_wanted) - 1).to_numpy()])
    return np.concatenate(parts)


def _with_words(lake: HeldLake, source: Source, older: Iterable[Row]) -> Callable[[Row], Row]:
    """A function that adds `expectation` and `observed` to a result that stopped a run."""
    stopped = pc.field("verdict").isin(STOPPED)
    words = {_result(row): row for row in (*older, *lake.of_source(_RESULTS, source.name, where=stopped).to_pylist())}

    def add(row: Row) -> Row:
        if row["verdict"] not in STOPPED:
            return row
        return row | {name: words[_result(row)][name] for name in ("expectation", "observed")}

    return add


def _result(row: Row) -> tuple[Any, ...]:
    """The identity of a result, with its token."""
    return (row["run_id"], row["gate"], row["name"], row["relation"], row["token"])


def results_of_run(lake: HeldLake, source: Source, run_id: str) -> list[Row]:
    """The newest result of each check of a run.

    Results that stopped the run come first, then others that a person should see. `sample` is a list of rows.
    """
    verdicts = (row for row in _verdicts(lake, source) if row["run_id"] == run_id)
    rows = lake.of_source(_RESULTS, source.name, where=_of_run(run_id)).to_pylist()
    return sorted(map(_with_sample, _newest([*verdicts, *rows])), key=urgency)


def _verdicts(lake: HeldLake, source: Source) -> list[Row]:
    return list(map(_of_verdict, lake.of_source(_VERDICTS, source.name).to_pylist()))


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
        rows = lake.of_source(_RESULTS, source, where=pc.field("kind") == "mart_test").to_pylist()
        return list({row["name"]: row for row in sorted(rows, key=_when)}.values())

    return lake.remember(("tests", source), lake.version_of(_RESULTS, source), read)


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


def manifests(lake: HeldLake, source: Source) -> pa.Table:
    """The manifests of a source's runs with the columns MANIFEST, oldest first; a killed run has none."""
    return lake.of_source(_RUNS, source.name, MANIFEST, repeated=["outcome", "error_code"]).sort_by("token")


def manifest_of_run(lake: HeldLake, source: Source, run_id: str) -> Row | None:
    """The newest manifest of a run, with `stages` and `outputs` parsed; None if it left none."""
    rows = lake.of_source(_RUNS, source.name, where=_of_run(run_id)).to_pylist()
    newest = max(rows, key=lambda row: row["token"], default=None)
    if newest is None:
        return None
    return newest | {name: json.loads(newest[name]) if newest[name] else None for name in ("stages", "outputs")}


def _of_verdict(row: Row) -> Row:
    blank = dict.fromkeys((*_TEXTS, "failing", "recorded_at", *_SPAN))
    result = {name: row[name] for name in ("source", "token", "run_id", "gate", "expectation", "observed")}
    verdict = "passed" if row["success"] else "failed"
    return blank | result | {"name": row["measure"], "kind": "invariant", "verdict": verdict, "treatment": "fail"}


def urgency(row: Row) -> tuple[Any, ...]:
    """The key by which results are sorted: first those that stopped the run, then others that a person should see."""
    gates = {gate: place for place, gate in enumerate(GATES)}
    weight = 0 if row["verdict"] in STOPPED else 1 if row["verdict"] in NOTABLE else 2
    return weight, gates.get(row["gate"], len(gates)), row["name"] or ""
