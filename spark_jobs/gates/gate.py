"""Running a gate: one measured row, one suite, one verdict per expectation; and a refusal if any of them failed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import expectations
from spark_jobs.config import Settings
from spark_jobs.errors import ParameterError
from spark_jobs.gates.project import (
    build_data_docs,
    checkpoint,
    data_docs_index,
    forget_old_results,
    held_project,
    note_results,
)
from spark_jobs.gates.verdicts import Examples, GateFailed, Verdict

if TYPE_CHECKING:
    from great_expectations.core import ExpectationValidationResult

Measure = float | int | str | None
FindExamples = Callable[[Sequence[str]], Examples]
"""Given failed measures, rows that violate them."""


def run_gate(
    gate: str,
    measures: Mapping[str, Measure],
    *,
    settings: Settings,
    source: str,
    run_id: str,
    find_examples: FindExamples | None = None,
) -> list[Verdict]:
    """Hold `measures` against the suite of `gate`; returns one verdict per expectation, in the suite's order.

    Stores the validation result first, whatever the outcome. The Data Docs show it once they are built: at the end of
    the run, or here if the gate fails. A measure that the suite needs and `measures` lacks fails; measures that no
    expectation reads are left out. `find_examples` is called only on failure.

    Raises:
        GateFailed: an expectation does not hold.
    """
    invariants = expectations.GATES.get(gate)
    if invariants is None:
        raise ParameterError(expected=f"one of the gates {', '.join(expectations.GATES)}", found=repr(gate))
    row = {measure: measures.get(measure) for invariant in invariants for measure in invariant.measures}
    results = _validate(gate, row, settings=settings, source=source, run_id=run_id)
    verdicts = [_verdict(gate, invariant, row, results[invariant.measure]) for invariant in invariants]
    failed = [verdict for verdict in verdicts if not verdict.success]
    if failed:
        build_data_docs(settings)
        examples = find_examples([verdict.measure for verdict in failed]) if find_examples else {}
        raise GateFailed(
            gate=gate,
            source=source,
            run_id=run_id,
            failed=failed,
            on_failure=next(i.on_failure for i in invariants if i.measure == failed[0].measure),
            examples=examples,
            report=str(data_docs_index(settings)),
        )
    return verdicts


def _validate(
    gate: str, row: Mapping[str, Measure], *, settings: Settings, source: str, run_id: str
) -> dict[str, ExpectationValidationResult]:
    """The result of each expectation, by measure."""
    with held_project(settings) as context:
        import pandas as pd
        from great_expectations import RunIdentifier

        # a missing measure as NaN: Great Expectations calls it failed, while None raises inside
        frame = pd.DataFrame([{name: float("nan") if value is None else value for name, value in row.items()}])
        outcome = checkpoint(context, gate, source).run(
            batch_parameters={"dataframe": frame}, run_id=RunIdentifier(run_name=_file_name(run_id))
        )
        note_results(settings, outcome.run_results)
        forget_old_results(context)
    (result,) = outcome.run_results.values()
    return {each.expectation_config.meta["measure"]: each for each in result.results if each.expectation_config}


def _verdict(
    gate: str, invariant: expectations.Invariant, row: Mapping[str, Measure], result: ExpectationValidationResult
) -> Verdict:
    values = {measure: _shown(row[measure]) for measure in invariant.measures}
    observed = ", ".join(f"{m}={v}" for m, v in values.items()) if len(values) > 1 else values[invariant.measure]
    return Verdict(gate, invariant.guarantee, invariant.measure, observed, bool(result.success))


def _shown(value: Any) -> str:
    return "not measured" if value is None else str(value)


def _file_name(run_id: str) -> str:
    """`run_id` as the name of a folder: Airflow's holds colons and plus signs."""
    return re.sub(r"[^A-Za-z0-9_.-]", "-", run_id) or "run"
