"""The work of the stage `seal`: landed rows enter the trace, and the frontiers move."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from spark_jobs.jobs.context import Stage
from spark_jobs.landing.ledger import landings_between
from spark_jobs.landing.pending import pending_updates
from spark_jobs.trace.advance import advance
from spark_jobs.trace.frontiers import Move, unpublished_moves


@dataclass(frozen=True, slots=True)
class Sealed:
    """The outcome of sealing: the moves of the frontiers since the publication, each with the landings that it took in.

    A move that an earlier run did not publish is among them, so that a repeated run meets a failed gate again.
    """

    moves: Sequence[tuple[Move, Sequence[int]]]
    report: dict[str, Any]


def advance_trace(stage: Stage) -> Sealed:
    """Append the landings that are not in the trace yet, seal at the interval's end, drain and trim."""
    lake, source, before = stage.lake, stage.source, stage.frontiers
    stage.check_gap()
    # the frontiers have a seal, and publishing up to it would change something
    unpublished = before.seal_us > 0 and not stage.scope.nothing_to_do()
    pending = pending_updates(lake, source, before.landed_through)
    # drops that an earlier run landed and did not seal land with this run
    drops, hi_us = [range(n, n + 1) for n in pending.drops], before.reached_us
    if stage.request.takes_drops:
        drops, hi_us = sorted([*drops, stage.drops], key=lambda of: of.start), stage.hi_us
    moved = advance(
        lake,
        source,
        stage.fence,
        stage.run_id,
        frontiers=before,
        drops=drops,
        hi_us=hi_us,
        landed=pending.rows,
        landed_through=max(pending.landings, default=before.landed_through),
        unpublished=unpublished,
        publication=stage.publication,
        has_repeats=pending.has_repeats,
    )
    report = {
        "appended": moved.appended,
        "drained": moved.drained,
        "below_horizon": moved.below_horizon,
        "unsealed": sum(batch.n_updates for batch in moved.after.arrangement.unsealed),
        "seal_us": moved.after.seal_us,
        "moved": moved.moved,
    }
    moves: list[tuple[Move, Sequence[int]]] = []
    if unpublished:
        for move in unpublished_moves(lake, source, stage.publication):
            through = (move.before.landed_through, move.after.landed_through)
            moves.append((move, landings_between(lake, source, *through)))
    elif moved.moved:
        moves.append((Move(stage.fence.token, moved.before, moved.after), pending.landings))
    return Sealed(moves, report)
