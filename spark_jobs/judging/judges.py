"""The judges of a run's stages, one for each. They judge a stage's writes before the next stage builds on them.

All of them measure rows as they are stored, not as the stage meant to write them.

Each raises `GateFailed` if an invariant does not hold, or a check that may stop the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from spark_jobs.definitions.definition import Definition
from spark_jobs.engine.measures import OVERFLOWN
from spark_jobs.engine.windows import Account
from spark_jobs.gates.measures import bronze, gold, silver, trace
from spark_jobs.judging.checks import check_landed, check_states, check_windows
from spark_jobs.judging.gate import JudgedRun, Judgement, keep_verdicts, pass_gate
from spark_jobs.judging.metrics import keep_metrics
from spark_jobs.judging.overflows import KIND, report_states, report_windows
from spark_jobs.landing.ledger import PendingLanding
from spark_jobs.restatement.overflows import Overflows
from spark_jobs.restatement.touched import Range, Scope
from spark_jobs.storage.coordination.leases import Lease
from spark_jobs.storage.lakes.lake import Lake
from spark_jobs.trace.frontiers import Move, SourceFrontiers


def judge_landings(run: JudgedRun, lake: Lake, landings: Mapping[int, PendingLanding]) -> Judgement:
    """Judge landings by the bronze gate, the checks of rows and drift. `landings` are by number."""
    if not landings:
        return Judgement()
    gate = pass_gate(run, "bronze", bronze(lake, run.source, landings=list(landings)))
    n_records, rows_by_drop, drift = keep_metrics(run, lake, landings)
    return gate.plus(drift).plus(check_landed(run, lake, landings, n_records, rows_by_drop))


def judge_moves(run: JudgedRun, lake: Lake, moves: Iterable[tuple[Move, Sequence[int]]]) -> Judgement:
    """Judge moves of the frontiers by the trace gate; each comes with the landings that it took into the trace."""
    judgement = Judgement()
    for move, landings in moves:
        measured = trace(lake, run.source, before=move.before, after=move.after, token=move.token, landings=landings)
        judgement = judgement.plus(pass_gate(run, "trace", measured))
    return judgement


def judge_merges(run: JudgedRun, lake: Lake, before: SourceFrontiers, after: SourceFrontiers) -> Judgement:
    """Judge the trace again after its batches were merged."""
    measured = trace(lake, run.source, before=before, after=after, token=run.token, landings=[])
    return pass_gate(run, "trace", measured, again=True)


def judge_windows(
    run: JudgedRun,
    lake: Lake,
    scope: Scope,
    definitions: Sequence[Definition],
    ranges: Mapping[str, list[Range]],
    accounts: Mapping[str, Account],
    overflows: Mapping[str, Overflows],
) -> Judgement:
    """Judge the corrections of silver by its gate and the checks of windows, and warn of overflows.

    Args:
        ranges: the touched ranges of event time, by definition.
        accounts: the accounts of the touched rows, by definition.
        overflows: the results that do not fit into their types, by definition.
    """
    warnings = report_windows(run.lease, overflows)
    # a changed definition may have published windows anywhere
    read = {d.name: ranges[d.name] for d in definitions if d.name in ranges and not scope.of_parts(d.part).everything}
    measured = silver(lake, scope, definitions, token=run.token, ranges=read, accounts=accounts)
    gate = pass_gate(run, "silver", measured)
    return warnings.plus(gate).plus(check_windows(run, lake, scope.publication))


def keep_promoted_overflows(lease: Lease, verdicts: Iterable[Mapping[str, Any]]) -> None:
    """Keep the warnings of an environment's build for the publication of its rows."""
    keep_verdicts(lease, "silver", verdicts, (KIND,))


def judge_states(run: JudgedRun, lake: Lake, scope: Scope) -> Judgement:
    """Judge the corrections of gold by its gate and the checks of states, and warn of overflows."""
    measured = gold(lake, scope, token=run.token)
    gate = pass_gate(run, "gold", measured)
    count = measured.values[OVERFLOWN]
    examples = measured.examples([(OVERFLOWN,)])[OVERFLOWN] if count else []
    warnings = report_states(run.lease, run.source, count, examples)
    return gate.plus(warnings).plus(check_states(run, lake, scope.publication))
