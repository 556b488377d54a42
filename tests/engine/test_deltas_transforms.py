"""The registered transforms: row by row, and right at the ends of the types."""

from __future__ import annotations

import numpy as np
import pytest

from spark_jobs.engine.deltas import REGISTERED
from spark_jobs.engine.deltas.ops import Int64OverflowError
from spark_jobs.engine.deltas.transforms import negate, unit_length


@pytest.mark.parametrize("name", list(REGISTERED))
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
@pytest.mark.parametrize("dims", [1, 3, 129, 4096])
def test_a_vector_becomes_the_same_alone_and_among_others(name: str, dtype: str, dims: int) -> None:
    drawn = np.random.default_rng(dims).normal(0, 9, (7, dims))
    vectors = (drawn * 10.0 ** np.array([[0], [9], [-9], [30], [-30], [0], [1]])).clip(-1e15, 1e15).astype(dtype)
    vectors[5] = 0
    together = REGISTERED[name](vectors.copy())
    alone = np.concatenate([REGISTERED[name](vectors[[row]]) for row in range(len(vectors))])
    assert together.dtype == vectors.dtype
    assert together.tobytes() == alone.tobytes()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_length_whose_square_leaves_the_type_is_a_length(dtype: str) -> None:
    limits = np.finfo(dtype)
    vectors = np.array([[3.0, -4.0], [0.0, 0.0]], dtype)
    expected = np.array([[0.6, -0.8], [0.0, 0.0]], dtype)
    for size in (1.0, float(limits.max) / 8, float(limits.tiny), float(np.sqrt(limits.tiny)) / 7):
        np.testing.assert_allclose(
            unit_length(vectors * np.dtype(dtype).type(size)), expected, rtol=4 * float(limits.eps)
        )
    assert unit_length(vectors)[0].tobytes() == (vectors[0] / np.dtype(dtype).type(5)).tobytes()


def test_the_least_whole_number_has_no_negative() -> None:
    assert negate(np.array([[5, -(2**63) + 1]])).tolist() == [[-5, 2**63 - 1]]
    with pytest.raises(Int64OverflowError):
        negate(np.array([[0, -(2**63)]]))
