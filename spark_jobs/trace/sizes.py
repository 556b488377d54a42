"""The space that a source's trace takes, from the frontiers alone: no file is read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from spark_jobs.engine.arrangement import ArrangementState, TraceBatch, UnsealedBatch


@dataclass(frozen=True, slots=True)
class LevelSize:
    """The batches of one compaction level, in number, updates and stored bytes. `level` is None for unsealed batches.

    `upper_us`: the end of the newest interval of the level, in microseconds of visible time; None if unsealed.
    """

    level: int | None
    batches: int
    updates: int
    bytes: int
    upper_us: int | None = None


@dataclass(frozen=True, slots=True)
class TraceSize:
    """A trace's batches in force, in number, updates and stored bytes; replaced batches are not counted.

    `consolidated`: the share of the updates that are in batches that a merge has written, from 0 to 1; None without
    updates.
    """

    batches: int
    updates: int
    bytes: int
    consolidated: float | None

    @classmethod
    def of(cls, state: ArrangementState) -> TraceSize:
        """The size of the trace with this state."""
        batches: list[TraceBatch | UnsealedBatch] = [*state.trace, *state.unsealed]
        updates = sum(batch.n_updates for batch in batches)
        merged = sum(batch.n_updates for batch in state.trace if _is_merged(batch))
        return cls(len(batches), updates, _bytes(batches), merged / updates if updates else None)


def level_sizes(state: ArrangementState) -> list[LevelSize]:
    """The sizes of a trace by level: the greatest level, with the oldest batches, first, and unsealed batches last."""
    sizes = [
        _level_size(level, list(batches)) for level, batches in groupby(state.trace, key=lambda batch: batch.level)
    ]
    if state.unsealed:
        updates = sum(batch.n_updates for batch in state.unsealed)
        sizes.append(LevelSize(None, len(state.unsealed), updates, _bytes(state.unsealed)))
    return sizes


def _level_size(level: int, batches: Sequence[TraceBatch]) -> LevelSize:
    updates = sum(batch.n_updates for batch in batches)
    return LevelSize(level, len(batches), updates, _bytes(batches), batches[-1].upper.time)


def _is_merged(batch: TraceBatch) -> bool:
    # a merge that did not grow stays at level 0, but its times have been forwarded to a since
    return batch.level > 0 or bool(batch.since.time)


def _bytes(batches: Iterable[TraceBatch | UnsealedBatch]) -> int:
    return sum(batch.size for batch in batches)
