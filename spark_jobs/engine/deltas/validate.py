"""The refusals of deltas that their rows alone show, so that landing can make them without knowing the chain."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from spark_jobs.engine.deltas.batch import DeltaBatch
from spark_jobs.engine.deltas.ops import Op, Refusal

Array = npt.NDArray[Any]


def refusals_of_rows(batch: DeltaBatch) -> Array:
    """The `Refusal` of each delta as far as the row alone decides it; refusals that the batch already has stay.

    Of several reasons, the first in this order is used: unknown operation, non-finite payload, null operand, index or
    length outside the declared vector.
    """
    refusal = batch.refusal.copy()
    lengths = batch.offsets[1:] - batch.offsets[:-1]
    indexed = np.isin(batch.op, (Op.SPARSE, Op.ADD, Op.UPSERT))
    whole = (batch.op == Op.CREATE) | (batch.op == Op.DENSE)
    _mark(refusal, batch.op > max(Op), Refusal.UNKNOWN_OPERATION)
    if batch.dtype.kind == "f":
        _mark(refusal, _rows_with(batch, ~np.isfinite(batch.values) & ~batch.nulls), Refusal.NON_FINITE)
        arithmetic = (batch.op == Op.SCALE) | (batch.op == Op.OFFSET)
        _mark(refusal, arithmetic & ~np.isfinite(batch.scalar), Refusal.NON_FINITE)
    _mark(refusal, (batch.op == Op.ADD) & _rows_with(batch, batch.nulls), Refusal.NULL_OPERAND)
    outside = batch.indices < 0
    if batch.dims is not None:
        outside |= batch.indices >= batch.dims
        _mark(refusal, whole & (lengths != batch.dims), Refusal.DIMENSION_MISMATCH)
    _mark(refusal, indexed & _rows_with(batch, outside), Refusal.INDEX_OUT_OF_BOUNDS)
    _mark(refusal, whole & (lengths == 0), Refusal.DIMENSION_MISMATCH)
    return refusal


def _rows_with(batch: DeltaBatch, cells: Array) -> Array:
    """Mask of the rows that own at least one of the marked payload cells."""
    rows = np.zeros(len(batch), dtype=np.bool_)
    rows[np.searchsorted(batch.offsets, np.flatnonzero(cells), side="right") - 1] = True
    return rows


def _mark(refusal: Array, rows: Array, reason: Refusal) -> None:
    refusal[rows & (refusal == Refusal.NONE)] = reason
