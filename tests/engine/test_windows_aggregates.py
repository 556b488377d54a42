"""What each aggregate gives in each window: the tables' entry points against the twin, in any order of rows."""

import math
import struct
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from spark_jobs.engine.twins import windows as naive
from spark_jobs.engine.twins.windows import GREATEST, LEAST, Content, NaiveRow
from spark_jobs.engine.windows import (
    Aggregate,
    Cuts,
    Deltas,
    Hopping,
    IntegerOverflow,
    Monoid,
    Trigger,
    WindowInputs,
    avg,
    collect,
    count,
    count_distinct,
    find_windows,
    first,
    last,
    max_,
    min_,
    stddev,
    sum_,
    variance,
)
from spark_jobs.engine.windows.monoid import State
from spark_jobs.errors import ParameterError
from tests.effort import tries
from tests.engine.whole_tables import adaptive_table, hopping_table, session_table, sliding_table

VALUE = {
    "int": (pa.int64(), st.integers(-50, 50)),
    "double": (pa.float64(), st.floats(width=64) | st.sampled_from([1e16, 1.0, -1e16, 1e-300, 0.1, -0.0])),
    "text": (pa.string(), st.sampled_from(["", "a", "B", "b", "ä", "zz"])),
}
NUMERIC = {"sum": sum_, "avg": avg, "variance": variance}
ORDERED = {"min": min_, "max": max_, "count_distinct": count_distinct}


def tables(value: str) -> SearchStrategy[pa.Table]:
    kind, values = VALUE[value]
    row = st.tuples(
        st.sampled_from(["x", "y"]),
        st.integers(0, 40),
        st.none() | st.integers(0, 25),
        st.integers(0, 3),
        st.none() | values,
    )

    def table(rows: list[tuple[Any, ...]]) -> pa.Table:
        keys, times, late, arrival, held = zip(*rows, strict=True) if rows else ((), (), (), (), ())
        least = [LEAST if lag is None else time + lag for time, lag in zip(times, late, strict=True)]
        columns = {"k": pa.array(keys, pa.string()), "t": pa.array(times, pa.int64())}
        columns |= {"least": pa.array(least, pa.int64()), "at": pa.array(arrival, pa.int64())}
        return pa.table(columns | {"v": pa.array(held, kind)})

    return st.lists(row, max_size=16).map(table)


def same(found: Any, wanted: Any) -> bool:
    """Equal, and for doubles equal in every bit, all NaN alike."""
    if isinstance(wanted, float) and isinstance(found, float):
        return struct.pack("d", found) == struct.pack("d", wanted) or (math.isnan(found) and math.isnan(wanted))
    return found == wanted


def close(found: Any, wanted: Any) -> bool:
    """Within two roundings."""
    if wanted is None or found is None or not math.isfinite(wanted) or wanted == 0:
        return same(found, wanted) or found == wanted
    return abs(found - wanted) <= 4 * math.ulp(wanted)


def check(table: pa.Table, result: pa.Table, content: Content, aggregates: Iterable[str]) -> None:
    """Each row of the kernel's result against the twin's windows and aggregates."""
    rows = table.to_pylist()
    found = {(row["k"], row["window_start"], row["window_end"]): row for row in result.to_pylist()}
    assert list(found) == [(window.key, window.start, window.end) for window in sorted(content)]
    for window, numbers in content.items():
        row = found[window.key, window.start, window.end]
        held = [rows[n]["v"] for n in numbers]
        values = [value for value in held if value is not None]
        assert row["n"] == len(numbers)
        for name in aggregates:
            wanted = naive.VALUE_AGGREGATES[name](values)
            agree = close if name == "variance" else same
            if name == "sum" and wanted == 0:
                wanted = abs(wanted)  # a sum of zeros is 0.0, never -0.0
            assert agree(row[name], wanted), (name, values)
        for name, order in (("plain", ("t",)), ("arrived", ("t", "at"))):
            places = [tuple(rows[n][column] for column in order) for n in numbers]
            for end in ("first", "last"):
                if f"{end}_{name}" in row:
                    assert same(row[f"{end}_{name}"], naive.edge(held, places, last=end == "last"))


