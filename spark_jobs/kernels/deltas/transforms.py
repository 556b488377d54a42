"""Transforms that a row of mode `operations` may name. A name, once released, keeps its meaning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from spark_jobs.kernels.deltas.fold import Transform

Array = npt.NDArray[Any]


def negate(vectors: Array) -> Array:
    """Every component with the other sign."""
    return np.negative(vectors)


def unit_length(vectors: Array) -> Array:
    """Vectors of Euclidean length 1 in the same direction; a zero vector stays. Whole numbers are left alone."""
    if vectors.dtype.kind != "f":
        return vectors
    lengths = np.sqrt(np.sum(vectors * vectors, axis=1, keepdims=True))
    return (vectors / np.where(lengths == 0, 1, lengths)).astype(vectors.dtype)


REGISTERED: Mapping[str, Transform] = {"negate": negate, "unit_length": unit_length}
"""Transforms by name."""
