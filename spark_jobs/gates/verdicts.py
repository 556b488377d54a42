"""The verdicts of checks, and the error that stops a run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from typing import Any, Literal

from spark_jobs.errors import TidemarkError

MAX_EXAMPLES = 20
"""The most rows kept as examples of a check that does not hold: enough to see a pattern, few enough for a table."""
ROWS_IN_MESSAGE = 3
"""The most of these rows that the error shows."""

Examples = Mapping[str, Sequence[Mapping[str, Any]]]
"""Measure -> rows that violate its invariant."""

Answer = Literal["passed", "failed", "warned", "quarantined", "overridden", "error"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on one check, as `quality.results` stores it.

    `observed` is the value found (`3`, or `ledger_rows=5, chunk_rows=4`), and `expected` the value or bound required.
    `sample` has up to `MAX_EXAMPLES` rows that break the check, of `failing` rows in all. `on_failure` names the person
    who acts, and the actions.
    """

    gate: str
    name: str
    expectation: str
    observed: str
    verdict: Answer = "passed"
    expected: str = ""
    kind: str = "invariant"
    relation: str | None = None
    severity: str = "critical"
    treatment: str = "fail"
    failing: int | None = None
    sample: tuple[Mapping[str, Any], ...] = ()
    because: str | None = None
    on_failure: str | None = None

    @property
    def stops(self) -> bool:
        """True if the run must not go on."""
        return self.verdict in ("failed", "error")


class GateFailed(TidemarkError):
    """A gate has failed; no later stage may run.

    Facts: `gate`, `source`, `run_id`, `failed` (each failed verdict as a mapping), `page` (of the run in the portal),
    `report` (the Data Docs' index page).
    """

    code = "gate_failed"
    gate: str
    source: str
    run_id: str
    failed: list[dict[str, Any]]
    page: str
    report: str

    def __init__(
        self, *, gate: str, source: str, run_id: str, failed: Sequence[Verdict], page: str, report: str
    ) -> None:
        lines = "".join(map(verdict_lines, failed))
        override = "" if any(v.kind in ("check", "suite") for v in failed) else None
        if override is not None:
            names = " ".join(f"--override {v.name}" for v in failed if v.kind in ("check", "suite"))
            override = f', or let it pass in one run: `tidemark run {source} … {names} --because "…"`'
        super().__init__(
            expected=f"every check of gate {gate} to hold for {source}",
            found=f"{len(failed)} that {'does' if len(failed) == 1 else 'do'} not:{lines}\n",
            consequence="the run stops here and every published table reads as before it",
            next_step=f"do as the failed check says{override or ''}. `tidemark quality {source} --run {run_id}` shows"
            f" this run, its page is {page} while Airflow is up, the report is at {report}",
            gate=gate,
            source=source,
            run_id=run_id,
            failed=[asdict(verdict) for verdict in failed],
            page=page,
            report=report,
        )


def verdict_lines(verdict: Verdict) -> str:
    """A verdict in lines for people: the check in words, the expected, the found, up to three rows, and who acts."""
    lines = [f"{verdict.name}: {verdict.expectation}"]
    of = f" of {verdict.relation}" if verdict.relation else ""
    lines.append(f"  expected {verdict.expected or 'it to hold'}, found {verdict.observed}{of}")
    lines += [f"  e.g. {_row_text(row)}" for row in verdict.sample[:ROWS_IN_MESSAGE]]
    n_examples = len(verdict.sample[:ROWS_IN_MESSAGE])
    if verdict.failing is not None and verdict.failing > n_examples > 0:
        lines.append(f"  and {verdict.failing - n_examples} more rows")
    if verdict.on_failure:
        lines.append(f"  -> {verdict.on_failure}")
    return "".join(f"\n  {'- ' if number == 0 else '  '}{line}" for number, line in enumerate(lines))


def _row_text(row: Mapping[str, Any]) -> str:
    """A row as `column=value, …`, with instants in ISO 8601 and missing values as `null`."""
    return ", ".join(f"{name}={_value_text(value)}" for name, value in row.items())


def _value_text(value: Any) -> str:
    if isinstance(value, dict | list):
        return json.dumps(value, default=_value_text, ensure_ascii=False)
    return value.isoformat() if isinstance(value, date) else "null" if value is None else str(value)