def twin_rows(table: pa.Table, *, late: bool = True) -> list[NaiveRow]:
    return [NaiveRow(row["k"], row["t"], row["least"] if late else LEAST) for row in table.to_pylist()]


def asked(aggregates: Mapping[str, Callable[[Any], Aggregate]], tag: str) -> dict[str, Aggregate]:
    named = {name: make("v") for name, make in aggregates.items()}
    return {"n": count(), **named, f"first_{tag}": first("v"), f"last_{tag}": last("v")}


@pytest.mark.parametrize("value", ["int", "double"])
def test_sliding_numbers_equal_the_twin(value: str) -> None:
    aggregates = NUMERIC | ORDERED

    @settings(max_examples=tries(60), deadline=None)
    @given(tables(value), st.sampled_from([0, 3, 10, 60]))
    def check_table(table: pa.Table, size: int) -> None:
        common: dict[str, Any] = {
            "key": ["k"],
            "time": "t",
            "size": size,
            "clip_at_zero": True,
            "null_values": "skip_value",
        }
        for arrival, tag in ((None, "plain"), ("at", "arrived")):
            asked_for = asked(aggregates, tag)
            result, _ = sliding_table(table, aggregates=asked_for, min_end="least", arrival=arrival, **common)
            check(table, result, naive.sliding_windows(twin_rows(table), size=size, clip_at_zero=True), aggregates)
            result, _ = sliding_table(table, aggregates=asked_for, arrival=arrival, **common)
            check(
                table,
                result,
                naive.sliding_windows(twin_rows(table, late=False), size=size, clip_at_zero=True),
                aggregates,
            )

    check_table()


@settings(max_examples=tries(50), deadline=None)
@given(tables("text"), st.sampled_from([1, 4, 30]))
def test_sessions_of_texts_equal_the_twin(table: pa.Table, gap: int) -> None:
    result, _ = session_table(
        table, key=["k"], time="t", gap=gap, aggregates=asked(ORDERED, "arrived"), min_end="least", arrival="at"
    )
    check(table, result, naive.session_windows(twin_rows(table), gap=gap), ORDERED)


@settings(max_examples=tries(50), deadline=None)
@given(tables("double"), st.sampled_from([(10, 10), (10, 3), (30, 1)]))
def test_hopping_doubles_equal_the_twin(table: pa.Table, shape: tuple[int, int]) -> None:
    size, advance = shape
    aggregates = NUMERIC | ORDERED
    parameters: dict[str, Any] = {"key": ["k"], "time": "t", "size": size, "advance": advance, "offset": 2}
    result, _ = hopping_table(table, aggregates=asked(aggregates, "plain"), min_end="least", **parameters)
    check(table, result, naive.hopping_windows(twin_rows(table), size=size, advance=advance, offset=2), aggregates)


class Product(Monoid):
    """A user's own aggregate."""

    def output_type(self, values: pa.DataType) -> pa.DataType:
        return pa.int64()

    def lift(self, values: pa.Array) -> State:
        return (values.to_numpy(),)

    def combine(self, left: State, right: State) -> State:
        with np.errstate(over="ignore"):
            return (left[0] * right[0],)

    def lower(self, state: State) -> pa.Array:
        return pa.array(state[0])


@settings(max_examples=tries(50), deadline=None)
@given(tables("int"), st.sampled_from([0, 3, 10, 60]))
def test_a_monoid_of_ones_own_is_folded_over_any_windows(table: pa.Table, size: int) -> None:
    common: dict[str, Any] = {"key": ["k"], "time": "t", "aggregates": {"product": Product("v")}, "min_end": "least"}
    sliding, _ = sliding_table(table, size=size, clip_at_zero=True, null_values="skip_value", **common)
    sessions, _ = session_table(table, gap=size + 1, **common)
    hopping, _ = hopping_table(table, size=size + 1, advance=1, **common)
    rows = twin_rows(table)
    values = table.column("v").to_pylist()
    for result, content in (
        (sliding, naive.sliding_windows(rows, size=size, clip_at_zero=True)),
        (sessions, naive.session_windows(rows, gap=size + 1)),
        (hopping, naive.hopping_windows(rows, size=size + 1, advance=1, offset=0)),
    ):
        wanted = []
        for window in sorted(content):
            held = [values[n] for n in content[window] if values[n] is not None]
            product = math.prod(held) & (2**64 - 1)
            wanted.append((product - 2**64 if product >= 2**63 else product) if held else None)
        assert result.column("product").to_pylist() == wanted


