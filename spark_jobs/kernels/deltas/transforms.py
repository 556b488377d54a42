"""Transforms that a row of mode `operations` may name. A name, once released, keeps its meaning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from spark_jobs.kernels.deltas.fold import Transform
from spark_jobs.kernels.deltas.ops import Int64OverflowError

Array = npt.NDArray[Any]


def negate(vectors: Array) -> Array:
    """Every component with the other sign. Raises Int64OverflowError for the one int64 that has none: a fold refuses
    the delta."""
    if vectors.dtype.kind == "i" and (vectors == np.iinfo(vectors.dtype).min).any():
        raise Int64OverflowError(
            expected="components within int64",
            found="the transform 'negate' of -2^63, which leaves it",
            next_step="retract that row, or declare the component as float64",
        )
    return np.negative(vectors)


def unit_length(vectors: Array) -> Array:
    """Vectors of Euclidean length 1 in the same direction; a zero vector stays. Whole numbers are left alone."""
    if vectors.dtype.kind != "f":
        return vectors
    with np.errstate(over="ignore", under="ignore"):
        squares = np.sum(vectors * vectors, axis=1, keepdims=True)
        greatest = np.max(np.abs(vectors), axis=1, keepdims=True, initial=0)
        # squares leave the type's range, or lose digits at its end, where the vector does neither
        outside = (greatest > 0) & ~((squares >= np.finfo(vectors.dtype).tiny) & np.isfinite(squares))
        if outside.any():
            vectors = vectors / np.where(outside, greatest, 1)
            squares = np.where(outside, np.sum(vectors * vectors, axis=1, keepdims=True), squares)
        lengths = np.sqrt(squares)
        return (vectors / np.where(lengths == 0, 1, lengths)).astype(vectors.dtype)


REGISTERED: Mapping[str, Transform] = {"negate": negate, "unit_length": unit_length}
"""Transforms by name."""
