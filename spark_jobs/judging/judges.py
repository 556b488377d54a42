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
from spark_jobs.judging.gate import JudgedStage, keep_verdicts, pass_gate
from spark_jobs.judging.metrics import keep_metrics
from spark_jobs.judging.overflows import KIND, report_states, report_windows
from spark_jobs.landing.ledger import PendingLanding
from spark_jobs.restatement.overflows import Overflows
from spark_jobs.restatement.touched import Range, Scope
from spark_jobs.trace.frontiers import Move, SourceFrontiers


def judge_landings(stage: JudgedStage, landings: Mapping[int, PendingLanding]) -> None:
    """Judge landings by the bronze gate, the checks of rows and drift. `landings` are by number."""
    if not landings:
        return
    pass_gate(stage, "bronze", bronze(stage.lake, stage.source, landings=list(landings)))
    check_landed(stage, landings, keep_metrics(stage, landings))


def judge_moves(stage: JudgedStage, moves: Iterable[tuple[Move, Sequence[int]]]) -> None:
    """Judge moves of the frontiers by the trace gate; each comes with the landings that it took into the trace."""
    for move, landings in moves:
        measured = trace(
            stage.lake, stage.source, before=move.before, after=move.after, token=move.token, landings=landings
        )
        pass_gate(stage, "trace", measured)


def judge_merges(stage: JudgedStage, before: SourceFrontiers, after: SourceFrontiers) -> None:
    """Judge the trace again after its batches were merged."""
    measured = trace(stage.lake, stage.source, before=before, after=after, token=stage.token, landings=[])
    pass_gate(stage, "trace", measured, again=True)


def judge_windows(
    stage: JudgedStage,
    scope: Scope,
    definitions: Sequence[Definition],
    ranges: Mapping[str, list[Range]],
    accounts: Mapping[str, Account],
    overflows: Mapping[str, Overflows],
) -> None:
    """Judge the corrections of silver by its gate and the checks of windows, and warn of overflows.

    Args:
        ranges: the touched ranges of event time, by definition.
        accounts: the accounts of the touched rows, by definition.
        overflows: the results that do not fit into their types, by definition.
    """
    report_windows(stage, overflows)
    # a changed definition may have published windows anywhere
    read = {d.name: ranges[d.name] for d in definitions if d.name in ranges and not scope.of_parts(d.part).everything}
    pass_gate(
        stage, "silver", silver(stage.lake, scope, definitions, token=stage.token, ranges=read, accounts=accounts)
    )
    check_windows(stage)


def keep_promoted_overflows(stage: JudgedStage, verdicts: Iterable[Mapping[str, Any]]) -> None:
    """Keep the warnings of an environment's build for the publication of its rows."""
    keep_verdicts(stage, "silver", map(dict, verdicts), (KIND,))


def judge_states(stage: JudgedStage, scope: Scope) -> None:
    """Judge the corrections of gold by its gate and the checks of states, and warn of overflows."""
    measured = gold(stage.lake, scope, token=stage.token)
    pass_gate(stage, "gold", measured)
    count = measured.values[OVERFLOWN]
    report_states(stage, count, measured.examples([(OVERFLOWN,)])[OVERFLOWN] if count else [])
    check_states(stage)
