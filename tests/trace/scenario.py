"""Operations of an arrangement that between them commit in every way there is, for tests that end in the middle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from spark_jobs.engine.arrangement import ArrangementState
from spark_jobs.model import Frontier
from spark_jobs.trace import SteppedArrangement

Row = tuple[str, str, int, int]
AsUpdates = Callable[[list[Row]], Any]

MORNING: list[Row] = [("a", "x", 1, 1), ("b", "x", 3, 2), ("a", "x", 9, 1)]
NOON: list[Row] = [("a", "x", 5, -1), ("a", "y", 5, 1), ("b", "x", 12, -1)]
EVENING: list[Row] = [("a", "y", 15, 1), ("c", "z", 17, 1)]
NIGHT: list[Row] = [("a", "y", 16, -1), ("b", "y", 18, 1), ("b", "y", 30, 1)]
SEAL = 15


def operations(updates: AsUpdates) -> list[Callable[[SteppedArrangement[Any]], object]]:
    """Each makes at most one commit of the journal."""
    return [
        lambda a: a.write(updates(MORNING)),
        lambda a: a.seal(5),
        lambda a: a.drain(),
        lambda a: a.unsealed_step(),
        lambda a: a.write(updates(NOON)),
        lambda a: a.seal(SEAL),
        lambda a: a.drain(),
        lambda a: a.evict(),
        lambda a: a.allow_compaction(Frontier.at(SEAL)),
        lambda a: a.hold("reader", SEAL, expires_at=1),
        lambda a: a.compact(max_merges=1),
        lambda a: a.write(updates(EVENING)),
        # what was sealed and compacted becomes readable; what waited and what is new comes where it belongs
        lambda a: a.advance(updates(NIGHT), SEAL + 2),
    ]


def shape(state: ArrangementState) -> Any:
    """A state without what two runs of the same operations may differ in: handles, sizes, levels."""
    unsealed = [(b.seqno, b.least, b.greatest, b.n_updates) for b in state.unsealed]
    trace = [(b.description, b.n_updates, b.least, b.greatest) for b in state.trace]
    return state.seal, state.since, state.leases, unsealed, trace
