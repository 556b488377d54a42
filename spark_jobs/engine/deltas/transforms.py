"""The transforms that a row of mode `operations` may name. A name, once released, keeps its meaning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from spark_jobs.engine.deltas.fold import Transform
from spark_jobs.engine.deltas.ops import Int64OverflowError

Array = npt.NDArray[Any]


def negate(vectors: Array) -> Array:
    """The vectors with every component negated. Raises Int64OverflowError for -2^63, which int64 can't negate.

    A fold refuses such a delta."""
    if vectors.dtype.kind == "i" and (vectors == np.iinfo(vectors.dtype).min).any():
        raise Int64OverflowError(
            expected="components within int64",
            found="the transform 'negate' of -2^63, which leaves it",
            next_step="retract that row, or declare the component as float64",
        )
    return np.negative(vectors)


def unit_length(vectors: Array) -> Array:
    """The vectors scaled to Euclidean length 1; zero vectors, and vectors of whole numbers, stay as they are."""
    if vectors.dtype.kind != "f":
        return vectors
    with np.errstate(over="ignore", under="ignore"):
        squares = np.sum(vectors * vectors, axis=1, keepdims=True)
        greatest = np.max(np.abs(vectors), axis=1, keepdims=True, initial=0)
        # squares may leave the range of the type, or lose digits at its end, although the vector does neither
        outside = (greatest > 0) & ~((squares >= np.finfo(vectors.dtype).tiny) & np.isfinite(squares))
        if outside.any():
            vectors = vectors / np.where(outside, greatest, 1)
            squares = np.where(outside, np.sum(vectors * vectors, axis=1, keepdims=True), squares)
        lengths = np.sqrt(squares)
        return (vectors / np.where(lengths == 0, 1, lengths)).astype(vectors.dtype)


REGISTERED: Mapping[str, Transform] = {"negate": negate, "unit_length": unit_length}
"""The registered transforms by name."""