def test_the_results_of_ones_own_aggregate_have_its_output_type() -> None:
    table = pa.table({"k": [1, 1, 2], "t": [0, 1, 0], "v": pa.array([3, 4, None], pa.int16())})
    result, _ = session_table(table, key=["k"], time="t", gap=1, aggregates={"p": Product("v")})
    assert (result.schema.field("p").type, result.column("p").to_pylist()) == (pa.int64(), [12, None])


def test_tiny_values_after_a_huge_one_keep_every_digit() -> None:
    table = pa.table({"k": [1] * 4, "t": [0, 100, 101, 102], "v": [1e16, 1e-3, 2e-3, 3e-3]})
    result, _ = sliding_table(
        table, key=["k"], time="t", size=10, aggregates={"s": sum_("v"), "m": avg("v")}, clip_at_zero=False
    )
    assert result.column("s").to_pylist()[1:] == [1e-3, 1e-3 + 2e-3, math.fsum([1e-3, 2e-3, 3e-3]), 5e-3, 3e-3]


def test_a_sum_that_does_not_fit_is_null_and_told_where_somebody_listens() -> None:
    """Beside windows whose sums fit, on either side of the bounds, and of decimals whose type they pass."""
    nines, minus = Decimal("9" * 38), Decimal("-" + "9" * 38)
    values = [GREATEST, 1, -1, LEAST, -1, None]
    decimals = [nines, Decimal(1), None, minus, Decimal(-1), Decimal(5)]
    table = pa.table(
        {
            "k": ["a", "a", "b", "b", "b", "c"],
            "t": [0, 0, 0, 0, 3, 0],
            "v": values,
            "d": pa.array(decimals, pa.decimal128(38, 0)),
        }
    )
    told: list[dict[str, Any]] = []
    inputs = WindowInputs(
        ["k"],
        "t",
        {"n": count(), "v": sum_("v"), "d": sum_("d"), "m": avg("v")},
        overflowed=lambda column, windows: told.extend({"column": column, **row} for row in windows.to_pylist()),
    )
    found = find_windows(Hopping(size=2, advance=2), inputs, table)
    windows = found.table(0, len(found.windows.start), None).to_pylist()
    assert [(w["k"], w["window_start"], w["n"], w["v"], w["d"], w["m"]) for w in windows] == [
        ("a", 0, 2, None, None, 2.0**62),
        ("b", 0, 2, None, minus, -(2.0**62)),
        ("b", 2, 1, -1, -1, -1.0),
        ("c", 0, 1, None, 5, None),
    ]
    assert sorted((row["column"], row["k"], row["window_start"], row["about"]) for row in told) == [
        ("d", "a", 0, 1e38),
        ("v", "a", 0, 2.0**63),
        ("v", "b", 0, -(2.0**63)),
    ]


def test_an_integer_sum_past_int64_is_refused_and_its_mean_is_not() -> None:
    table = pa.table({"k": [1, 1], "t": [0, 1], "v": [GREATEST, 1]})
    common: dict[str, Any] = {"key": ["k"], "time": "t", "size": 5, "clip_at_zero": False}
    with pytest.raises(IntegerOverflow) as refusal:
        sliding_table(table, aggregates={"s": sum_("v")}, **common)
    assert refusal.value.code == "integer_overflow"
    assert refusal.value.facts["column"] == "v"
    result, _ = sliding_table(table, aggregates={"m": avg("v")}, **common)
    assert result.column("m").to_pylist() == [float(GREATEST), 2.0**62, 1.0]


