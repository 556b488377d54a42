"""Random chains of deltas for the tests of the delta kernels: every operation, refused ones included."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from spark_jobs.engine.deltas import Delta, Op


def squared(vectors: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    with np.errstate(over="ignore"):
        return vectors * vectors  # type: ignore[operator]


ENTITIES = {"a": 0, "b": 1, "c": 2}
TRANSFORMS = {
    "halve": lambda v: v // 2 if v.dtype.kind == "i" else v / v.dtype.type(2),
    "square": squared,
    "shift": lambda v: v + v.dtype.type(1),
}


def numbers(dtype: str) -> st.SearchStrategy[float | int]:
    if dtype == "int64":
        return st.one_of(st.integers(-9, 9), st.sampled_from([2**62, 2**63 - 1, -(2**63)]))
    special = [float(np.dtype(dtype).type(v)) for v in (0.1, -0.0, 0.3, 3.0, float("nan"), float("inf"), 1e30)]
    return st.one_of(st.sampled_from(special), st.floats(-1e3, 1e3, width=32 if dtype == "float32" else 64))


@st.composite
def delta_lists(draw: st.DrawFn, dtype: str, dims: int | None) -> list[Delta]:
    length = dims or draw(st.integers(1, 4))
    value = numbers(dtype)
    cell = st.one_of(value, value, st.none())
    index = st.one_of(st.integers(0, length - 1), st.integers(0, length - 1), st.integers(-1, length))
    deltas = []
    for row_id in draw(st.permutations(range(draw(st.integers(0, 14))))):
        op = draw(st.sampled_from(Op))
        payload: dict[str, object] = {}
        if op in (Op.CREATE, Op.DENSE):
            payload["values"] = draw(st.lists(cell, min_size=max(length - (row_id % 5 == 0), 0), max_size=length))
        elif op in (Op.SPARSE, Op.ADD, Op.UPSERT):
            indices = draw(st.lists(index, max_size=5))
            values = draw(st.lists(cell, min_size=len(indices), max_size=len(indices) + (row_id % 7 == 0)))
            payload |= {"indices": indices, "values": values}
        elif op in (Op.SCALE, Op.OFFSET):
            payload["scalar"] = draw(value)
        elif op is Op.TRANSFORM:
            payload["transform"] = draw(st.sampled_from(["halve", "square", "shift", "unheard"]))
        if draw(st.integers(0, 5)) == 0:
            payload["parent"] = draw(st.integers(0, 14))
        entity, time = draw(st.sampled_from("abc")), draw(st.integers(-3, 6))
        deltas.append(Delta(entity, time, row_id, op, **payload))  # type: ignore[arg-type]
    return deltas
