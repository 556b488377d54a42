"""The arrangement as a pure state machine, with its checks and its compaction rule. No data move here.

`spark_jobs.trace.Arrangement` drives it over a data plane. `state` is the machine, `checks` has its invariants,
`compaction` chooses and describes merges, `future` has the buckets of updates not yet due, `errors` the refusals.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spark_jobs.engine.arrangement.batches import (
        Description,
        ReadLease,
        SeqnoRange,
        StoredBatch,
        TraceBatch,
        UnsealedBatch,
    )
    from spark_jobs.engine.arrangement.checks import check_state, check_trace_batch
    from spark_jobs.engine.arrangement.compaction import (
        CompactionRequest,
        CompactionResponse,
        check_mergeable,
        merged_batch,
    )
    from spark_jobs.engine.arrangement.errors import ArrangementError
    from spark_jobs.engine.arrangement.future import LEVELS, Buckets
    from spark_jobs.engine.arrangement.state import AdvanceRequest, ArrangementState, FinishedDrain
else:
    from spark_jobs.engine.faces import lazy_names

    __getattr__ = lazy_names(__name__)

__all__ = [
    "LEVELS",
    "AdvanceRequest",
    "ArrangementError",
    "ArrangementState",
    "Buckets",
    "CompactionRequest",
    "CompactionResponse",
    "Description",
    "FinishedDrain",
    "ReadLease",
    "SeqnoRange",
    "StoredBatch",
    "TraceBatch",
    "UnsealedBatch",
    "check_mergeable",
    "check_state",
    "check_trace_batch",
    "merged_batch",
]
