"""Running a gate: one measured row, one suite, one verdict per expectation; and a refusal if any of them failed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import expectations
from spark_jobs.config import Settings
from spark_jobs.errors import ParameterError
from spark_jobs.gates.project import Batch, build_data_docs, data_docs_index, validate
from spark_jobs.gates.verdicts import MAX_EXAMPLES, Examples, GateFailed, Verdict

if TYPE_CHECKING:
    from great_expectations.core import ExpectationValidationResult

Measure = float | int | str | None
FindExamples = Callable[[Sequence[tuple[str, ...]]], Examples]
"""Given the measures of invariants that fail, what breaks them, by the first measure of each."""

_RELATIONS = {"bronze": "bronze.{}_chunks", "trace": "trace.{}_updates", "gold": "gold.state_history"}


def run_gate(
    gate: str,
    measures: Mapping[str, Measure],
    *,
    settings: Settings,
    source: str,
    run_id: str,
    find_examples: FindExamples | None = None,
) -> list[Verdict]:
    """`judge_gate`, and a refusal if an expectation does not hold. The Data Docs show the result once they are built:
    at the end of the run, or here if the gate fails.

    Raises:
        GateFailed: an expectation does not hold.
    """
    if gate not in expectations.GATES:
        raise ParameterError(expected=f"one of the gates {', '.join(expectations.GATES)}", found=repr(gate))
    verdicts = judge_gate(gate, measures, settings=settings, source=source, run_id=run_id, find_examples=find_examples)
    refuse_failed(gate, verdicts, settings=settings, source=source, run_id=run_id)
    return verdicts


def judge_gate(
    gate: str,
    measures: Mapping[str, Measure],
    *,
    settings: Settings,
    source: str,
    run_id: str,
    find_examples: FindExamples | None = None,
) -> list[Verdict]:
    """Hold `measures` against the suite of `gate`, or of the audit; one verdict per expectation, in the suite's order.

    The validation result is stored, whatever the outcome. A measure that the suite needs and `measures` lacks fails;
    measures that no expectation reads are left out. `find_examples` is called only on failure.
    """
    invariants = expectations.SUITES[gate]
    row = {measure: measures.get(measure) for invariant in invariants for measure in invariant.measures}
    results = _validate(gate, row, settings=settings, source=source, run_id=run_id)
    relation = _RELATIONS[gate].format(source) if gate in _RELATIONS else None
    verdicts = [_verdict(gate, relation, invariant, row, results[invariant.measure]) for invariant in invariants]
    failed = [each.measures for each, verdict in zip(invariants, verdicts, strict=True) if verdict.stops]
    examples = find_examples(failed) if find_examples and failed else {}
    return [replace(v, sample=tuple(examples.get(v.name, ())[:MAX_EXAMPLES])) for v in verdicts]


def refuse_failed(gate: str, verdicts: Sequence[Verdict], *, settings: Settings, source: str, run_id: str) -> None:
    """Let the Data Docs show the results and stop, if a verdict says so.

    Raises:
        GateFailed: one does.
    """
    failed = [verdict for verdict in verdicts if verdict.stops]
    if failed:
        build_data_docs(settings)
        page, report = settings.page_url("runs", source, run_id), str(data_docs_index(settings))
        raise GateFailed(gate=gate, source=source, run_id=run_id, failed=failed, page=page, report=report)


def _validate(
    gate: str, row: Mapping[str, Measure], *, settings: Settings, source: str, run_id: str
) -> dict[str, ExpectationValidationResult]:
    """The result of each expectation, by measure."""
    results = validate(
        settings,
        Batch(gate, source, row=row),
        lambda: expectations.suite(gate, expectations.SUITES[gate]),
        run_id=run_id,
    )
    return {each.expectation_config.meta["measure"]: each for each in results if each.expectation_config}


def _verdict(
    gate: str,
    relation: str | None,
    invariant: expectations.Invariant,
    row: Mapping[str, Measure],
    result: ExpectationValidationResult,
) -> Verdict:
    values = {measure: _shown(row[measure]) for measure in invariant.measures}
    observed = ", ".join(f"{m}={v}" for m, v in values.items()) if len(values) > 1 else values[invariant.measure]
    counted = row[invariant.measure] if invariant.bound == "none" else None
    return Verdict(
        gate,
        invariant.measure,
        invariant.guarantee,
        observed,
        "passed" if result.success else "failed",
        expected=invariant.bounds,
        relation=relation,
        failing=counted if isinstance(counted, int) else None,
        on_failure=None if result.success else invariant.on_failure,
    )


def _shown(value: Any) -> str:
    return "not measured" if value is None else str(value)
