"""Sums and means that are rounded once at most: against fractions and Python's decimals, far from everyday numbers."""

import math
import random
import struct
from collections.abc import Callable, Sequence
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from spark_jobs.engine.twins import windows as naive
from spark_jobs.engine.windows import (
    Aggregate,
    Cuts,
    DecimalOverflow,
    Deltas,
    Trigger,
    WindowInputs,
    approx_quantile,
    avg,
    count_distinct,
    first,
    last,
    max_,
    min_,
    stddev,
    sum_,
    variance,
    vector_mean,
    vector_sum,
)
from spark_jobs.errors import ParameterError
from tests.effort import tries
from tests.engine.whole_tables import adaptive_table, session_table, sliding_table

TINY, HUGE = 5e-324, 1.7976931348623157e308


def bits(value: float) -> str | bytes:
    """A double as its bits, all NaN alike."""
    return "nan" if math.isnan(value) else struct.pack("d", value)


def of_one_session(values: Sequence[Any], kind: pa.DataType, **aggregates: Aggregate) -> dict[str, Any]:
    table = pa.table({"k": [1] * len(values), "t": range(len(values)), "v": pa.array(values, kind)})
    (window,) = session_table(table, key=["k"], time="t", gap=1, aggregates=aggregates)[0].to_pylist()
    return window


def wild(rng: random.Random) -> float:
    """A double: of random bits, subnormal, near the ends, whole, an everyday one; now and then none at all."""
    kind = rng.randrange(12)
    if kind == 0:
        return struct.unpack("d", struct.pack("Q", rng.getrandbits(64)))[0]
    if kind == 1:
        return rng.choice([-1, 1]) * rng.randrange(1, 2**20) * TINY
    if kind == 2:
        return rng.choice([-1, 1]) * rng.choice([HUGE, HUGE / 2, 2.0**1000])
    if kind == 3:
        return rng.choice([1e16, -1e16, 2.0**53, -(2.0**53), 1.0, -1.0])
    if kind == 4 and rng.random() < 0.05:
        return rng.choice([math.inf, -math.inf, math.nan])
    return rng.choice(
        [round(rng.uniform(-100, 100), 2), rng.uniform(-1, 1), math.ldexp(rng.random(), rng.randrange(-60, 60))]
    )


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_the_mean_of_doubles_is_the_exact_one_rounded_once(seed: int) -> None:
    rng = random.Random(seed)
    values: list[float] = []
    while len(values) < 400:
        values += [wild(rng) for _ in range(rng.randrange(1, 12))]
        if rng.random() < 0.3:
            values += [-value for value in values[-5:]]  # they cancel
    times = sorted(rng.randrange(3 * len(values)) for _ in values)
    table = pa.table({"k": [1] * len(values), "t": times, "v": values})
    for size in (0, 3, 20, 200):
        windows, _ = sliding_table(
            table, key=["k"], time="t", size=size, aggregates={"m": avg("v"), "s": sum_("v")}, clip_at_zero=False
        )
        for window in windows.to_pylist():
            held = [
                v for t, v in zip(times, values, strict=True) if window["window_start"] <= t <= window["window_end"]
            ]
            assert bits(window["m"]) == bits(naive.mean(held)), held
            assert bits(window["s"]) == bits(naive.exact_sum(held)), held


@pytest.mark.parametrize(
    ("values", "mean"),
    [
        ([0.1, 0.7, 0.1], naive.mean([0.1, 0.7, 0.1])),
        ([HUGE, HUGE, HUGE], HUGE),  # their sum is beyond every double
        ([TINY, TINY, 0.0], TINY),
        ([TINY, 0.0], 0.0),  # half of the least, to the even one
        ([3 * TINY, 0.0], 2 * TINY),
        ([-TINY, -TINY, -TINY, 0.0], -TINY),
        ([2.0**-1022, -TINY, 0.0], naive.mean([2.0**-1022, -TINY, 0.0])),
        ([math.inf, 1.0], math.inf),
        ([math.inf, -math.inf], math.nan),
        ([-0.0, -0.0], 0.0),
    ],
)
def test_means_at_the_ends_of_the_doubles(values: list[float], mean: float) -> None:
    assert bits(of_one_session(values, pa.float64(), m=avg("v"))["m"]) == bits(mean)