def test_sums_of_extremes_that_meet_in_the_middle_are_exact() -> None:
    table = pa.table({"k": [1] * 3, "t": [0, 0, 0], "v": [GREATEST, LEAST, 5]})
    result, _ = sliding_table(table, key=["k"], time="t", size=5, aggregates={"s": sum_("v")}, clip_at_zero=False)
    assert result.column("s").to_pylist() == [4]


def test_decimals_are_summed_exactly() -> None:
    values = pa.array([1, 2, None], pa.decimal128(5, 2))
    table = pa.table({"k": [1] * 3, "t": [0, 0, 9], "v": values})
    result, _ = session_table(
        table, key=["k"], time="t", gap=1, aggregates={"s": sum_("v"), "m": avg("v"), "hi": max_("v")}
    )
    assert result.schema.field("s").type == pa.decimal128(15, 2)
    assert [str(value) for value in result.column("s").to_pylist()] == ["3.00", "None"]
    assert result.column("m").to_pylist() == [1.5, None]


def test_rows_that_cannot_count_are_counted_by_reason() -> None:
    table = pa.table(
        {
            "k": ["a", None, "a", "a", "a", "a"],
            "t": pa.array([5, 5, None, -1, 5, 5], pa.int64()),
            "v": [1.0, 1.0, 1.0, 1.0, None, 2.0],
            "least": [0, 0, 0, 0, 0, 99],
        }
    )
    aggregates = {"n": count(), "s": sum_("v")}
    result, skipped = sliding_table(
        table, key=["k"], time="t", size=10, aggregates=aggregates, clip_at_zero=True, min_end="least"
    )
    assert result.to_pylist() == [{"k": "a", "window_start": 0, "window_end": 10, "n": 1, "s": 1.0}]
    assert (skipped.null_key, skipped.null_time, skipped.null_value) == (1, 1, 1)
    assert (skipped.negative_time, skipped.late_rows) == (1, 1)


@settings(max_examples=tries(30), deadline=None)
@given(tables("double"), st.randoms(use_true_random=False))
def test_results_do_not_depend_on_the_order_of_rows(table: pa.Table, random: Random) -> None:
    aggregates = asked(NUMERIC | ORDERED, "plain") | {"sd": stddev("v")}
    parameters: dict[str, Any] = {
        "key": ["k"],
        "time": "t",
        "size": 7,
        "clip_at_zero": True,
        "null_values": "skip_value",
    }
    order = list(range(table.num_rows))
    random.shuffle(order)
    shuffled = table.take(pa.array(order, pa.int64()))
    results = [sliding_table(held, aggregates=aggregates, **parameters)[0] for held in (table, shuffled)]
    for name in results[0].column_names:
        for found, wanted in zip(results[1].column(name).to_pylist(), results[0].column(name).to_pylist(), strict=True):
            assert same(found, wanted)


BIG = 2**60
"""Two numbers from here on are one double."""


@pytest.mark.parametrize(
    "arrivals",
    [
        pa.array([BIG + 1, BIG, None]),
        pa.array([BIG + 1, BIG, None], pa.timestamp("us")),
        pa.array([LEAST + 1, LEAST, None]),
        pa.array(["b", "a", None]),
        pa.array([0.0, -0.0, None]),
        pa.array([True, False, None]),
        pa.array([[1.0], [0.0], None]),
    ],
    ids=lambda arrivals: str(arrivals.type),
)
def test_a_row_without_an_arrival_came_before_all_others(arrivals: object) -> None:
    table = pa.table({"k": [1] * 3, "t": [5] * 3, "v": ["x", "y", "z"], "at": arrivals})
    aggregates = {"first": first("v"), "last": last("v")}
    for held in (table, table.take([2, 1, 0])):
        result, _ = session_table(held, key=["k"], time="t", gap=1, aggregates=aggregates, arrival="at")
        assert result.select(["first", "last"]).to_pylist() == [{"first": "z", "last": "x"}]


