"""Early results against plain Python loops: for windows of every kind, late rows, any order and any portions, the
emissions are those of the twin, and the last one of each window is the window's result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.engine.twins import windows as twin
from spark_jobs.engine.twins.emissions import NaiveWindow, emissions
from spark_jobs.engine.twins.windows import GREATEST, LEAST, NaiveRow, Window
from spark_jobs.engine.windows import (
    EarlyTrigger,
    EmissionsKind,
    FiringRules,
    Hopping,
    MemoryBudget,
    OwnTrigger,
    Sessions,
    Sliding,
    Trigger,
    TriggerRows,
    WindowInputs,
    avg,
    collect,
    count,
    first,
    last,
    sum_,
)
from spark_jobs.engine.windows.kinds import emissions as kernel
from spark_jobs.engine.windows.kinds.kind import SpanKind
from spark_jobs.errors import ParameterError
from tests.effort import tries
from tests.engine.test_windows_streams import streamed, text
from tests.engine.whole_tables import window_table

AGGREGATES = {"n": count(), "s": sum_("v"), "m": avg("v"), "a": first("id"), "z": last("id"), "ids": collect("id", 99)}
INPUTS = WindowInputs(["k"], "t", AGGREGATES, min_end="least", arrival="id")


@dataclass(frozen=True)
class Flagged(EarlyTrigger):
    """Fires after the rows in which a column has one value."""

    column: str
    value: int

    def fires(self, rows: TriggerRows) -> Any:
        return pc.equal(rows.column(self.column), self.value)


KINDS: list[tuple[SpanKind, Callable[[Sequence[NaiveRow]], twin.Content]]] = [
    (Sliding(6, False), lambda rows: twin.sliding_windows(rows, size=6, clip_at_zero=False)),
    (Sliding(4, True), lambda rows: twin.sliding_windows([r for r in rows if r.time >= 0], size=4, clip_at_zero=True)),
    (Sessions(3), lambda rows: twin.session_windows(rows, gap=3)),
    (Sessions(9), lambda rows: twin.session_windows(rows, gap=9)),
    (Hopping(7, 7, 2), lambda rows: twin.hopping_windows(rows, size=7, advance=7, offset=2)),
    (Hopping(9, 2, 1), lambda rows: twin.hopping_windows(rows, size=9, advance=2, offset=1)),
]
TRIGGERS: list[Trigger | OwnTrigger] = [
    Trigger("time", 3),
    Trigger("count", 2),
    Trigger("size", 7),
    Trigger("rate_change", 0.4, over=5),
    OwnTrigger("flagged", Flagged("v", 1)),
]
RULES = st.lists(st.sampled_from(TRIGGERS), min_size=1, unique=True).map(lambda chosen: FiringRules(tuple(chosen), 3))


@dataclass(frozen=True)
class Given:
    """One row that a test gives: key, time, ticks by which it is too late (None: it is not late), value, bytes."""

    key: str
    time: int
    lag: int | None
    value: int | None
    size: int


def rows_of(times: st.SearchStrategy[int], most: int) -> st.SearchStrategy[list[Given]]:
    late = st.none() | st.integers(0, 15)
    row = st.builds(Given, st.sampled_from("xy"), times, late, st.none() | st.integers(0, 2), st.integers(0, 5))
    return st.lists(row, max_size=most)


def table_of(rows: Sequence[Given], order: Sequence[int]) -> pa.Table:
    """The rows in this order; ids are their places in `rows`."""
    columns = {
        "k": pa.array([row.key for row in rows], pa.string()),
        "t": pa.array([row.time for row in rows], pa.int64()),
        "least": pa.array(map(least_of, rows), pa.int64()),
        "v": pa.array([row.value for row in rows], pa.int64()),
        "size": pa.array([row.size for row in rows], pa.int64()),
        "id": pa.array(range(len(rows)), pa.int64()),
    }
    return pa.table(columns).take(pa.array(order, pa.int64()))


def wanted(rows: Sequence[Given], kind: SpanKind, content: twin.Content, rules: FiringRules) -> list[dict[str, Any]]:
    """The emissions by the twin, ordered by key, start and number."""
    triggers = [each if isinstance(each, Trigger) else each.reason for each in rules.triggers]
    emitted: list[dict[str, Any]] = []
    for window, numbers in sorted(content.items()):
        ordered = sorted(numbers, key=lambda number: (rows[number].time, number))
        naive = NaiveWindow(
            window.start,
            window.end,
            window.end - int(kind.half_open),
            [rows[number].time for number in ordered],
            [rows[number].size for number in ordered],
            {"flagged": [rows[number].value == 1 for number in ordered]},
        )
        for place, emission in enumerate(emissions(naive, triggers, rules.rate_unit), start=1):
            own = {"emission": place, "trigger": emission.reason, "emitted_at": emission.at}
            emitted.append({**_identity(window), **own, **_results(rows, ordered[: emission.upto])})
    return emitted


def _identity(window: Window) -> dict[str, Any]:
    return {"k": window.key, "window_start": window.start, "window_end": window.end}


def _results(rows: Sequence[Given], numbers: Sequence[int]) -> dict[str, Any]:
    values = [value for number in numbers if (value := rows[number].value) is not None]
    named = {"n": len(numbers), "s": sum(values) if values else None, "m": twin.mean(values) if values else None}
    return {**named, "a": numbers[0], "z": numbers[-1], "ids": list(numbers)}


def counting(rows: Sequence[Given]) -> list[NaiveRow]:
    """The rows as the twin takes them."""
    return [NaiveRow(row.key, row.time, least_of(row)) for row in rows]


def least_of(row: Given) -> int:
    """The least last instant of a window in which the row counts."""
    return LEAST if row.lag is None else min(row.time + row.lag, GREATEST)


def able(rows: list[Given], kind: SpanKind) -> list[Given]:
    """The rows that can be in a window: in sliding ones, as in Kafka, a row needs a value."""
    return [row for row in rows if row.value is not None] if kind.null_values == "skip_row" else rows


@pytest.mark.parametrize("place", range(len(KINDS)))
@pytest.mark.parametrize("listed", [1, 5, 1 << 18])
def test_emissions_are_those_of_the_twin(place: int, listed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, content_of = KINDS[place]
    monkeypatch.setattr(kernel, "_MOST_LISTED", listed)

    @settings(max_examples=tries(120), deadline=None)
    @given(rows_of(st.integers(-12, 30), 30), RULES, st.randoms(use_true_random=False))
    def check(rows: list[Given], rules: FiringRules, chance: Any) -> None:
        rows = able(rows, kind)
        if kind.drop_negative:
            rows = [row for row in rows if row.time >= 0]
        order = chance.sample(range(len(rows)), len(rows))
        table = table_of(rows, order)
        made, skipped = window_table(table, EmissionsKind(kind, rules, "size"), INPUTS)
        assert made.to_pylist() == wanted(rows, kind, content_of(counting(rows)), rules)
        results, same = window_table(table, kind, INPUTS)
        last_ones = made.filter(pc.equal(made["trigger"], "end")).select(results.column_names)
        assert text([last_ones], results.schema) == text([results], results.schema)
        assert skipped == same

    check()


@pytest.mark.parametrize("place", range(len(KINDS)))
def test_emissions_of_a_stream_are_those_of_the_table(place: int) -> None:
    kind = KINDS[place][0]

    @settings(max_examples=tries(40), deadline=None)
    @given(rows_of(st.integers(-3, 45), 40), RULES, st.sampled_from([1, 3, 100]), st.sampled_from([1, 2, 5, 100]))
    def check(rows: list[Given], rules: FiringRules, batch: int, most_rows: int) -> None:
        table, emitting = table_of(rows, range(len(rows))), EmissionsKind(kind, rules, "size")
        whole, _ = window_table(table, emitting, INPUTS)
        made, _ = streamed(
            table,
            emitting,
            INPUTS,
            budget=MemoryBudget(1500),
            batch=batch,
            most_rows=most_rows,
            required=emitting.required_columns(INPUTS.aggregates),
            drop_negative=emitting.drop_negative,
        )
        assert text(made, whole.schema) == text([whole], whole.schema)

    check()


EDGES = st.sampled_from([LEAST + 9, LEAST + 10, -1, 0, GREATEST - 8, GREATEST - 1, GREATEST])


@settings(max_examples=tries(40), deadline=None)
@given(rows_of(EDGES, 12), st.sampled_from([Trigger("time", 4), Trigger("time", GREATEST), Trigger("count", 1)]))
def test_emissions_at_the_ends_of_time(rows: list[Given], trigger: Trigger) -> None:
    kind, rules = Sessions(5), FiringRules((trigger,), 1)
    made, _ = window_table(table_of(rows, range(len(rows))), EmissionsKind(kind, rules), INPUTS)
    assert made.to_pylist() == wanted(rows, kind, twin.session_windows(counting(rows), gap=5), rules)


def test_a_trigger_is_refused_that_does_not_answer_for_each_row() -> None:
    class Short(EarlyTrigger):
        def fires(self, rows: TriggerRows) -> Any:
            return pa.array([True])

    rows = [Given("x", time, None, 1, 1) for time in range(3)]
    kind = EmissionsKind(Sessions(5), FiringRules((OwnTrigger("short", Short()),), 1))
    with pytest.raises(ParameterError) as error:
        window_table(table_of(rows, range(3)), kind, INPUTS)
    assert error.value.facts["value"] == "short"
    assert "array of 3 booleans" in str(error.value)


def test_no_rows_give_no_emissions() -> None:
    kind = EmissionsKind(Hopping(5, 5), FiringRules((Trigger("count", 1),), 1))
    made, _ = window_table(table_of([], []), kind, INPUTS)
    assert made.num_rows == 0
    assert made.column_names == ["k", "window_start", "window_end", "emission", "trigger", "emitted_at", *AGGREGATES]
