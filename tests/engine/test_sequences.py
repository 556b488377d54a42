"""A sequence orders rows of one time, as tuples of its columns' values do: in texts, in windows, in chunks."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.engine.chunks.sequenced import with_places
from spark_jobs.engine.columns import sequence_texts
from spark_jobs.engine.columns.sequences import tie_places
from spark_jobs.engine.windows import first, last
from tests.effort import tries
from tests.engine.whole_tables import hopping_table

COLUMNS = {
    "int": (pa.int64(), st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 2)),
    "text": (pa.string(), st.text(st.sampled_from("\0 09aä😀"), max_size=3)),
    "decimal": (pa.decimal128(38, 2), st.integers(-(10**38) + 1, 10**38 - 1).map(lambda n: Decimal(f"{n}E-2"))),
    "time": (
        pa.timestamp("us", "UTC"),
        st.integers(-(10**15), 10**15).map(lambda us: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)),
    ),
    "date": (pa.date32(), st.dates(date(1, 1, 1), date(9999, 12, 31))),
}


def tuple_key(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """The slow twin: nulls first, texts by their bytes."""
    plain = [value.encode() if isinstance(value, str) else value for value in values]
    return tuple((value is not None, 0 if value is None else value) for value in plain)


@given(data=st.data(), kinds=st.lists(st.sampled_from(list(COLUMNS)), min_size=1, max_size=3))
@settings(max_examples=tries(100), deadline=None)
def test_texts_order_as_tuples_do(data: st.DataObject, kinds: list[str]) -> None:
    rows = data.draw(st.lists(st.tuples(*(st.none() | COLUMNS[kind][1] for kind in kinds)), max_size=8))
    columns = [pa.array([row[i] for row in rows], COLUMNS[kind][0]) for i, kind in enumerate(kinds)]
    texts = sequence_texts(columns).to_pylist()
    assert [rows[i] for i in sorted(range(len(rows)), key=lambda i: texts[i])] == sorted(rows, key=tuple_key)
    assert len(set(texts)) == len({tuple_key(row) for row in rows})
    row_ids = np.arange(len(rows))[::-1] // 2
    places = tie_places(sequence_texts(columns), row_ids).tolist()
    keys = [(*tuple_key(row), int(row_id)) for row, row_id in zip(rows, row_ids, strict=True)]
    assert places == [sorted(set(keys)).index(key) for key in keys]


def test_a_column_without_one_order_is_refused() -> None:
    with pytest.raises(TypeError, match="found double"):
        sequence_texts([pa.array([1.0])])


@given(rows=st.lists(st.tuples(st.integers(0, 9), st.sampled_from("012"), st.integers(0, 9)), min_size=1, max_size=12))
@settings(max_examples=tries(60), deadline=None)
def test_windows_take_the_first_and_the_last_row_by_the_sequence(rows: list[tuple[int, str, int]]) -> None:
    numbered = [(time, sequence, arrival, row) for row, (time, sequence, arrival) in enumerate(rows)]
    table = pa.table(dict(zip(("t", "s", "at", "v"), zip(*numbered, strict=True), strict=True)))
    table = table.append_column("k", pa.array(["x"] * len(rows)))
    aggregates = {"first": first("v"), "last": last("v")}
    found, _ = hopping_table(
        table, size=5, advance=5, offset=0, key=["k"], time="t", sequence="s", arrival="at", aggregates=aggregates
    )
    for window in found.to_pylist():
        inside = sorted(row for row in numbered if row[0] // 5 * 5 == window["window_start"])
        assert (window["first"], window["last"]) == (inside[0][3], inside[-1][3])


def test_rows_of_chunks_get_places_by_the_sequence() -> None:
    numbers, texts = pa.list_(pa.int64()), pa.list_(pa.string())
    kinds = {"row_ids": numbers, "c_a": numbers, "c_b": texts, "first_row_id": pa.int64()}
    lists = {"row_ids": [[5, 7], [6], [8]], "c_a": [[2, 1], [None], None], "c_b": [["x", "x"], ["y"], ["z"]]}
    table = pa.table({**lists, "first_row_id": [5, 6, 8]}, pa.schema(kinds))
    places, ids = with_places(table, ["a", "b"])
    # (null, y) < (null, z) < (1, x) < (2, x)
    assert places["row_ids"].to_pylist() == [[3, 2], [0], [1]]
    assert (places["first_row_id"].to_pylist(), ids.tolist()) == ([2, 0, 1], [6, 8, 7, 5])
