"""What a gate found: verdicts, and the error that stops a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from spark_jobs.errors import TidemarkError

MAX_EXAMPLES = 20
"""Examples kept of a failed expectation: enough to see a pattern, few enough for a log."""

Examples = Mapping[str, Sequence[Mapping[str, Any]]]
"""Per measure, rows that violate it."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer to one expectation. `observed` is what was measured (`3`, or `ledger_rows=5, chunk_rows=4`)."""

    gate: str
    expectation: str
    measure: str
    observed: str
    success: bool


class GateFailed(TidemarkError):
    """A gate did not open; no later stage may run.

    Facts: `gate`, `source`, `run_id`, `failed` (each failed verdict as a mapping), `examples` (per measure, rows),
    `report` (the Data Docs' index page).
    """

    code = "gate_failed"
    gate: str
    source: str
    run_id: str
    failed: list[dict[str, Any]]
    examples: dict[str, list[dict[str, Any]]]
    report: str

    def __init__(
        self,
        *,
        gate: str,
        source: str,
        run_id: str,
        failed: Sequence[Verdict],
        on_failure: str,
        examples: Examples,
        report: str,
    ) -> None:
        shown = {measure: [dict(row) for row in rows[:MAX_EXAMPLES]] for measure, rows in examples.items()}
        lines = [_line(verdict, shown.get(verdict.measure, [])) for verdict in failed]
        super().__init__(
            expected=f"every expectation of gate {gate} to hold for {source}",
            found=f"{len(failed)} that {'does' if len(failed) == 1 else 'do'} not:{''.join(lines)}\n",
            consequence="the run stops here and every published table reads as before it",
            next_step=f"{on_failure} The report is at {report}",
            gate=gate,
            source=source,
            run_id=run_id,
            failed=[asdict(verdict) for verdict in failed],
            examples=shown,
            report=report,
        )


def _line(verdict: Verdict, examples: Sequence[Mapping[str, Any]]) -> str:
    shown = "".join(f"\n      e.g. {dict(row)}" for row in examples)
    return f"\n  - {verdict.expectation} ({verdict.measure}: {verdict.observed}){shown}"
