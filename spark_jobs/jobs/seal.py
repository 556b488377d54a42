"""The work of the stage `seal`: landed rows enter the trace, and the frontiers move."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from spark_jobs.landing.ledger import landings_between
from spark_jobs.landing.pending import pending_updates
from spark_jobs.restatement.touched import Scope
from spark_jobs.storage.delta.fences import Fence
from spark_jobs.storage.lakes.lake import Lake
from spark_jobs.trace.advance import advance
from spark_jobs.trace.frontiers import Move, unpublished_moves


@dataclass(frozen=True, slots=True)
class Sealed:
    """The outcome of sealing: the moves of the frontiers since the publication, each with the landings that it took in.

    A move that an earlier run did not publish is among them, so that a repeated run meets a failed gate again.
    """

    moves: Sequence[tuple[Move, Sequence[int]]]
    report: dict[str, Any]


def advance_trace(lake: Lake, scope: Scope, fence: Fence, run_id: str, drops: range) -> Sealed:
    """Append the landings that are not in the trace yet, seal at the end of the drops, drain and trim.

    `drops`: the drops of the run's interval; none of them if the run is about landed files alone.
    """
    source, before, publication = scope.source, scope.frontiers, scope.publication
    # the frontiers have a seal, and publishing up to it would change something
    unpublished = before.seal_us > 0 and not scope.nothing_to_do()
    pending = pending_updates(lake, source, before.landed_through)
    # drops that an earlier run landed and did not seal land with this run
    landing = [*(range(n, n + 1) for n in pending.drops), *([drops] if drops else [])]
    moved = advance(
        lake,
        source,
        fence,
        run_id,
        frontiers=before,
        drops=sorted(landing, key=lambda of: of.start),
        hi_us=source.drops.start(drops.stop) if drops else before.reached_us,
        landed=pending.rows,
        landed_through=max(pending.landings, default=before.landed_through),
        unpublished=unpublished,
        publication=publication,
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
        for move in unpublished_moves(lake, source, publication):
            through = (move.before.landed_through, move.after.landed_through)
            moves.append((move, landings_between(lake, source, *through)))
    elif moved.moved:
        moves.append((Move(fence.token, moved.before, moved.after), pending.landings))
    return Sealed(moves, report)
