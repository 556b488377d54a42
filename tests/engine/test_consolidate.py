"""The consolidation kernel against its naive twin."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.engine.twins import consolidation as naive
from spark_jobs.engine.updates import DiffOverflow, accumulate, consolidate, dense_ranks, forward
from tests.effort import tries

UNSIGNED = pa.schema([("key", pa.string()), ("value", pa.string()), ("time", pa.uint64()), ("diff", pa.int64())])
GREATEST = 2**64 - 1

texts = st.sampled_from(["", "a", "b", "ab", "é", "\ufffd", "\U0001f30a", "Z"])
times = st.integers(0, 4) | st.sampled_from([2**53, 2**53 + 1, 2**63, GREATEST - 1, GREATEST])
diffs = st.integers(-3, 3) | st.sampled_from([2**53 + 1, -(2**53)])
updates = st.lists(st.tuples(texts, texts, times, diffs), max_size=30)


def table(rows: list[tuple[Any, ...]], schema: pa.Schema = UNSIGNED) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)


def rows(updates_: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in updates_.to_pylist()]


@settings(max_examples=tries(80), deadline=None)
@given(updates)
def test_consolidating_equals_the_naive_twin(raw: list[tuple[Any, ...]]) -> None:
    result = consolidate(table(raw))
    assert rows(result) == naive.consolidate(raw)
    assert result.schema == UNSIGNED


@settings(max_examples=tries(30), deadline=None)
@given(updates, st.none() | times)
def test_forwarding_and_accumulating_equal_the_naive_twin(raw: list[tuple[Any, ...]], since: int | None) -> None:
    assert rows(forward(table(raw), since)) == naive.forward(raw, since)
    assert rows(accumulate(table(raw))) == naive.accumulate(raw)


@settings(max_examples=tries(30), deadline=None)
@given(updates)
def test_a_result_is_strictly_ascending_without_zeros_and_stays_as_it_is(raw: list[tuple[Any, ...]]) -> None:
    once = consolidate(table(raw))
    assert all(before[:-1] < after[:-1] for before, after in pairwise(rows(once)))
    assert 0 not in once.column("diff").to_pylist()
    assert consolidate(once).equals(once)


@settings(max_examples=tries(30), deadline=None)
@given(updates, updates)
def test_order_and_parts_do_not_matter(left: list[tuple[Any, ...]], right: list[tuple[Any, ...]]) -> None:
    parts = pa.concat_tables([consolidate(table(left)), consolidate(table(right))])
    assert consolidate(parts).equals(consolidate(table(right[::-1] + left[::-1])))


def test_nulls_are_equal_and_come_last() -> None:
    raw = [(None, "x", 1, 1), ("a", None, 1, 1), ("a", "x", 1, 1), (None, "x", 1, 2), (None, None, 1, -1)]
    expected = [("a", "x", 1, 1), ("a", None, 1, 1), (None, "x", 1, 3), (None, None, 1, -1)]
    assert rows(consolidate(table(raw))) == expected


def test_data_may_be_any_columns_or_none_and_stand_in_any_order() -> None:
    schema = pa.schema([("diff", pa.int64()), ("n", pa.int32()), ("time", pa.int64()), ("seen", pa.timestamp("us"))])
    raw = table([(1, 7, -5, 3), (2, 7, -5, 3), (1, 7, -5, 2), (1, -7, 9, 3)], schema)
    expected = table([(1, -7, 9, 3), (1, 7, -5, 2), (3, 7, -5, 3)], schema)
    assert consolidate(raw).equals(expected)
    bare = pa.schema([("time", pa.int64()), ("diff", pa.int64())])
    assert rows(consolidate(table([(2, 1), (1, 1), (2, 1)], bare))) == [(1, 1), (2, 2)]
    assert rows(accumulate(table([(2, 1), (1, 1), (2, 1)], bare))) == [(3,)]


def test_sums_are_exact_up_to_the_last_of_64_bits_and_refused_beyond() -> None:
    limits = [("k", "v", 1, 2**63 - 2), ("k", "v", 1, 1), ("k", "w", 1, -(2**63)), ("k", "x", 1, -(2**63))]
    assert rows(consolidate(table(limits))) == [
        ("k", "v", 1, 2**63 - 1),
        ("k", "w", 1, -(2**63)),
        ("k", "x", 1, -(2**63)),
    ]
    back = [("k", "v", 1, 2**62), ("k", "v", 1, 2**62), ("k", "v", 1, -1)]
    assert rows(consolidate(table(back))) == [("k", "v", 1, 2**63 - 1)]
    with pytest.raises(DiffOverflow):
        consolidate(table(back[:2]))
    with pytest.raises(DiffOverflow):
        accumulate(table([("k", "v", 1, -(2**63)), ("k", "v", 2, -1)]))


def test_ranks_follow_the_values_over_chunks_and_dictionaries() -> None:
    column = pa.chunked_array([["b", None, "a"], ["c", "b"]])
    expected = np.array([1, 3, 0, 2, 1])
    assert (dense_ranks(column) == expected).all()
    assert (dense_ranks(column.combine_chunks().dictionary_encode()) == expected).all()
    assert len(dense_ranks(pa.chunked_array([], type=pa.string()))) == 0


def test_dictionaries_that_repeat_a_value_or_hold_the_null_rank_as_their_values_do() -> None:
    codes = pa.array([0, 1, 2, 3, None], pa.int32())
    column = pa.DictionaryArray.from_arrays(codes, pa.array(["b", "a", "b", None]))
    assert (
        dense_ranks(column).tolist() == dense_ranks(pa.array(["b", "a", "b", None, None])).tolist() == [1, 0, 1, 2, 2]
    )


def test_floats_are_told_apart_by_their_bits_in_whatever_order_they_come() -> None:
    other_nan = np.array([0x7FF8000000000001]).view(np.float64)[0]
    values = [0.0, float("nan"), -0.0, None, -1.5, float("inf"), other_nan, 0.0, float("-inf"), 0.25]
    ranks = [3, 6, 2, 7, 1, 5, 6, 3, 0, 4]
    missing = np.array([value is None for value in values])
    for kind in (pa.float64(), pa.float32(), pa.float16()):
        given = np.array([0 if value is None else value for value in values], kind.to_pandas_dtype())
        column = pa.array(given, kind, mask=missing)
        assert dense_ranks(column).tolist() == ranks
        assert dense_ranks(column[::-1]).tolist() == ranks[::-1]
        assert dense_ranks(pa.chunked_array([column[:4], column[4:]])).tolist() == ranks
    assert dense_ranks(pa.array(given, kind, mask=missing).cast(pa.float32()).dictionary_encode()).tolist() == ranks
