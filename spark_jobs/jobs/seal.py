"""The stage `seal`: landed rows enter the trace, and the frontiers move."""

from __future__ import annotations

from collections.abc import Sequence

from spark_jobs.gates.measures import trace as measure_trace
from spark_jobs.jobs.context import Stage
from spark_jobs.jobs.gates import pass_gate
from spark_jobs.landing.ledger import landings_between
from spark_jobs.landing.pending import pending_updates
from spark_jobs.trace.advance import Advance, advance
from spark_jobs.trace.frontiers import Move, unpublished_moves


def seal(stage: Stage) -> None:
    """Append the landed rows to the trace, then judge the trace gate."""
    unpublished = _is_unpublished(stage)
    moved, landings = advance_trace(stage)
    # a move that is not published is measured again, so that a repeated run meets a failed gate again
    for move in unpublished_moves(stage.lake, stage.source, stage.publication) if unpublished else []:
        of_move = landings_between(stage.lake, stage.source, move.before.landed_through, move.after.landed_through)
        _pass_gate(stage, move, of_move)
    if moved.moved and not unpublished:
        _pass_gate(stage, Move(stage.fence.token, moved.before, moved.after), landings)


def advance_trace(stage: Stage) -> tuple[Advance, Sequence[int]]:
    """Append the landings that are not in the trace yet, seal at the interval's end, drain and trim.

    Returns the move of the frontiers, and the landings that were appended.
    """
    before = stage.frontiers
    stage.check_gap()
    pending = pending_updates(stage.lake, stage.source, before.landed_through)
    # drops that an earlier run landed and did not seal land with this run
    drops, hi_us = [range(n, n + 1) for n in pending.drops], before.reached_us
    if stage.request.takes_drops:
        drops, hi_us = sorted([*drops, stage.drops], key=lambda of: of.start), stage.hi_us
    moved = advance(
        stage.lake,
        stage.source,
        stage.fence,
        stage.run_id,
        frontiers=before,
        drops=drops,
        hi_us=hi_us,
        landed=pending.rows,
        landed_through=max(pending.landings, default=before.landed_through),
        unpublished=_is_unpublished(stage),
        publication=stage.publication,
        has_repeats=pending.has_repeats,
    )
    stage.summary.update(
        appended=moved.appended,
        drained=moved.drained,
        below_horizon=moved.below_horizon,
        unsealed=sum(batch.n_updates for batch in moved.after.arrangement.unsealed),
        seal_us=moved.after.seal_us,
        moved=moved.moved,
    )
    return moved, pending.landings


def _is_unpublished(stage: Stage) -> bool:
    """True if the frontiers have a seal, and publishing up to them would change something."""
    return stage.frontiers.seal_us > 0 and not stage.scope.nothing_to_do()


def _pass_gate(stage: Stage, move: Move, landings: Sequence[int]) -> None:
    measured = measure_trace(
        stage.lake, stage.source, before=move.before, after=move.after, token=move.token, landings=landings
    )
    pass_gate(stage, "trace", measured)