@settings(max_examples=tries(60), deadline=None)
@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(2**53 - 4, 2**53 + 4), min_size=1, max_size=30))
def test_the_mean_of_integers_is_the_exact_one_rounded_once(values: list[int]) -> None:
    assert bits(of_one_session(values, pa.int64(), m=avg("v"))["m"]) == bits(naive.mean(values))


def test_the_mean_of_integers_whose_sum_no_double_holds() -> None:
    assert of_one_session([2**53 + 1, 2**53 + 1, 2**53 + 4], pa.int64(), m=avg("v"))["m"] == 2.0**53 + 2


def test_the_components_of_a_mean_vector_are_rounded_once() -> None:
    rng = random.Random(1)
    values = [[rng.uniform(0, 1), HUGE] for _ in range(7)]
    assert of_one_session(values, pa.list_(pa.float64()), m=vector_mean("v"))["m"] == [
        naive.mean([value[0] for value in values]),
        HUGE,
    ]


def test_the_mean_size_of_the_deltas_of_an_adaptive_window_is_rounded_once() -> None:
    sizes = [2**53 + 1, 2**53 + 1, 2**53 + 4]
    table = pa.table({"k": [1] * 3, "t": [0, 1, 2], "id": ["a", "b", "c"], "n": sizes})
    cuts = Cuts(
        target=9, shortest=100, longest=100, reset=100, triggers=(Trigger("time"),), memory_bytes=2**60, rate_unit=1
    )
    (window,) = adaptive_table(table, cuts, Deltas("id", None, "n"), WindowInputs(["k"], "t", {}))[0].to_pylist()
    assert window["stats"]["avg_delta_size"] == naive.mean(sizes)


def test_money_is_summed_within_the_type_of_its_sum() -> None:
    price = Decimal("99999999.9999999999")
    window = of_one_session([price] * 12, pa.decimal128(18, 10), s=sum_("v"), m=avg("v"))
    assert window["s"] == Decimal("1199999999.9999999988")
    assert window["m"] == price


def decimals(digits: tuple[int, int]) -> SearchStrategy[list[Decimal | None]]:
    precision, scale = digits
    units = st.integers(-(10**precision) + 1, 10**precision - 1)
    near = st.integers(-(10 ** min(precision, 2)) + 1, 10 ** min(precision, 2) - 1)
    with localcontext(prec=60):
        return st.lists(st.none() | (units | near).map(lambda n: scaled(n, scale)), min_size=1, max_size=20)


def scaled(units: int, scale: int) -> Decimal:
    with localcontext(prec=60):
        return Decimal(units).scaleb(-scale)


