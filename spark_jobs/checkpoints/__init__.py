"""The chains and checkpoints of gold: the state of any entity at any time, exact before and after compaction.

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

from spark_jobs.checkpoints.frames import ChainFrame, compact_deltas, join_as_of
from spark_jobs.checkpoints.in_memory import (
    Chains,
    Compaction,
    UnknownEntityError,
    compact,
    compose,
    history,
    needs_compaction,
    state_at,
)
from spark_jobs.checkpoints.stored import read_chains, write_chains
from spark_jobs.kernels.deltas.batch import Delta
from spark_jobs.kernels.deltas.cutting import CompactionPolicy, Need
from spark_jobs.kernels.deltas.ops import Op, Refusal, Status
from spark_jobs.kernels.deltas.states import EntityState
from spark_jobs.kernels.deltas.strategies import Adaptive, FullMerge, Strategy, TieredMerge, TimeBoundary
from spark_jobs.kernels.deltas.versions import ChainVersion
from spark_jobs.model import Frontier

__all__ = [
    "Adaptive",
    "ChainFrame",
    "ChainVersion",
    "Chains",
    "Compaction",
    "CompactionPolicy",
    "Delta",
    "EntityState",
    "Frontier",
    "FullMerge",
    "Need",
    "Op",
    "Refusal",
    "Status",
    "Strategy",
    "TieredMerge",
    "TimeBoundary",
    "UnknownEntityError",
    "compact",
    "compact_deltas",
    "compose",
    "history",
    "join_as_of",
    "needs_compaction",
    "read_chains",
    "state_at",
    "write_chains",
]
