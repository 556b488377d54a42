"""The steps of the reference that a commit has taken, told from the states before and after it.

A run takes its steps at once (`Arrangement.advance`, `maintain`), and its commit has the state after all of them. A
state names its batches, and batches never change: so the two states show what was appended, sealed, drained, evicted
and merged. Definition of the steps: Materialize persist `Arrangement`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from spark_jobs.engine.arrangement import ArrangementState, TraceBatch
from spark_jobs.model import Frontier

Kind = Literal["append", "seal", "drain", "evict", "allow_compaction", "merge", "hold", "release", "roll_back"]


@dataclass(frozen=True, slots=True)
class TraceStep:
    """One step.

    Attributes:
        kind: the reference's name of the step. `append`: updates wait in a batch. `evict`: a batch of waiting updates
            is gone, its updates are in the trace or wait in other batches. `roll_back`: an unpublished seal, or
            batches that were appended under it, are withdrawn.
        batch: the handle of the batch that the step made or removed, or the name of the held read; empty for frontiers.
        updates: the number of updates of that batch, after those that cancel.
        lower, upper: the bounds of a trace batch; the frontier before and after its move; the least time and the one
            after the greatest of a batch of waiting updates; for a held read, its time twice.
        replaced: the handles of the batches that a merge replaced.
    """

    kind: Kind
    batch: str = ""
    updates: int = 0
    lower: Frontier = Frontier.at(0)  # noqa: RUF009  an immutable value
    upper: Frontier = Frontier.at(0)  # noqa: RUF009
    replaced: tuple[str, ...] = ()


def steps_between(before: ArrangementState, after: ArrangementState) -> list[TraceStep]:
    """The steps that lead from one state to a later one, in the order in which a run takes them."""
    return [
        *_of_unsealed(before, after),
        *_of_seal(before, after),
        *_of_since(before, after),
        *_of_trace(before, after),
        *_of_leases(before, after),
    ]


def _of_unsealed(before: ArrangementState, after: ArrangementState) -> Iterator[TraceStep]:
    present = {batch.handle for batch in before.unsealed}
    left = {batch.handle for batch in after.unsealed}
    for batch in after.unsealed:
        if batch.handle not in present:
            times = Frontier.at(batch.least), Frontier.at(batch.greatest + 1)
            yield TraceStep("append", batch.handle, batch.n_updates, *times)
    for batch in before.unsealed:
        if batch.handle not in left:
            times = Frontier.at(batch.least), Frontier.at(batch.greatest + 1)
            yield TraceStep("evict", batch.handle, batch.n_updates, *times)


def _of_seal(before: ArrangementState, after: ArrangementState) -> Iterator[TraceStep]:
    if before.seal != after.seal:
        yield TraceStep("seal" if before.seal < after.seal else "roll_back", "", 0, before.seal, after.seal)


def _of_trace(before: ArrangementState, after: ArrangementState) -> Iterator[TraceStep]:
    present = {batch.handle for batch in before.trace}
    left = {batch.handle for batch in after.trace}
    gone = [batch for batch in before.trace if batch.handle not in left]
    for batch in after.trace:
        if batch.handle in present:
            continue
        inputs = tuple(old.handle for old in gone if _covers(batch, old))
        kind: Kind = "merge" if inputs else "drain"
        yield TraceStep(kind, batch.handle, batch.n_updates, batch.lower, batch.upper, inputs)
    for old in gone:
        if not any(_covers(batch, old) for batch in after.trace):
            yield TraceStep("roll_back", old.handle, old.n_updates, old.lower, old.upper)


def _covers(batch: TraceBatch, other: TraceBatch) -> bool:
    return batch.lower <= other.lower and other.upper <= batch.upper


def _of_since(before: ArrangementState, after: ArrangementState) -> Iterator[TraceStep]:
    if before.since != after.since:
        yield TraceStep("allow_compaction", "", 0, before.since, after.since)


def _of_leases(before: ArrangementState, after: ArrangementState) -> Iterator[TraceStep]:
    for lease in after.leases:
        if lease not in before.leases:
            yield TraceStep("hold", lease.name, 0, Frontier.at(lease.at), Frontier.at(lease.at))
    names = {lease.name for lease in after.leases}
    for lease in before.leases:
        if lease.name not in names:
            yield TraceStep("release", lease.name, 0, Frontier.at(lease.at), Frontier.at(lease.at))
