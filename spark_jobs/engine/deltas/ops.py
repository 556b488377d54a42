"""The terms of the delta algebra: operations, the status of an entity, and the refusals of deltas.

Per dimension every operation but Transform is `v -> a*v + b`, or Absent:

====================  =====================================  =====================================
operation             payload                                effect on a live vector
====================  =====================================  =====================================
Create                values                                 refused; else the vector is `values`
Dense                 values                                 (0, value) everywhere
Sparse                indices, values                        (0, value) at the indices, (1, 0) elsewhere
Scale                 scalar f                               (f, 0) everywhere
Offset                scalar c                               (1, c) everywhere
Add                   indices, values                        (1, value) at the indices, (1, 0) elsewhere
Transform             a registered name                      opaque: a barrier to composition
Delete                none                                   Absent
Upsert                indices, values                        as Sparse; on a deleted one it begins a new vector
====================  =====================================  =====================================

Null is a value: Sparse, Dense and Create can assign it, and arithmetic leaves it null. A component that was never seen
counts as 0 in arithmetic; Scale and Transform leave it unseen, Offset and Add make it seen.
"""

from __future__ import annotations

from enum import IntEnum

from spark_jobs.errors import TidemarkError


class Op(IntEnum):
    """Operation of a delta, as stored in the `op` column."""

    CREATE = 0
    DENSE = 1
    SPARSE = 2
    SCALE = 3
    OFFSET = 4
    ADD = 5
    TRANSFORM = 6
    DELETE = 7
    UPSERT = 8


class Status(IntEnum):
    """The status of an entity after its chain: never created, live, or deleted (a tombstone)."""

    ABSENT = 0
    LIVE = 1
    DELETED = 2


class Refusal(IntEnum):
    """The reason for which a delta was skipped; `NONE` if it was applied. Values are stored, so they never change."""

    NONE = 0
    CREATE_ON_LIVE = 1
    """Create on a vector that is live."""
    DELETED = 2
    """Anything but Create, Dense or Upsert after a Delete."""
    DIMENSION_MISMATCH = 3
    """A whole vector whose length differs from that of the chain, or from the declared one."""
    INDEX_OUT_OF_BOUNDS = 4
    """An index below 0, or at or beyond the length of the vector."""
    UNEQUAL_LISTS = 5
    """Indices and values of different length."""
    NON_FINITE = 6
    """NaN or infinity in the payload, or as the result of arithmetic."""
    NULL_OPERAND = 7
    """A null where arithmetic needs a number: in the values of an Add, or a Scale or Offset without its scalar."""
    MISSING_PARENT = 8
    """The declared parent is not an applied delta that comes before this one in the chain."""
    MISSING_BASE = 9
    """An operation on a vector that does not exist yet, if no length is declared (else it would begin with zeros)."""
    UNKNOWN_OPERATION = 10
    """An operation code outside `Op`."""
    UNKNOWN_TRANSFORM = 11
    """A Transform whose name is not registered."""
    UNREADABLE_LIST = 12
    """Indices or values that are no list of numbers."""
    INT64_OVERFLOW = 13
    """Arithmetic whose result is no int64."""

    @property
    def code(self) -> str:
        """The stable name of the reason in `gold.refused`."""
        return self.name.lower()


class DeltaError(TidemarkError):
    """A batch of deltas can't be folded at all; none of its deltas was applied."""

    code = "delta"


class MalformedDeltasError(DeltaError):
    """The columns of a batch contradict each other."""

    code = "malformed_deltas"


class Int64OverflowError(DeltaError):
    """An int64 would leave its range: in a transform's result (that delta is refused), or in a sum without a chain.
    Fact of a sum: `entity`."""

    code = "int64_overflow"


class DuplicateDeltaError(DeltaError):
    """Two deltas of one entity share (event_time, row_id), so their order is undefined."""

    code = "duplicate_delta"


class DeltaBeforeCheckpointError(DeltaError):
    """A delta is ordered at or before the checkpoint onto which it should be folded: its chain must be folded anew."""

    code = "delta_before_checkpoint"


class TransformResultError(DeltaError):
    """A registered transform returned another shape or type than that of its argument."""

    code = "transform_result"
