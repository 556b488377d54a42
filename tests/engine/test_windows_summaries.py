"""Vectors, lists and quantiles of windows against what the definitions say."""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.definitions.calls import with_vectors
from spark_jobs.engine.twins import windows as naive
from spark_jobs.engine.twins.windows import LEAST, NaiveRow
from spark_jobs.engine.windows import Aggregate as KernelAggregate
from spark_jobs.engine.windows import (
    DimensionMismatch,
    Sliding,
    WindowInputs,
    approx_quantile,
    collect,
    vector_mean,
    vector_sum,
)
from spark_jobs.errors import ParameterError
from spark_jobs.sources.calls import AggregateCall
from tests.effort import tries
from tests.engine.whole_tables import window_table

REAL = st.floats(-1e12, 1e12) | st.sampled_from([0.0, 1e16, 0.1, -0.1, 5e-324])
ROW = st.tuples(
    st.integers(0, 30),
    st.none() | st.integers(0, 12),
    st.integers(0, 2),
    st.none() | REAL,
    st.none() | st.tuples(REAL, st.none() | REAL),
)
Values = tuple[int, int | None, int, float | None, tuple[float, float | None] | None]
"""Time, lateness, arrival, value and vector of a row."""
SHAPE = Sliding(6, clip_at_zero=False, null_values="skip_value")


def run(rows: list[Values], aggregates: dict[str, KernelAggregate]) -> tuple[list[dict[str, Any]], list[list[int]]]:
    times, late, arrivals, values, vectors = zip(*rows, strict=True) if rows else ((), (), (), (), ())
    least = [LEAST if lag is None else time + lag for time, lag in zip(times, late, strict=True)]
    table = pa.table(
        {
            "k": pa.array([1] * len(rows), pa.int64()),
            "t": pa.array(times, pa.int64()),
            "least": pa.array(least, pa.int64()),
            "at": pa.array(arrivals, pa.int64()),
            "v": pa.array(values, pa.float64()),
            "w": pa.array([None if vector is None else list(vector) for vector in vectors], pa.list_(pa.float64())),
        }
    )
    result, _ = window_table(table, SHAPE, WindowInputs(["k"], "t", aggregates, min_end="least", arrival="at"))
    twins = [NaiveRow(1, time, lag) for time, lag in zip(times, least, strict=True)]
    content = naive.sliding_windows(twins, size=SHAPE.size, clip_at_zero=False)
    return result.to_pylist(), [content[window] for window in sorted(content)]


@settings(max_examples=tries(80), deadline=None)
@given(st.lists(ROW, max_size=14))
def test_collect_lists_the_first_values_in_order(
    rows: list[Values],
) -> None:
    found, content = run(rows, {"few": collect("v", 2), "all": collect("v", 1000)})
    for row, numbers in zip(found, content, strict=True):
        held = sorted(
            (rows[n][0], rows[n][2], naive._by_value(rows[n][3]), rows[n][3]) for n in numbers if rows[n][3] is not None
        )
        assert row["all"] == [entry[-1] for entry in held]
        assert row["few"] == [entry[-1] for entry in held][:2]


@settings(max_examples=tries(80), deadline=None)
@given(st.lists(ROW, max_size=14))
def test_vectors_are_summed_component_by_component(
    rows: list[Values],
) -> None:
    found, content = run(rows, {"sum": vector_sum("w"), "mean": vector_mean("w")})
    for row, numbers in zip(found, content, strict=True):
        vectors = [vector for n in numbers if (vector := rows[n][4]) is not None]
        parts = [[part for part in parts if part is not None] for parts in zip(*vectors, strict=True)] or [[], []]
        sums = [naive.exact_sum(part) if part else None for part in parts]
        means = [naive.mean(part) if part else None for part in parts]
        assert row["sum"] == (sums if vectors else None)
        assert row["mean"] == (means if vectors else None)


@settings(max_examples=tries(80), deadline=None)
@given(
    st.lists(ROW, max_size=14),
    st.sampled_from([0.0, 0.25, 0.5, 0.9, 1.0, 1 / 3]),
    st.sampled_from([0.0, 0.001, 0.01, 0.5]),
)
def test_quantiles_are_within_their_accuracy(
    rows: list[Values],
    fraction: float,
    accuracy: float,
) -> None:
    found, content = run(rows, {"q": approx_quantile("v", fraction, accuracy)})
    for row, numbers in zip(found, content, strict=True):
        values = sorted(value for n in numbers if (value := rows[n][3]) is not None)
        if not values:
            assert row["q"] is None
            continue
        exact = values[int(Fraction(str(fraction)) * (len(values) - 1))]
        assert math.isclose(row["q"], exact, rel_tol=accuracy * (1 + 1e-12))


def test_the_rank_of_a_quantile_is_not_rounded_down_twice() -> None:
    rows = pa.table({"k": [1] * 101, "t": [0] * 101, "v": list(range(101))})
    found, _ = window_table(rows, SHAPE, WindowInputs(["k"], "t", {"q": approx_quantile("v", 0.29, 0)}))
    assert found.column("q").to_pylist()[0] == 29.0


def test_whole_numbers_past_2_to_the_53_are_summed_as_doubles() -> None:
    table = pa.table({"k": [1, 1], "t": [0, 1], "w": [[2**60 + 1, -(2**63)], [1, 2**63 - 1]]})
    result, _ = window_table(table, SHAPE, WindowInputs(["k"], "t", {"s": vector_sum("w")}))
    assert result.column("s").to_pylist()[1] == [2.0**60, 0.0]
    columns = pa.table({"v_a": pa.array([2**60 + 1, None]), "v_b": [0.5, 0.5]})
    together = with_vectors(columns, {"s": AggregateCall.model_validate("vector_sum(a, b)")})
    assert together.column("w_s").to_pylist() == [[2.0**60, 0.5], None]


def test_vectors_of_two_lengths_in_one_window_are_refused() -> None:
    table = pa.table({"k": [1, 1, 2], "t": [0, 1, 0], "w": [[1.0], [1.0, 2.0], [1.0, 2.0, 3.0]]})
    inputs = WindowInputs(["k"], "t", {"s": vector_sum("w")})
    with pytest.raises(DimensionMismatch) as refusal:
        window_table(table, SHAPE, inputs)
    assert refusal.value.facts["lengths"] == [1, 2]
    result, _ = window_table(table.take([0, 2]), SHAPE, inputs)
    assert result.column("s").to_pylist() == [[1.0], [1.0, 2.0, 3.0]]


@pytest.mark.parametrize(
    ("make", "parameter"),
    [
        (lambda: collect("v", 0), "limit"),
        (lambda: approx_quantile("v", 1.5), "fraction"),
        (lambda: approx_quantile("v", 0.5, -1), "accuracy"),
    ],
)
def test_a_wrong_parameter_of_an_aggregate_is_named(make: Callable[..., object], parameter: str) -> None:
    with pytest.raises(ParameterError) as refusal:
        make()
    assert refusal.value.facts["parameter"] == parameter
