"""What a plan shows of tables, as far as it needs no Spark: nothing is asked of tables that nothing was written to."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from spark_jobs.restatement.preview import TableDifference, _by_columns, difference, difference_of_rows, differences
from spark_jobs.sources import Source, load_source
from spark_jobs.storage.lakes.overlay import OverlayLake

FLIGHTS: Source = load_source(Path(__file__).parents[2] / "dags" / "sources" / "flights.yml")


def test_tables_that_nothing_was_written_to_are_not_asked() -> None:
    lake = cast(OverlayLake, SimpleNamespace(wrote=lambda _: False))
    found = differences(lake, FLIGHTS, 10)
    assert [(table.table, table.rows, table.sample) for table in found] == [
        ("silver.departure_delays", 0, []),
        ("silver.rotations", 0, []),
        ("gold.flights", 0, []),
    ]
    assert found[-1].identity == ("tailnum",)


def test_a_state_is_shown_by_the_columns_of_its_view() -> None:
    when = datetime(2013, 1, 1, tzinfo=UTC)
    update: dict[str, Any] = {
        "change": "inserted", "diff": 1, "entity": "N1", "timestamp": when, "at_delta": 7, "delta_count": 2,
        "names": ["flights", "air_minutes", "miles", "delay_minutes"], "ints": [2, 90, 300, -4], "floats": None,
        "seen": [True] * 4,
    }  # fmt: skip
    shown = {"change": "inserted", "diff": 1, "tailnum": "N1", "flights": 2, "air_minutes": 90, "miles": 300}
    assert _by_columns(update, FLIGHTS) == shown | {"delay_minutes": -4, "timestamp": when, "delta_count": 2}
    gone = _by_columns(update | {"ints": None}, FLIGHTS)
    assert [gone[name] for name in update["names"]] == [None] * 4


MOMENT = datetime(2013, 1, 1, tzinfo=UTC)
IDENTITY = ("origin", "window_start")
SCHEMA = pa.schema(
    {"origin": pa.string(), "window_start": pa.timestamp("us", "UTC"), "n": pa.int64(), "diff": pa.int32()}
)
ROWS = st.dictionaries(
    st.tuples(st.sampled_from([None, "EWR", "É", "z"]), st.integers(0, 3)),
    st.sampled_from([(-1,), (1,), (1, -1), (-1, 1)]),
    max_size=12,
)
"""By row (key, start): the signs of its updates, in the order in which they were written."""


def updates(rows: dict[tuple[str | None, int], Sequence[int]]) -> pa.Table:
    listed = [
        {"origin": key, "window_start": MOMENT + timedelta(minutes=start), "n": 10 * start + diff, "diff": diff}
        for (key, start), diffs in rows.items()
        for diff in diffs
    ]
    return pa.Table.from_pylist(listed, SCHEMA)


def counted(rows: dict[tuple[str | None, int], Sequence[int]]) -> dict[str, int]:
    """The rows by change, one after another."""
    counts = {"inserted": 0, "changed": 0, "removed": 0}
    for diffs in rows.values():
        counts["changed" if len(diffs) == 2 else "inserted" if diffs == (1,) else "removed"] += 1
    return counts


@given(rows=ROWS, sample=st.integers(0, 5))
def test_updates_in_memory_are_counted_by_row_and_the_sample_has_the_first_rows(
    rows: dict[tuple[str | None, int], Sequence[int]], sample: int
) -> None:
    preview = difference_of_rows("silver.x", updates(rows), IDENTITY, sample)
    assert preview.counts == counted(rows)
    order = sorted(rows, key=lambda row: (row[0] is not None, (row[0] or "").encode(), row[1]))
    first = order[:sample] if sample else order
    wanted = [
        (key, MOMENT + timedelta(minutes=start), diff) for key, start in first for diff in sorted(rows[key, start])
    ]
    assert [(update["origin"], update["window_start"], update["diff"]) for update in preview.sample] == wanted
    changes = {(update["origin"], update["window_start"]): update["change"] for update in preview.sample}
    assert counted({row: rows[row] for row in first}) == {
        change: list(changes.values()).count(change) for change in ("inserted", "changed", "removed")
    }


@pytest.mark.spark
@pytest.mark.parametrize("sample", [0, 3])
def test_spark_and_this_process_give_the_same_difference(spark: SparkSession, sample: int) -> None:
    rows: dict[tuple[str | None, int], Sequence[int]] = {
        (None, 0): (1,), ("EWR", 2): (-1, 1), ("EWR", 1): (-1,), ("É", 0): (1,), ("z", 3): (1, -1), ("a", 9): (1,),
    }  # fmt: skip
    here = updates(rows)
    there: TableDifference = difference("silver.x", spark.createDataFrame(here), IDENTITY, sample)
    assert difference_of_rows("silver.x", here, IDENTITY, sample) == there
    assert list(there.sample[0]) == list(difference_of_rows("silver.x", here, IDENTITY, sample).sample[0])
