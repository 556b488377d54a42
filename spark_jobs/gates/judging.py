"""The judgement of a table: Great Expectations judges, and each check gets a verdict with rows that break it."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from expectations.invariant import exception_message
from spark_jobs.config import Settings
from spark_jobs.gates.checks import Assertion
from spark_jobs.gates.frames import as_pandas
from spark_jobs.gates.project import Batch, validate
from spark_jobs.gates.verdicts import MAX_EXAMPLES, Answer, Verdict
from spark_jobs.sources import LATE_BY

if TYPE_CHECKING:
    from great_expectations.core import ExpectationValidationResult

_ROWS_SAID = "_row"
"""The column with the place of a row, by which Great Expectations names the rows that break an expectation."""


_UNITS = {LATE_BY: f"{LATE_BY} (µs)"}
"""Column that the checks add -> its name in samples of rows."""


@dataclass(frozen=True, slots=True)
class Checked:
    """The subject of the checks, as verdicts need it: the gate, and the table's name for people (`relation`). Samples
    have the columns `shows`. The owner acts if a check fails."""

    gate: str
    relation: str
    shows: tuple[str, ...]
    source: str
    run_id: str
    owner: str


def judge(
    settings: Settings,
    about: Checked,
    rows: pa.Table,
    assertions: Sequence[Assertion],
    overrides: Mapping[str, str],
    *,
    suite: str,
    place_of: Callable[[list[dict[str, Any]]], list[dict[str, Any]]] = lambda rows: rows,
) -> list[Verdict]:
    """The verdicts on `rows`, one for each check.

    `overrides` maps names of checks that a person lets pass to the reasons. `place_of` adds to sample rows, for people,
    the places that they come from."""
    if not assertions:
        return []
    # in the order of `rows`: results name a row that breaks an expectation by its place
    frame = as_pandas(_select_needed(rows, assertions))
    frame[_ROWS_SAID] = range(len(frame))
    decimals = {field.name for field in rows.schema if pa.types.is_decimal(field.type)}
    shown_as = {"unexpected_index_column_names": [_ROWS_SAID], "partial_unexpected_count": MAX_EXAMPLES}
    results = validate(
        settings,
        Batch(suite, about.source, frame=frame, result_format={"result_format": "SUMMARY", **shown_as}),
        lambda: _suite(suite, assertions, decimals),
        run_id=about.run_id,
    )
    by_name = {r.expectation_config.meta["name"]: r for r in results if r.expectation_config}
    verdicts = []
    for check in assertions:
        verdict = _verdict(about, check, by_name[check.name], overrides.get(check.name))
        if verdict.verdict != "passed":
            sample = _sample(by_name[check.name], rows, [*about.shows, *check.reads])
            verdict = replace(verdict, sample=tuple(place_of(sample)))
        verdicts.append(verdict)
    return verdicts


def _select_needed(rows: pa.Table, assertions: Sequence[Assertion]) -> pa.Table:
    """The rows with the columns that the checks read, or with all columns if one of the checks may read any."""
    if not all(check.reads for check in assertions):
        return rows
    read = {column for check in assertions for column in check.reads}
    return rows.select([column for column in rows.column_names if column in read])


def _suite(name: str, assertions: Sequence[Assertion], decimals: Collection[str]) -> Any:
    from great_expectations import ExpectationSuite

    from expectations.exact_bounds import over_decimals

    # copies, since storing gives an expectation an id, with which another suite would be refused
    copies = [check.expectation.copy(update={"id": None}) for check in assertions]
    return ExpectationSuite(name=name, expectations=[over_decimals(each, decimals) for each in copies])


def _verdict(about: Checked, check: Assertion, result: ExpectationValidationResult, because: str | None) -> Verdict:
    answer, observed = _answer(check, result, because), _describe_observation(result)
    failing = result.result.get("unexpected_count")
    return Verdict(
        about.gate,
        check.name,
        check.words,
        observed,
        answer,
        expected=check.expected,
        kind=check.kind,
        relation=about.relation,
        severity=check.severity,
        treatment=check.treatment,
        failing=None if failing is None else int(failing),
        because=because if answer == "overridden" else None,
        on_failure=None if result.success else on_failure(about, check.name, check.treatment),
    )


def on_failure(about: Checked, name: str, treatment: str) -> str:
    """A sentence about a check that does not hold: the person who acts, and the actions."""
    if treatment == "warn":
        return f"{about.owner} looks at it; the run went on. A check that warns too often is wrong itself: correct it."
    return (
        f"{about.owner} acts: correct the data (a file that is landed again, or `tidemark retract`) or the check {name}"
        f" in {about.source}'s source file or suite, then run the drops again."
    )


def _answer(check: Assertion, result: ExpectationValidationResult, because: str | None) -> Answer:
    if result.success:
        return "passed"
    if because is not None:
        return "overridden"
    if check.treatment == "warn":
        return "warned"
    return "error" if exception_message(result) else "failed"


def _describe_observation(result: ExpectationValidationResult) -> str:
    error = exception_message(result)
    if error is not None:
        return f"it could not be checked: {' '.join(error.split())}"
    outcome: Mapping[str, Any] = result.result
    if outcome.get("unexpected_count") is not None and outcome.get("element_count") is not None:
        rows, broken = int(outcome["element_count"]), int(outcome["unexpected_count"])
        return f"{broken} of {rows} rows that break it" if rows else "no rows"
    observed = outcome.get("observed_value")
    if isinstance(observed, float):
        return f"{observed:.6g}"
    return json.dumps(observed, default=str) if isinstance(observed, dict | list) else str(observed)


def _sample(result: ExpectationValidationResult, rows: pa.Table, columns: Sequence[str]) -> list[dict[str, Any]]:
    places = [int(each[_ROWS_SAID]) for each in result.result.get("partial_unexpected_index_list") or []]
    names = [column for column in dict.fromkeys(columns) if column in rows.column_names]
    sample = rows.select(names).take(pa.array(places[:MAX_EXAMPLES], pa.int64()))
    return list(sample.rename_columns([_UNITS.get(column, column) for column in names]).to_pylist())