@settings(max_examples=tries(150), deadline=None)
@given(
    st.sampled_from([(1, 0), (5, 2), (18, 10), (19, 19), (28, 2), (30, 6), (34, 34), (38, 0), (38, 2), (38, 38)]),
    st.data(),
)
def test_aggregates_of_decimals_equal_the_twin(digits: tuple[int, int], data: st.DataObject) -> None:
    values = data.draw(decimals(digits))
    times = data.draw(st.lists(st.integers(0, 30), min_size=len(values), max_size=len(values)))
    table = pa.table({"k": [1] * len(values), "t": times, "v": pa.array(values, pa.decimal128(*digits))})
    plain = {"lo": min_("v"), "hi": max_("v"), "first": first("v"), "last": last("v"), "d": count_distinct("v")}
    plain |= {"q": approx_quantile("v", 0.5, 0.0), "var": variance("v"), "sd": stddev("v")}
    shape: dict[str, Any] = {"key": ["k"], "time": "t", "size": 4, "clip_at_zero": False, "null_values": "skip_value"}
    precision, scale = digits
    sums = pa.decimal128(min(precision + 10, 38), scale)
    means = pa.decimal128(min(precision + 4, 38), min(scale + 4, 38))
    contents = [
        [(t, v) for t, v in zip(times, values, strict=True) if w["window_start"] <= t <= w["window_end"]]
        for w in sliding_table(table, aggregates={}, **shape)[0].to_pylist()
    ]
    held = [[v for _, v in rows if v is not None] for rows in contents]
    found = sliding_table(table, aggregates=plain, **shape)[0].to_pylist()
    for window, rows, own in zip(found, contents, held, strict=True):
        order = [(t,) for t, _ in rows]
        assert window["first"] == naive.edge([v for _, v in rows], order, last=False)
        assert window["last"] == naive.edge([v for _, v in rows], order, last=True)
        assert (window["lo"], window["hi"], window["d"]) == (
            min(own, default=None),
            max(own, default=None),
            len({*own}),
        )
        assert window["q"] == (float(sorted(own)[(len(own) - 1) // 2]) if own else None)
        spread = naive.exact_variance([float(value) for value in own])
        assert window["var"] == (spread if spread is None else pytest.approx(spread, rel=1e-14, abs=5e-324))
    for aggregate, kind, twin in (
        (sum_("v"), sums, naive.exact_sum),
        (avg("v"), means, lambda own: naive.mean(own, digits)),
    ):
        wanted = [twin(own) if own else None for own in held]
        most = scaled(10**kind.precision - 1, kind.scale)
        if any(value is not None and value.copy_abs() > most for value in wanted):
            with pytest.raises(DecimalOverflow) as refusal:
                sliding_table(table, aggregates={"r": aggregate}, **shape)
            assert refusal.value.facts["type"] == str(kind)
        else:
            result = sliding_table(table, aggregates={"r": aggregate}, **shape)[0].column("r")
            assert (result.type, result.to_pylist()) == (kind, wanted)


@pytest.mark.parametrize(
    ("make", "values", "digits"),
    [(sum_, ["9" * 38, "1"], (38, 0)), (sum_, ["-" + "9" * 38, "-1"], (38, 0)), (avg, ["9" * 36], (38, 2))],
)
def test_what_does_not_fit_into_the_type_of_its_result_is_refused_by_name(
    make: Callable[[str], Aggregate], values: list[str], digits: tuple[int, int]
) -> None:
    with pytest.raises(DecimalOverflow) as refusal:
        of_one_session([Decimal(value) for value in values], pa.decimal128(*digits), r=make("v"))
    assert refusal.value.code == "decimal_overflow"
    assert "v" in refusal.value.sentence()


def test_sums_that_pass_the_type_and_come_back_are_exact() -> None:
    most = Decimal("9" * 38)
    assert of_one_session([most, most, most.copy_negate()], pa.decimal128(38, 0), s=sum_("v"))["s"] == most


def test_halves_are_rounded_away_from_zero() -> None:
    # 5 in the fifth place of decimal(1, 0)'s mean
    for sign in (1, -1):
        values = [Decimal(sign)] + [Decimal(0)] * 31  # 0.03125
        assert of_one_session(values, pa.decimal128(1, 0), m=avg("v"))["m"] == Decimal("0.0313") * sign


def test_sliced_columns_of_decimals_are_read_where_they_lie() -> None:
    values = pa.array([Decimal(n) for n in range(10)], pa.decimal128(4, 0)).slice(3, 4)
    table = pa.table({"k": [1] * 4, "t": range(4), "v": values})
    (window,) = session_table(table, key=["k"], time="t", gap=1, aggregates={"s": sum_("v")})[0].to_pylist()
    assert window["s"] == Decimal(3 + 4 + 5 + 6)


@pytest.mark.parametrize("make", [vector_sum, vector_mean])
def test_vectors_of_decimals_are_refused_by_name(make: Callable[[str], Aggregate]) -> None:
    with pytest.raises(ParameterError) as refusal:
        make("v").output_type(pa.list_(pa.decimal128(5, 2)))
    assert refusal.value.facts["column"] == "v"


def test_decimals_of_more_digits_than_spark_has_are_refused_by_name() -> None:
    for make in (sum_, avg, variance):
        with pytest.raises(ParameterError):
            make("v").output_type(pa.decimal256(50, 2))


def test_doubles_nearest_to_decimals() -> None:
    rng = random.Random(3)
    for scale in (0, 2, 10, 22, 23, 38):
        values = [scaled(rng.randrange(-(10 ** rng.randrange(1, 39)), 10**38), scale) for _ in range(300)]
        table = pa.table({"k": range(300), "t": [0] * 300, "v": pa.array(values, pa.decimal128(38, scale))})
        result, _ = session_table(table, key=["k"], time="t", gap=1, aggregates={"q": approx_quantile("v", 0, 0.0)})
        np.testing.assert_array_equal(result.column("q").to_numpy(), [float(value) for value in values])
