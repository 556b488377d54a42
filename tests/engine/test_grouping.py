"""Groups out of batches, and equality of columns, against loops over Python values."""

from __future__ import annotations

import itertools
import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.engine.columns import whole_groups
from spark_jobs.engine.columns.equality import same_values
from tests.effort import tries

groups = st.lists(st.tuples(st.sampled_from([None, "a", "b"]), st.integers(0, 2)), max_size=20)


@settings(max_examples=tries(60), deadline=None)
@given(keys=groups, cuts=st.lists(st.integers(0, 20), max_size=8), least=st.integers(1, 6))
def test_a_stream_is_cut_between_groups_and_nowhere_else(keys: list[Any], cuts: list[int], least: int) -> None:
    keys = sorted(keys, key=repr)
    rows = pa.table({"k": [k for k, _ in keys], "n": [n for _, n in keys], "row": range(len(keys))})
    edges = [0, *sorted(min(cut, len(keys)) for cut in cuts), len(keys)]
    batches = [b for lo, hi in itertools.pairwise(edges) for b in rows.slice(lo, hi - lo).to_batches()]
    found = list(whole_groups(iter(batches), ["k", "n"], least_rows=least))
    assert [row for table in found for row in table["row"].to_pylist()] == list(range(len(keys)))
    held = [set(zip(table["k"].to_pylist(), table["n"].to_pylist(), strict=True)) for table in found]
    assert sum(map(len, held)) == len(set(keys)), "no group is in two tables"
    assert all(table.num_rows >= least for table in found[:-1])
    longest = max((keys.count(key) for key in keys), default=0)
    widest = max((hi - lo for lo, hi in itertools.pairwise(edges)), default=0)
    assert all(table.num_rows < least + longest + widest + 1 for table in found), "little is held beyond a group"


doubles = st.sampled_from([0.0, -0.0, 1.5, float("nan"), float("inf")])
TYPES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "int": (pa.int64(), st.integers(0, 1)),
    "float": (pa.float64(), doubles),
    "list": (pa.list_(pa.float64()), st.lists(st.none() | doubles, max_size=2)),
    "lists": (pa.list_(pa.list_(pa.string())), st.lists(st.lists(st.sampled_from("xy"), max_size=1), max_size=2)),
    "struct": (
        pa.struct([("a", pa.int64()), ("b", pa.float64())]),
        st.fixed_dictionaries({"a": st.none() | st.integers(0, 1), "b": st.none() | doubles}),
    ),
}


def bits(value: Any) -> Any:
    """The value with its floats as bytes, so that `==` compares to the bit."""
    if isinstance(value, float):
        return struct.pack("<d", value)
    if isinstance(value, list):
        return [bits(part) for part in value]
    return {name: bits(part) for name, part in value.items()} if isinstance(value, dict) else value


@pytest.mark.parametrize("kind", TYPES)
@settings(max_examples=tries(40), deadline=None)
@given(data=st.data())
def test_values_are_the_same_iff_they_are_to_the_bit_and_null_is_null(kind: str, data: st.DataObject) -> None:
    arrow, values = TYPES[kind]
    pairs = data.draw(st.lists(st.tuples(st.none() | values, st.none() | values), max_size=8))
    left, right = (pa.chunked_array([pa.array([pair[side] for pair in pairs], arrow)]) for side in (0, 1))
    assert same_values(left, right).tolist() == [bits(a) == bits(b) for a, b in pairs]
    # a part of a longer column: offsets into shared buffers
    half = len(pairs) // 2
    assert same_values(left.slice(half), right.slice(half)).tolist() == [bits(a) == bits(b) for a, b in pairs[half:]]
