"""Whatever a correction buffer is given, it either takes it in and can read it for ever, or refuses it and stays."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.engine.corrections import CodedCorrections, CorrectionBuffer, Updates, as_updates
from spark_jobs.engine.twins.corrections import NaiveCorrections
from spark_jobs.errors import TidemarkError
from spark_jobs.model import Frontier
from tests.effort import tries

NAN = float("nan")
NOON = dt.datetime(2013, 1, 1, 12)  # noqa: DTZ001  an instant without a zone
ZONED = NOON.replace(tzinfo=dt.UTC)
GOOD = ["b", "a", "c"]
DATA: list[Any] = [
    *GOOD, *GOOD, 3, np.int64(4), 2**70, True, b"x", dt.date(2013, 1, 1), NOON, ZONED, Decimal(2), Fraction(1, 3),
    ("a", 1), ("a", "x"), ("b", 2), ("a",), (), (("a", 1), 2), (NOON,), (ZONED,), ("a", None), ("a", NAN), ("a", True),
    None, NAN, 1.0, Decimal("nan"), Decimal("snan"), 1j, frozenset("a"), ["a"], ("a", ["b"]), {"a": 1}, object(), int,
]  # fmt: skip
TIMES: list[Any] = [0, 1, 5, 2**62, 2**63, 2**64 - 1, *range(8), -1, 2**64, 1.5, NAN, None, True, "3", Decimal(1)]
DIFFS: list[Any] = [1, -1, 2, *[1] * 8, 2**62, 2**63 - 1, -(2**63), 2**63, 2**64, None, NAN, 1.0, True, "1"]


def columns_of(values: list[Any]) -> list[Any]:
    """The values in every form that holds them."""
    forms: list[Any] = [values, tuple(values)]
    for make in (np.array, pa.array, lambda of: pa.chunked_array([of]), lambda of: np.array(of, np.uint64)):
        try:
            forms.append(make(values))
        except (TypeError, ValueError, OverflowError, pa.ArrowException):
            continue
    return forms


@st.composite
def inserts(draw: st.DrawFn) -> tuple[Any, Any, Any]:
    """Columns of which most are as they should be."""
    rows = draw(st.integers(1, 3))

    def column(good: list[Any], all_: list[Any], of: int) -> Any:
        values = draw(st.lists(st.sampled_from(draw(st.sampled_from([good, good, all_]))), min_size=of, max_size=of))
        return draw(st.sampled_from(columns_of(values)))

    if draw(st.integers(0, 9)) == 0:
        return draw(st.permutations([7, "abc", pa.table({"a": [1]}), None, np.array(1)]))[0], [1], [1]
    tuples = [("a", 1), ("b", 2), ("a",), ("a", "x")]
    goods: list[list[Any]] = [GOOD, GOOD, [3, 9], tuples, [NOON, NOON + dt.timedelta(1)]]
    good = draw(st.sampled_from(goods))
    return column(good, DATA, rows), column([0, 1, 5, 9], TIMES, rows), column([1, -1, 2], DIFFS, rows)


FRONTIERS: list[Any] = [
    *[Frontier.at(t) for t in (0, 1, 2, 3, 5, 8, 2**63, 2**64 - 1)], Frontier.empty(), Frontier(np.int64(4)),  # type: ignore[arg-type]
    Frontier.at(2**64), Frontier.at(-1), Frontier(1.5), Frontier(NAN), Frontier(True), Frontier("2"), 3, None, [4],  # type: ignore[arg-type]
]  # fmt: skip
READS = ["updates_before", "count_before", "consolidate_before"]
STEPS = st.lists(
    st.tuples(st.sampled_from(["insert", "insert", "insert", "insert_negated"]), inserts())
    | st.tuples(st.sampled_from([*READS, "advance_since"]), st.tuples(st.sampled_from(FRONTIERS)))
    | st.just(("consolidate_at_since", ())),
    min_size=1,
    max_size=12,
)


def picture(buffer: CorrectionBuffer) -> tuple[Any, ...]:
    """Everything that can be read of a buffer."""
    uppers = [Frontier.at(t) for t in (1, 4, 2**63)]
    read = [buffer.updates_before(upper).rows() for upper in [*uppers, Frontier.empty()]]
    return buffer.since, buffer.contents().rows(), read, buffer.distinct_values, buffer.n_updates


@given(steps=STEPS, stage_bytes=st.sampled_from([0, 48, 8 << 10]))
@settings(max_examples=tries(300), deadline=None)
def test_a_refusal_is_one_of_ours_and_changes_nothing(
    steps: list[tuple[str, tuple[Any, ...]]], stage_bytes: int
) -> None:
    buffer, twin = CorrectionBuffer(stage_bytes=stage_bytes), NaiveCorrections()
    for name, arguments in steps:
        before = picture(buffer)
        state = buffer.state()
        try:
            getattr(buffer, name)(*arguments)
        except TidemarkError as refusal:
            assert refusal.code in ("malformed_updates", "time_out_of_range", "diff_overflow", "since_regression")
            assert refusal.next_step
            assert buffer.state() == state
            assert picture(buffer) == before
            continue
        if name.startswith("insert"):
            data, times, diffs = (getattr(c, "tolist", getattr(c, "to_pylist", lambda c=c: c))() for c in arguments)
            getattr(twin, name)(zip(data, times, diffs, strict=True))
        elif name == "advance_since":
            twin.advance_since(arguments[0])
        assert buffer.contents().rows() == twin.contents()
        assert picture(buffer)[2][-1] == twin.updates_before(Frontier.empty())


def test_a_refused_insert_leaves_nothing_behind_that_later_data_must_compare_with() -> None:
    buffer = CorrectionBuffer()
    for data, diffs in ((["a", 1], [1, 1]), (["a", "b"], [2**63, 1]), (["a", "a"], [2**62, 2**62])):
        with pytest.raises(TidemarkError):
            buffer.insert(data, [1, 2], diffs)
    assert buffer.distinct_values == 0
    buffer.insert([1, 2], [1, 2], [1, 1])
    assert buffer.contents().data == [1, 2]


def test_tuples_that_only_a_later_read_would_compare_are_refused() -> None:
    buffer = CorrectionBuffer()
    buffer.insert([("b", 2)], [1], [1])
    with pytest.raises(TidemarkError, match="malformed_updates"):
        buffer.insert([("a", 1), ("a", "x")], [1, 1], [1, 1])
    buffer.insert([("a",), ("a", 1, "deep")], [1, 1], [1, 1])
    assert buffer.contents().data == [("a",), ("a", 1, "deep"), ("b", 2)]
    with pytest.raises(TidemarkError, match="malformed_updates"):
        buffer.insert([("a", 1, 3)], [1], [1])


@pytest.mark.parametrize(
    "updates",
    [
        Updates(np.array([1], np.int64), np.array([1]), np.array([1])),
        Updates(np.array([1], np.uint64), np.array([1, 2]), np.array([1])),
        Updates(np.array([1], np.uint64), np.array([1.0]), np.array([1])),
        Updates([1], [1], [1]),  # type: ignore[arg-type]  # lists are refused when it is used
        [(1, 1, 1)],
        None,
    ],
    ids=str,
)
def test_coded_updates_that_as_updates_would_not_give_are_refused(updates: Any) -> None:
    buffer = CodedCorrections()
    buffer.insert(as_updates([3], [1], [1]))
    before = buffer.state()
    for insert in (buffer.insert, buffer.insert_negated):
        with pytest.raises(TidemarkError, match="malformed_updates"):
            insert(updates)
    assert buffer.state() == before
    assert buffer.contents().triples() == [(3, 1, 1)]