@pytest.mark.parametrize(
    "wrap", [lambda v: v, lambda v: [v], lambda v: {"a": {"b": [v]}}], ids=["own", "list", "struct"]
)
def test_each_zero_and_each_nan_is_the_same_key_and_value(wrap: Callable[..., object]) -> None:
    # as hardware makes NaN, and as texts are read
    nans = struct.unpack("2d", struct.pack("2Q", 0xFFF8000000000000, 0x7FF8000000000001))
    values = [wrap(value) for value in (0.0, *nans, -0.0)]
    table = pa.table({"k": values, "t": [1, 2, 3, 4], "v": values, "one": [1] * 4})
    result, _ = session_table(table, key=["k"], time="t", gap=9, aggregates={"n": count()})
    assert result.column("n").to_pylist() == [2, 2]
    assert "-" not in repr(result.column("k").to_pylist())
    distinct, _ = session_table(table, key=["one"], time="t", gap=9, aggregates={"d": count_distinct("v")})
    assert distinct.column("d").to_pylist() == [2]


def test_a_row_that_is_placed_at_another_time_keeps_its_own_time_for_first_and_last() -> None:
    table = pa.table(
        {"k": [1] * 3, "t": [3, 24, 21], "v": ["early", "b", "a"], "least": [20, 20, 20], "at": [20, 24, 21]}
    )
    result, skipped = hopping_table(
        table,
        key=["k"],
        time="t",
        size=10,
        advance=10,
        aggregates={"n": count(), "first": first("v"), "last": last("v")},
        min_end="least",
        placed="at",
    )
    assert result.to_pylist() == [{"k": 1, "window_start": 20, "window_end": 30, "n": 3, "first": "early", "last": "b"}]
    assert skipped.late_rows == 0


def test_rows_of_one_time_in_two_adaptive_windows_are_listed_in_their_own() -> None:
    cuts = Cuts(1, 1, 9, 10, (Trigger("count", 1),), 2**30, 1)
    table = pa.table({"k": [1, 1], "t": [5, 5], "id": ["a", "b"], "row": [2, 1], "v": ["of a", "of b"]})
    inputs = WindowInputs(["k"], "t", {"values": collect("v", 9)}, arrival="row")
    result, _ = adaptive_table(table, cuts, Deltas("id"), inputs)
    assert result.column("delta_ids").to_pylist() == [["a"], ["b"]]
    assert result.column("values").to_pylist() == [["of a"], ["of b"]]


@pytest.mark.parametrize(
    ("make", "kind"), [(sum_, pa.string()), (avg, pa.bool_()), (stddev, pa.date32()), (max_, pa.list_(pa.int64()))]
)
def test_an_aggregate_names_the_type_that_it_does_not_take(make: Callable[[str], Aggregate], kind: pa.DataType) -> None:
    with pytest.raises(ParameterError) as refusal:
        make("v").output_type(kind)
    assert (refusal.value.facts["parameter"], refusal.value.facts["column"], refusal.value.facts["type"]) == (
        "aggregates",
        "v",
        str(kind),
    )


def test_keys_of_several_columns_and_timestamps_keep_their_types() -> None:
    kind = pa.timestamp("us", "UTC")
    table = pa.table(
        {
            "a": pa.array(["y", "x", "y"]),
            "b": pa.array([2, 1, 2], pa.int32()),
            "t": pa.array([1_000_000, 5, 1_000_003], kind),
        }
    )
    result, _ = sliding_table(table, key=["a", "b"], time="t", size=10, aggregates={"n": count()}, clip_at_zero=False)
    assert result.schema.field("a").type == pa.string()
    assert result.schema.field("b").type == pa.int32()
    assert result.schema.field("window_start").type == kind
    starts = result.column("window_start").cast(pa.int64()).to_pylist()
    keys = list(zip(result.column("a").to_pylist(), result.column("b").to_pylist(), starts, strict=True))
    assert keys == [("x", 1, -5), ("y", 2, 999_990), ("y", 2, 999_993), ("y", 2, 1_000_001)]
