"""The run of a gate: one measured row, one suite, one verdict per expectation, and a refusal if one of them failed."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import expectations
from expectations.invariant import Invariant, Measure, describe_measures, exception_message
from spark_jobs.config import Settings
from spark_jobs.errors import ParameterError
from spark_jobs.gates.project import Batch, build_data_docs, data_docs_index, quality_dir, validate
from spark_jobs.gates.verdicts import MAX_EXAMPLES, Examples, GateFailed, Verdict

if TYPE_CHECKING:
    from great_expectations.core import ExpectationValidationResult

FindExamples = Callable[[Sequence[tuple[str, ...]]], Examples]
"""A function from the measures of broken invariants to the rows that break them, by the first measure of each."""

_RELATIONS = {"bronze": "bronze.{}_chunks", "trace": "trace.{}_updates", "gold": "gold.state_history"}


def run_gate(
    gate: str,
    measures: Mapping[str, Measure],
    *,
    settings: Settings,
    source: str,
    run_id: str,
    find_examples: FindExamples | None = None,
    plainly: bool = False,
) -> list[Verdict]:
    """Judge a gate as `judge_gate` does, and refuse to go on if an expectation does not hold.

    `plainly`: by the invariants alone, without Great Expectations and its reports: the same verdicts, in a thousandth
    of the time.

    The Data Docs show the result once they are built: at the end of the run, or here if the gate fails.

    Raises:
        GateFailed: an expectation does not hold.
    """
    if gate not in expectations.GATES:
        raise ParameterError(expected=f"one of the gates {', '.join(expectations.GATES)}", found=repr(gate))
    if plainly:
        verdicts = judge_plainly(gate, measures, source=source, find_examples=find_examples)
    else:
        verdicts = judge_gate(
            gate, measures, settings=settings, source=source, run_id=run_id, find_examples=find_examples
        )
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
    """The verdicts on `measures` by the suite of `gate`, or of the audit: one per expectation, in the suite's order.

    The validation result is stored, whatever the outcome. An expectation fails if `measures` lacks its measure.
    Measures that no expectation reads are ignored. If invariants are broken, Great Expectations asks `find_examples`
    for the rows that break them, once for all, and stores these rows in its result.
    """
    invariants = expectations.SUITES[gate]
    row = {measure: measures.get(measure) for invariant in invariants for measure in invariant.measures}
    batch = Batch(gate, source, row=row, breaking_rows=_finder(invariants, row, find_examples))
    results = validate(settings, batch, lambda: expectations.suite(gate, invariants), run_id=run_id)
    by_measure = {each.expectation_config.meta["measure"]: each for each in results if each.expectation_config}
    relation = _RELATIONS[gate].format(source) if gate in _RELATIONS else None
    return [_verdict(gate, relation, invariant, row, by_measure[invariant.measure]) for invariant in invariants]


def judge_plainly(
    gate: str, measures: Mapping[str, Measure], *, source: str, find_examples: FindExamples | None = None
) -> list[Verdict]:
    """The verdicts of `judge_gate`, without Great Expectations."""
    invariants = expectations.SUITES[gate]
    row = {measure: measures.get(measure) for invariant in invariants for measure in invariant.measures}
    breaking_rows = _finder(invariants, row, find_examples)
    relation = _RELATIONS[gate].format(source) if gate in _RELATIONS else None
    verdicts = []
    for each in invariants:
        holds = each.holds(row)
        verdict = Verdict(
            gate,
            each.measure,
            each.guarantee,
            describe_measures({measure: row[measure] for measure in each.measures}),
            "passed" if holds else "failed",
            expected=each.bounds,
            relation=relation,
            failing=row[each.measure] if each.bound == "none" and not holds else None,  # type: ignore[arg-type]
            sample=() if holds else tuple(breaking_rows(each.measures)),
            on_failure=None if holds else each.on_failure,
        )
        verdicts.append(verdict)
    return verdicts


def _finder(
    invariants: Sequence[Invariant], row: Mapping[str, Measure], find_examples: FindExamples | None
) -> Callable[[tuple[str, ...]], Sequence[Mapping[str, Any]]]:
    """A function that returns rows that break an invariant, given its measures. Its first call finds the rows for all
    broken invariants at once."""

    @functools.cache
    def of_all() -> Examples:
        broken = [each.measures for each in invariants if not each.holds(row)]
        return find_examples(broken) if find_examples else {}

    return lambda measures: of_all().get(measures[0], ())[:MAX_EXAMPLES]


def refuse_failed(gate: str, verdicts: Sequence[Verdict], *, settings: Settings, source: str, run_id: str) -> None:
    """If a verdict stops the run, build the Data Docs, so that they show it, and raise the error.

    Raises:
        GateFailed: a verdict stops the run.
    """
    failed = [verdict for verdict in verdicts if verdict.stops]
    if failed:
        # if the disk is full, the pages wait for the next run, but the failure is reported all the same
        with suppress(OSError):
            if quality_dir(settings).is_dir():
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
    observation = describe_measures({measure: row[measure] for measure in invariant.measures})
    error = exception_message(result)
    if error is not None:
        observation += f" (the rows that break it can't be shown: {' '.join(error.split())})"
    failing = result.result.get("unexpected_count")
    return Verdict(
        gate,
        invariant.measure,
        invariant.guarantee,
        observation,
        "passed" if result.success else "failed",
        expected=invariant.bounds,
        relation=relation,
        failing=failing,
        sample=tuple(result.result.get("partial_unexpected_list") or ()),
        on_failure=None if result.success else invariant.on_failure,
    )
