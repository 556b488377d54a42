"""The arrangement as a pure state machine, with its checks and its compaction rule. No data move here.

`spark_jobs.trace.Arrangement` drives it over a data plane. `state` is the machine, `checks` has its invariants,
`compaction` chooses and describes merges, `future` has the buckets of updates not yet due, `errors` the refusals.
"""

from spark_jobs.kernels.arrangement.batches import (
    Description,
    Lease,
    SeqnoRange,
    StoredBatch,
    TraceBatch,
    UnsealedBatch,
)
from spark_jobs.kernels.arrangement.checks import (
    check_meta,
    check_state,
    check_trace_batch,
    check_unsealed_batch,
)
from spark_jobs.kernels.arrangement.compaction import (
    CompactionRequest,
    CompactionResponse,
    check_mergeable,
    choose_pair,
    merged_batch,
)
from spark_jobs.kernels.arrangement.errors import ArrangementError
from spark_jobs.kernels.arrangement.future import Buckets
from spark_jobs.kernels.arrangement.state import AdvanceRequest, ArrangementState, DrainRequest, FinishedDrain

__all__ = [
    "AdvanceRequest",
    "ArrangementError",
    "ArrangementState",
    "Buckets",
    "CompactionRequest",
    "CompactionResponse",
    "Description",
    "DrainRequest",
    "FinishedDrain",
    "Lease",
    "SeqnoRange",
    "StoredBatch",
    "TraceBatch",
    "UnsealedBatch",
    "check_mergeable",
    "check_meta",
    "check_state",
    "check_trace_batch",
    "check_unsealed_batch",
    "choose_pair",
    "merged_batch",
]
