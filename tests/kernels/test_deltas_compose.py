"""Composed deltas stand for the deltas they were composed from: same states, fewer deltas, in any grouping."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.kernels.deltas.batch import Delta, DeltaBatch
from spark_jobs.kernels.deltas.compose import compose
from spark_jobs.kernels.deltas.fold import fold
from spark_jobs.kernels.deltas.ops import Op
from spark_jobs.kernels.deltas.states import States
from tests.effort import tries
from tests.kernels.delta_strategies import ENTITIES, TRANSFORMS, delta_lists


def columns(batch: DeltaBatch) -> list[object]:
    names = ("entity", "event_time", "row_id", "op", "scalar", "transform", "weight", "offsets", "indices", "nulls")
    return [getattr(batch, name).tolist() for name in names] + [batch.values.tobytes()]


def batch_of(deltas: list[Delta], dtype: str, dims: int | None) -> DeltaBatch:
    return DeltaBatch.from_deltas(deltas, entities=ENTITIES, dtype=dtype, dims=dims)


@st.composite
def applied_batches(draw: st.DrawFn, dtype: str) -> tuple[DeltaBatch, States]:
    """Deltas that their chain applies, and the checkpoints before them."""
    dims = draw(st.one_of(st.none(), st.integers(1, 3)))
    deltas = sorted(draw(delta_lists(dtype, dims)), key=lambda d: (d.event_time, d.row_id))
    cut = draw(st.integers(0, len(deltas)))
    batch = batch_of(deltas, dtype, dims)
    base = fold(batch.take(np.arange(cut)), transforms=TRANSFORMS).states
    rest = batch.take(np.arange(cut, len(deltas)))
    return rest.take(fold(rest, base, transforms=TRANSFORMS).applied), base


@pytest.mark.parametrize("dtype", ["int64", "float32"])
@given(data=st.data())
@settings(max_examples=tries(25), deadline=None)
def test_composed_deltas_give_the_state_of_every_bucket_end(dtype: str, data: st.DataObject) -> None:
    batch, base = data.draw(applied_batches(dtype))
    bucket = batch.event_time // data.draw(st.integers(1, 4))
    composed = compose(batch, bucket=bucket, before=base.status)
    for end in sorted(set(bucket.tolist())):
        expected = fold(batch.take(bucket <= end), base, transforms=TRANSFORMS)
        own_bucket = np.full(len(composed.batch), bucket.min())
        np.maximum.at(own_bucket, composed.into, bucket)
        actual = fold(composed.batch.take(own_bucket <= end), base, transforms=TRANSFORMS)
        assert actual.applied.all()
        assert actual.states.same_bits(expected.states).all()


@pytest.mark.parametrize("dtype", ["int64", "float32"])
@given(data=st.data())
@settings(max_examples=tries(25), deadline=None)
def test_any_grouping_composes_to_the_same_list(dtype: str, data: st.DataObject) -> None:
    batch, base = data.draw(applied_batches(dtype))
    whole = compose(batch, before=base.status).batch
    cut = data.draw(st.integers(0, len(batch)))
    first, second = batch.take(np.arange(cut)), batch.take(np.arange(cut, len(batch)))
    middle = fold(first, base, transforms=TRANSFORMS).states
    parts = compose(first, before=base.status).batch.concat(compose(second, before=middle.status).batch)
    assert columns(compose(parts, before=base.status).batch) == columns(whole)
    assert columns(compose(whole, before=base.status).batch) == columns(whole)


@pytest.mark.parametrize(
    ("deltas", "left"),
    [
        ([(Op.SPARSE, {"indices": [0], "values": [1.0]}), (Op.SPARSE, {"indices": [1], "values": [2.0]})], [Op.SPARSE]),
        ([(Op.SCALE, {"scalar": 2.0}), (Op.SCALE, {"scalar": 3.0})], [Op.SCALE, Op.SCALE]),
        ([(Op.DENSE, {"values": [1.0, 2.0]}), (Op.SCALE, {"scalar": 3.0})], [Op.DENSE]),
        ([(Op.OFFSET, {"scalar": 2.0}), (Op.DENSE, {"values": [1.0, 2.0]})], [Op.DENSE]),
        ([(Op.OFFSET, {"scalar": 2.0}), (Op.DELETE, {})], [Op.DELETE]),
        ([(Op.CREATE, {"values": [1.0, 2.0]}), (Op.TRANSFORM, {"transform": "halve"})], [Op.CREATE, Op.TRANSFORM]),
        ([(Op.DELETE, {}), (Op.CREATE, {"values": [1.0, 2.0]})], [Op.CREATE]),
    ],
)
def test_pairs_compose_as_the_algebra_says(deltas: list[tuple[Op, dict[str, object]]], left: list[Op]) -> None:
    rows = [Delta("a", i, i, op, **payload) for i, (op, payload) in enumerate(deltas)]  # type: ignore[arg-type]
    composed = compose(batch_of(rows, "float64", 2)).batch
    assert [Op(int(code)) for code in composed.op] == left
    assert composed.weight.sum() == len(rows)
    assert composed.row_id[-1] == rows[-1].row_id


def test_values_are_folded_left_to_right_onto_a_whole_vector() -> None:
    rows = [Delta("a", 0, 0, Op.CREATE, values=[0.1])]
    rows += [Delta("a", i, i, Op.SCALE, scalar=0.1) for i in (1, 2)]
    composed = compose(batch_of(rows, "float64", 1)).batch
    assert composed.values.tolist() == [0.1 * 0.1 * 0.1]
    assert 0.1 * 0.1 * 0.1 != 0.1 * (0.3 * 0.1)


CREATE, LONGER, DELETE = (Op.CREATE, [1.0]), (Op.CREATE, [1.0, 2.0]), (Op.DELETE, [])


@pytest.mark.parametrize(
    ("before", "deltas", "left"),
    [
        ([CREATE], [DELETE, LONGER], [Op.DELETE, Op.CREATE]),
        ([CREATE], [DELETE, LONGER, DELETE, CREATE], [Op.DELETE, Op.CREATE]),
        ([CREATE, DELETE], [LONGER, DELETE], [Op.CREATE, Op.DELETE]),
        ([CREATE, DELETE], [LONGER, DELETE, CREATE], [Op.CREATE]),
        ([], [CREATE, DELETE], [Op.DELETE]),
    ],
)
def test_what_lets_the_chain_accept_the_last_start_is_kept(
    before: list[tuple[Op, list[float]]], deltas: list[tuple[Op, list[float]]], left: list[Op]
) -> None:
    rows = [Delta("a", i, i, op, values=values) for i, (op, values) in enumerate([*before, *deltas])]
    base = fold(batch_of(rows[: len(before)], "float64", None)).states
    batch = batch_of(rows[len(before) :], "float64", None)
    composed = compose(batch, before=base.status).batch
    assert [Op(int(code)) for code in composed.op] == left
    result = fold(composed, base)
    assert result.applied.all()
    assert result.states.same_bits(fold(batch, base).states).all()
