"""Restated windows of every kind and late policy against plain Python: any history of rows that come, late or not, and
go leads to what the rows that stand define, and no row is lost on the way."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cache
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.definitions.definition import Definition
from spark_jobs.engine.windows import Trigger
from spark_jobs.sources import Source, parse_source
from spark_jobs.storage.descriptions import tables
from tests.effort import tries
from tests.restatement.oracle import DECIMAL, Row, Spec, expected, grid, skipped
from tests.restatement.simulation import Simulation

HOUR = 3_600_000_000
DAY = 24 * HOUR
# the night before clocks go forward in New York, so that calendar days of 23 hours occur
START = 1_709_942_400_000_000

AGGREGATES: list[tuple[str, str, tuple[str, ...], tuple[float, ...]]] = [
    ("n", "count", (), ()),
    ("n_load", "count", ("load",), ()),
    ("total", "sum", ("load",), ()),
    ("mean", "avg", ("heat",), ()),
    ("low", "min", ("heat",), ()),
    ("high", "max", ("label",), ()),
    ("opening", "first", ("label",), ()),
    ("closing_load", "last", ("load",), ()),
    ("spread", "variance", ("load",), ()),
    ("deviation", "stddev", ("heat",), ()),
    ("labels", "count_distinct", ("label",), ()),
    ("median", "approx_quantile", ("load",), (0.5, 0)),
    ("sample", "collect", ("load",), (3,)),
    ("sums", "vector_sum", ("load", "heat"), ()),
    ("means", "vector_mean", ("load", "heat"), ()),
    ("paid", "sum", ("price",), ()),
    ("mean_price", "avg", ("price",), ()),
    ("least_price", "min", ("price",), ()),
    ("last_price", "last", ("price",), ()),
    ("prices", "count_distinct", ("price",), ()),
    ("half_price", "approx_quantile", ("price",), (0.5, 0)),
    ("some_prices", "collect", ("price",), (2,)),
]
FEW = [each for each in AGGREGATES if each[0] in ("n", "mean", "opening", "sample")]
"""The aggregates for kinds of windows that do not differ from another kind in how rows reach an aggregate."""
KEYS = {"site": "string", "unit": "int", "built": "date", "on": "bool", "since": "timestamp"}

ADAPTIVE = {"target": 2, "min": HOUR, "max": 6 * HOUR, "reset": 12 * HOUR, "max_bytes": 40}
SHAPES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    # kind, what the oracle is told, what the source file says
    "sliding": ("sliding", {"size": 3 * HOUR}, {"size": "3 h"}),
    "ticked": ("sliding", {"size": 3 * HOUR, "tick": 1000}, {"kind": "sliding", "size": "3 h", "tick": "1 ms"}),
    "session": ("session", {"gap": 4 * HOUR}, {"gap": "4 h"}),
    "tumbling": ("tumbling", {"size": 6 * HOUR, "offset": HOUR}, {"size": "6 h", "offset": "1 h"}),
    "fixed": ("tumbling", {"size": 5 * HOUR}, {"size": "5 h"}),
    "hopping": ("hopping", {"size": 8 * HOUR, "advance": 3 * HOUR, "offset": HOUR},
                {"size": "8 h", "advance": "3 h", "offset": "1 h"}),
    "calendar": ("calendar", {"period": (1, "day"), "zone": "America/New_York"},
                 {"period": "1 day", "zone": "America/New_York"}),
    "adaptive": ("adaptive", {**ADAPTIVE, "triggers": [("time", 0), ("count", 3), ("memory_pressure", 0.5)]},
                 {"target_batch_size": 2, "min": "1 h", "max": "6 h", "reset": "12 h", "memory": {"max_bytes": 40},
                  "triggers": ["time", "count(3)", "memory_pressure(0.5)"]}),
    "rated": ("adaptive", {**ADAPTIVE, "rate_window": 2 * HOUR, "triggers": [("rate_change", 0.1), ("time", 0)]},
              {"kind": "adaptive", "target_batch_size": 2, "min": "1 h", "max": "6 h", "reset": "12 h",
               "rate_window": "2 h", "triggers": ["rate_change(0.1)", "time"]}),
}  # fmt: skip
EMITTING: dict[str, tuple[list[Trigger], list[str]]] = {
    # the triggers that the oracle is told, and those that the source file says
    "sliding": ([Trigger("count", 2)], ["count(2)"]),
    "session": ([Trigger("size", 40), Trigger("time", 3 * HOUR)], ["size(40)", "time(3 h)"]),
    "tumbling": ([Trigger("time", 2 * HOUR), Trigger("count", 2)], ["time(2 h)", "count(2)"]),
    "fixed": ([Trigger("count", 1)], ["count(1)"]),
    "hopping": ([Trigger("rate_change", 0.1, over=4 * HOUR), Trigger("count", 3)],
                ["rate_change(0.1, 4 h)", "count(3)"]),
    "calendar": ([Trigger("time", 5 * HOUR)], ["time(5 h)"]),
}  # fmt: skip
POLICIES: dict[str, tuple[str, int | None, Any]] = {
    "reemit": ("reemit", None, "reemit"),
    "within_a_day": ("reemit", DAY, {"policy": "reemit", "limit": "1 day"}),
    "discard": ("discard", None, "discard"),
    "next_window": ("next_window", None, "next_window"),
}
CASES = [(shape, policy) for shape in SHAPES for policy in POLICIES]


EMITTING_CASES = [(f"{shape} emits", policy) for shape, policy in CASES if shape in EMITTING]


def aggregates_of(shape: str) -> list[tuple[str, str, tuple[str, ...], tuple[float, ...]]]:
    return AGGREGATES if shape in ("sliding", "tumbling") else FEW


def call(function: str, columns: tuple[str, ...], numbers: tuple[float, ...]) -> str:
    return f"{function}({', '.join([*columns, *[f'{n:g}' for n in numbers]])})"


@cache
def definition_of(shape: str, policy: str) -> Definition:
    kind = shape.removesuffix(" emits")
    return Definition(source_of(shape, policy), "found" if kind == shape else "found_emissions")


def source_of(shape: str, policy: str) -> Source:
    kind = shape.removesuffix(" emits")
    _, _, written = SHAPES[kind]
    if kind != shape:
        written = {**written, "emit": "early", "triggers": EMITTING[kind][1]}
    window = {
        "kind": kind,
        "key": list(KEYS),
        "aggregates": {name: call(function, of, numbers) for name, function, of, numbers in aggregates_of(shape)},
        "late": POLICIES[policy][2],
        **written,
    }
    columns = {**KEYS, "load": "int", "heat": "float", "label": "string", "id": "string", "at": "timestamp"}
    columns["price"] = f"decimal{DECIMAL}"
    document = {
        "source": "meters",
        "start": "2024-03-09",
        "landing": {"path": "meters/{date}/*", "format": "ndjson"},
        "columns": {("active" if name == "on" else name): kind for name, kind in columns.items()},
        "timelines": {"taken": "at"},
        "event_time": "taken",
        "entity": "site",
        "delta_id": "id",
        "windows": {"found": window | {"key": ["active" if k == "on" else k for k in KEYS]}},
    }
    return parse_source(yaml.safe_dump(document), file="meters.yml")


def spec_of(shape: str, policy: str) -> Spec:
    plain = shape.removesuffix(" emits")
    kind, lengths, _ = SHAPES[plain]
    name, limit, _ = POLICIES[policy]
    return Spec(kind, lengths, name, limit, aggregates_of(shape), () if plain == shape else EMITTING[plain][0])


KEY_VALUES = [
    ("a", 1, date(2020, 1, 1), True, datetime(2020, 1, 1, tzinfo=UTC)),
    ("a", 1, date(2020, 1, 1), True, datetime(2020, 1, 1, 0, 0, 0, 1, tzinfo=UTC)),
    ("", -(2**62), date(1, 1, 1), False, datetime(1969, 12, 31, tzinfo=UTC)),
    ("a", None, date(2020, 1, 1), True, datetime(2020, 1, 1, tzinfo=UTC)),
]
floats = st.sampled_from([0.1, 0.2, 1e16, -1e16, -0.0, 0.0, 1 / 3, math.nan])
prices = st.sampled_from(["0.0001", "-0.1000", "0.2000", "99999999999999999999999999.9999"]).map(Decimal)
values = st.fixed_dictionaries(
    {
        "load": st.none() | st.integers(-3, 9),
        "heat": st.none() | floats,
        "label": st.none() | st.sampled_from(["x", "y", "é"]),
        "price": st.none() | prices,
        "__bytes": st.integers(0, 30),
    }
)
row = st.tuples(
    st.sampled_from(KEY_VALUES[:3] * 5 + KEY_VALUES[3:]),
    st.integers(-1, 4),  # the drop, counted from the first
    st.integers(-30, 120),  # hours from the start
    st.sampled_from([-1, 0, 0, 0, 1]),
    values,
)
step = st.tuples(st.lists(row, max_size=7), st.lists(st.integers(0, 10**6), max_size=2))
histories = st.lists(step, min_size=1, max_size=4)


def rows_of(came: list[Any], first_id: int) -> list[Row]:
    made = []
    for place, (key, drop, hour, tick, found) in enumerate(came):
        number = first_id + place
        time = START + hour * HOUR + tick
        made.append(Row(START + max(drop, 0) * DAY, time, key, number, found, f"d{number:04d}", key[0] + str(hour % 2)))
    return made


def shown(windows: dict[tuple[Any, ...], dict[str, Any]]) -> list[str]:
    """One line a window, floats to the last bit."""
    return sorted(
        repr((*(k.isoformat() if isinstance(k, date) else k for k in key), *bounds, sorted(_rounded(outputs).items())))
        for (key, *bounds), outputs in windows.items()
    )


def _rounded(outputs: dict[str, Any]) -> dict[str, Any]:
    # the square root of a rounded variance may differ from the rounded root in the last bit
    deviation = outputs.get("deviation")
    return outputs if deviation is None else {**outputs, "deviation": f"{deviation:.12g}"}


@pytest.mark.parametrize(("shape", "policy"), [*CASES, *EMITTING_CASES])
@settings(max_examples=tries(4), deadline=None)
@given(steps=histories)
def test_any_history_publishes_what_the_standing_rows_define(shape: str, policy: str, steps: list[Any]) -> None:
    follow(shape, policy, steps)


@pytest.mark.parametrize(("shape", "policy"), [*CASES, *EMITTING_CASES])
@settings(max_examples=tries(4), deadline=None)
@given(steps=histories)
def test_keys_that_are_cut_into_slices_publish_the_same(shape: str, policy: str, steps: list[Any]) -> None:
    follow(shape, policy, steps, rows_a_slice=1)


@pytest.mark.long
@pytest.mark.parametrize(("shape", "policy"), [*CASES, *EMITTING_CASES])
@settings(max_examples=tries(60), deadline=None)
@given(steps=histories)
def test_many_histories_publish_what_the_standing_rows_define(shape: str, policy: str, steps: list[Any]) -> None:
    follow(shape, policy, steps)


def follow(shape: str, policy: str, steps: list[Any], rows_a_slice: int | None = None) -> None:
    spec, definition = spec_of(shape, policy), definition_of(shape, policy)
    simulation = Simulation(definition, rows_a_slice=rows_a_slice)
    alive: list[Row] = []
    landed = 0
    for came, picks in steps:
        fresh = rows_of(came, landed)
        landed += len(fresh)
        went = [alive.pop(pick % len(alive)) for pick in picks if alive]
        account = simulation.run(fresh, went)
        alive += fresh
        assert shown(simulation.published()) == shown(expected(spec, alive))
        touched = [(r, 1) for r in fresh if None not in r.key] + [(r, -1) for r in went if None not in r.key]
        assert account.rows == sum(diff for _, diff in touched)
        assert account.late == sum(diff for r, diff in touched if not skipped(spec, r) and is_late(spec, r))
        assert account.astray == 0
    assert simulation.run([]).rows == 0
    before = shown(simulation.published())
    simulation.run([], everything=True)
    assert shown(simulation.published()) == before, "a recomputation from all rows changes nothing"


def is_late(spec: Spec, given_row: Row) -> bool:
    """True if the row is late for the first window that can hold it."""
    time = given_row.time
    assert time is not None
    match spec.kind:
        case "sliding":
            return time < given_row.lo
        case "session":
            return time + spec.lengths["gap"] < given_row.lo
        case "adaptive":
            return (time // spec.lengths["reset"] + 1) * spec.lengths["reset"] <= given_row.lo
        case _:
            return min(end for _, end in grid(spec, time)) <= given_row.lo


@pytest.mark.parametrize(("shape", "policy"), CASES)
def test_a_window_is_final_iff_no_row_of_a_later_drop_can_change_it(shape: str, policy: str) -> None:
    """By trial: rows of drops at and after `complete`, tried in and around the window."""
    whole, definition = spec_of(shape, policy), definition_of(shape, policy)
    spec = Spec(whole.kind, whole.lengths, whole.policy, whole.limit, [("n", "count", (), ())])
    held = Row(START, START + 30 * HOUR, KEY_VALUES[0], 1, {"__bytes": 1}, "d1", "a")
    outcomes = set()
    for window, content in expected(spec, [held]).items():
        _, start, end, *_ = window
        places = [start - 1, start, end - 1, end, *(end + spec.lengths[n] for n in ("gap",) if n in spec.lengths)]
        for complete in sorted({end + hours * HOUR + tick for hours in range(-4, 40, 4) for tick in (-1, 0, 1)}):
            late = [Row(complete + more, at, held.key, 2, held.values, "d0", "a") for more in (0, DAY) for at in places]
            changes = any(expected(spec, [held, row]).get(window) != content for row in late)
            assert evaluate(definition, start, end, complete) == (not changes)
            outcomes.add(changes)
    assert outcomes == ({True} if policy == "reemit" else {True, False})


def evaluate(definition: Definition, start: int, end: int, complete: int) -> bool:
    """The view's SQL condition, worked out in Python."""
    text = definition.final_condition()
    text = text.replace("unix_micros(h.window_start)", str(start)).replace("unix_micros(h.window_end)", str(end))
    text = text.replace("unix_micros(p.complete)", str(complete)).replace("L", "").replace("false", "False")
    return bool(eval(text, {"pmod": lambda number, by: number % by}))


def test_statistics_are_asked_of_the_first_key_column_unless_it_is_boolean() -> None:
    definition = definition_of("session", "reemit")
    windows = definition.value_columns()
    first = [column.name for column in windows]
    by_switch = tables.windows(definition.source, "found", windows[3:], ["active"])
    assert (first[0], first[3]) == ("site", "active")
    assert "site" in definition.table().skipping
    assert "active" not in by_switch.skipping
