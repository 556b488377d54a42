"""Running a gate: one measured row, one suite, one verdict per expectation; and a refusal if any of them failed."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import expectations
from expectations.invariant import Invariant, Measure, observed, raised
from spark_jobs.config import Settings
from spark_jobs.errors import ParameterError
from spark_jobs.gates.project import Batch, build_data_docs, data_docs_index, validate
from spark_jobs.gates.verdicts import MAX_EXAMPLES, Examples, GateFailed, Verdict

if TYPE_CHECKING:
    from great_expectations.core import ExpectationValidationResult

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
    measures that no expectation reads are left out. Where invariants are broken Great Expectations asks `find_examples`
    for the rows, once for all of them, and its result has them.
    """
    invariants = expectations.SUITES[gate]
    row = {measure: measures.get(measure) for invariant in invariants for measure in invariant.measures}
    batch = Batch(gate, source, row=row, breaking_rows=_finder(invariants, row, find_examples))
    results = validate(settings, batch, lambda: expectations.suite(gate, invariants), run_id=run_id)
    by_measure = {each.expectation_config.meta["measure"]: each for each in results if each.expectation_config}
    relation = _RELATIONS[gate].format(source) if gate in _RELATIONS else None
    return [_verdict(gate, relation, invariant, row, by_measure[invariant.measure]) for invariant in invariants]


def _finder(
    invariants: Sequence[Invariant], row: Mapping[str, Measure], find_examples: FindExamples | None
) -> Callable[[tuple[str, ...]], Sequence[Mapping[str, Any]]]:
    """What gives the rows that break an invariant. The first question reads those of all that are broken, in one go."""

    @functools.cache
    def of_all() -> Examples:
        broken = [each.measures for each in invariants if not each.holds(row)]
        return find_examples(broken) if find_examples else {}

    return lambda measures: of_all().get(measures[0], ())[:MAX_EXAMPLES]


def refuse_failed(gate: str, verdicts: Sequence[Verdict], *, settings: Settings, source: str, run_id: str) -> None:
    """Let the Data Docs show the results and stop, if a verdict says so.

    Raises:
        GateFailed: one does.
    """
    failed = [verdict for verdict in verdicts if verdict.stops]
    if failed:
        # where the disk is full the pages wait for the next run, and what failed is said all the same
        with suppress(OSError):
            build_data_docs(settings)
        page, report = settings.page_url("runs", source, run_id), str(data_docs_index(settings))
        raise GateFailed(gate=gate, source=source, run_id=run_id, failed=failed, page=page, report=report)


def _verdict(
    gate: str,
    relation: str | None,
    invariant: Invariant,
    row: Mapping[str, Measure],
    result: ExpectationValidationResult,
) -> Verdict:
    shown = observed({measure: row[measure] for measure in invariant.measures})
    error = raised(result)
    if error is not None:
        shown += f" (the rows that break it can't be shown: {' '.join(error.split())})"
    failing = result.result.get("unexpected_count")
    return Verdict(
        gate,
        invariant.measure,
        invariant.guarantee,
        shown,
        "passed" if result.success else "failed",
        expected=invariant.bounds,
        relation=relation,
        failing=failing,
        sample=tuple(result.result.get("partial_unexpected_list") or ()),
        on_failure=None if result.success else invariant.on_failure,
    )
