"""Chains and checkpoints in memory, for programs of your own and for tests; no run uses them.

>>> from spark_jobs.engine.deltas import Delta, FullMerge, Op
>>> from spark_jobs.engine.in_memory import Chains, compact, state_at
>>> from spark_jobs.model import Frontier
>>> deltas = [
...     Delta("plane", event_time=1, row_id=1, op=Op.CREATE, values=[1.0, 2.0]),
...     Delta("plane", event_time=5, row_id=2, op=Op.SPARSE, indices=[1], values=[7.0]),
... ]
>>> chains = Chains.of(deltas)
>>> state_at(chains, 4)["plane"].vector
(1.0, 2.0)
>>> compacted, done = compact(chains, FullMerge(), since=Frontier.at(5), horizon=Frontier.at(9))
>>> state_at(compacted)["plane"].vector, done.deltas_merged
((1.0, 7.0), 2)
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spark_jobs.engine.in_memory.chains import (
        Chains,
        Compaction,
        UnknownEntityError,
        compact,
        compose,
        history,
        needs_compaction,
        state_at,
    )
else:
    from spark_jobs.engine.faces import lazy_names

    __getattr__ = lazy_names(__name__)

__all__ = [
    "Chains",
    "Compaction",
    "UnknownEntityError",
    "compact",
    "compose",
    "history",
    "needs_compaction",
    "state_at",
]
