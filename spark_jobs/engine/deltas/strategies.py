"""Compaction strategies, which decide the part of a chain that is put into checkpoints (`cutting.py`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from spark_jobs.errors import ParameterError

Array = npt.NDArray[Any]

KEEP_RECENT = 10
"""The default number of newest deltas that stay pending: a late delta among them rewrites no checkpoint."""

MAX_CHAIN_LENGTH = 1000
"""The default number of pending deltas from which on a chain must be compacted; with every strategy, fewer are left."""


@dataclass(frozen=True, slots=True)
class FullMerge:
    """Place a checkpoint behind the newest delta. A chain without pending deltas keeps its checkpoint."""


@dataclass(frozen=True, slots=True)
class TieredMerge:
    """Place a checkpoint behind all but the newest `keep_recent` deltas; `keep_recent=0` is FullMerge.

    If `max_chain_length` of the policy is not greater than `keep_recent`, fewer deltas stay pending.
    """

    keep_recent: int = KEEP_RECENT

    def __post_init__(self) -> None:
        require_at_least("keep_recent", self.keep_recent, 0)


@dataclass(frozen=True, slots=True)
class TimeBoundary:
    """Place a checkpoint behind the deltas of each `[k*interval, (k+1)*interval)` of event time that is over.

    `interval` is in ticks. The state at every boundary is kept, even if both frontiers have passed its deltas.
    """

    interval: int

    def __post_init__(self) -> None:
        require_at_least("interval", self.interval, 1)


@dataclass(frozen=True, slots=True)
class Adaptive:
    """FullMerge for entities that are read at least `full_from` times per delta written, TieredMerge for the others.

    `reads` and `writes` are measured counts, per entity (those of its class, see `traffic.py`) or one for all. A state
    that is read more often than it changes is worth a checkpoint without pending deltas. If deltas come faster, it is
    better to keep the newest ones pending, as late deltas then rewrite less.
    """

    reads: int | Array
    writes: int | Array
    full_from: float = 1.0
    keep_recent: int = KEEP_RECENT

    def __post_init__(self) -> None:
        require_at_least("keep_recent", self.keep_recent, 0)

    def read_heavy(self, entity_count: int) -> Array:
        """Mask of the entities for which FullMerge is used."""
        heavy = np.asarray(self.reads) >= self.full_from * np.maximum(np.asarray(self.writes), 1)
        return np.broadcast_to(heavy, entity_count) if heavy.ndim == 0 else heavy[:entity_count]


Strategy = FullMerge | TieredMerge | TimeBoundary | Adaptive


def require_at_least(name: str, value: int, least: int) -> None:
    """Raise ParameterError for a setting below its least value."""
    if value < least:
        raise ParameterError(
            expected=f"{name} of at least {least}", found=str(value), next_step=f"choose another {name}", parameter=name
        )
