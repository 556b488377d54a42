"""What a kind says of itself is what its windows do: which a row changes, how far it bears, when they close."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from zoneinfo import available_timezones

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.engine.windows import (
    AdaptiveKind,
    Calendar,
    Cuts,
    Deltas,
    EmissionsKind,
    FiringRules,
    Hopping,
    Sessions,
    Sliding,
    SqlTicks,
    Trigger,
    WindowInputs,
    WindowKind,
    collect,
    count,
)
from tests.effort import tries
from tests.engine.whole_tables import window_table

HOUR = 3_600_000_000
DAY = 24 * HOUR
CUTS = Cuts(2, 1, 4, 6, (Trigger("time"), Trigger("count", 3)), 1, 1)
KINDS: dict[str, WindowKind] = {
    "sliding": Sliding(5, clip_at_zero=False),
    "session": Sessions(3),
    "hopping": Hopping(7, 2, 1),
    "tumbling": Hopping(5, 5, 2),
    "adaptive": AdaptiveKind(CUTS, Deltas("id")),
    "emissions of sessions": EmissionsKind(Sessions(3), FiringRules((Trigger("count", 2),), 1)),
    "emissions of hopping": EmissionsKind(Hopping(7, 2, 1), FiringRules((Trigger("time", 2),), 1)),
}
INPUTS = WindowInputs(["k"], "t", {"n": count(), "ids": collect("id", 100)}, arrival="id")
TIMES = st.lists(st.integers(-20, 30), max_size=12)
Windows = set[tuple[Any, ...]]


def windows_of(kind: WindowKind, times: list[int], ids: list[int] | None = None) -> Windows:
    """Windows with what is in them, as values."""
    numbers = list(range(len(times))) if ids is None else ids
    columns = {"k": [1] * len(times), "t": times, "id": numbers}
    table = pa.table({name: pa.array(values, pa.int64()) for name, values in columns.items()})
    made, _ = window_table(table, kind, INPUTS)
    return {(row["window_start"], row["window_end"], repr(row)) for row in made.to_pylist()}


def changed_by_one(kind: WindowKind, times: list[int], fresh: int) -> Windows:
    """The windows that are there with a row at `fresh` or without it alone."""
    return windows_of(kind, times) ^ windows_of(kind, [*times, fresh])


def bounds(of: Callable[..., Any], start: int, end: int) -> tuple[int, int]:
    low, high = of(np.array([start]), np.array([end]))
    return int(low[0]), int(high[0])


@pytest.mark.parametrize("name", KINDS)
@settings(max_examples=tries(60), deadline=None)
@given(times=TIMES, fresh=st.integers(-20, 30))
def test_a_row_changes_no_window_but_those_that_the_kind_names(name: str, times: list[int], fresh: int) -> None:
    kind = KINDS[name]
    for start, end, _ in changed_by_one(kind, times, fresh):
        for low, high in (bounds(kind.changed_by, start, end), bounds(kind.affected_by, start, end)):
            assert low <= fresh <= high
        if kind.halo is not None:
            before, after = kind.halo
            assert fresh - before <= start <= fresh + after
            assert kind.span >= max(before, after)
        if kind.grain is not None:
            length, offset = kind.grain.length, kind.grain.offset
            assert (start - offset) // length == (fresh - offset) // length


@pytest.mark.parametrize(
    ("name", "times", "fresh"),
    [
        ("sliding", [0, 5], 0),
        ("sliding", [1], 0),
        ("hopping", [1], 7),
        ("tumbling", [2], 6),
        ("adaptive", [5], 0),
    ],
)
def test_no_halo_is_longer_than_it_has_to_be(name: str, times: list[int], fresh: int) -> None:
    kind = KINDS[name]
    assert kind.halo is not None
    distances = {fresh - start for start, _, _ in changed_by_one(kind, times, fresh)}
    assert kind.halo[0] in distances or -kind.halo[1] in distances


@pytest.mark.parametrize("name", KINDS)
@settings(max_examples=tries(30), deadline=None)
@given(start=st.integers(-50, 50), length=st.integers(0, 9))
def test_what_a_row_can_change_is_one_rule_for_columns_and_sql(name: str, start: int, length: int) -> None:
    kind = KINDS[name]
    end = start + length

    def worked_out(sql: SqlTicks) -> int:
        return int(eval(str(sql).replace("L", ""), {"pmod": lambda number, by: number % by}))

    low, high = kind.changed_by(SqlTicks(f"({start})"), SqlTicks(f"({end})"))
    assert (worked_out(low), worked_out(high)) == bounds(kind.changed_by, start, end)
    closes = kind.closes(np.array([start]), np.array([end]))
    assert worked_out(kind.closes(SqlTicks(f"({start})"), SqlTicks(f"({end})"))) == closes[0]


@pytest.mark.parametrize("name", ["sliding", "hopping", "tumbling"])
@settings(max_examples=tries(60), deadline=None)
@given(times=TIMES, time=st.integers(-20, 30))
def test_windows_over_a_row_end_between_the_instants_that_the_kind_names(
    name: str, times: list[int], time: int
) -> None:
    kind = KINDS[name]
    first, last = (int(instants[0]) for instants in kind.last_instants(np.array([time])))
    held = [end - kind.half_open for start, end, _ in windows_of(kind, [*times, time]) if start <= time]
    held = [instant for instant in held if instant >= time]
    assert min(held) == first
    assert max(held) <= last


def periods_of(zone: str, unit: str, first: int, last: int) -> np.ndarray:
    """The lengths of all periods of a zone between two days since 1970."""
    times = np.arange(first, last, dtype=np.int64) * DAY
    table = pa.table({"k": pa.array(np.zeros(times.size, np.int64)), "t": pa.array(times)})
    made, _ = window_table(table, Calendar(1, unit, zone), WindowInputs(["k"], "t", {"n": count()}))
    return made.column("window_end").to_numpy() - made.column("window_start").to_numpy()


DATE_LINE = ("America/Juneau", "America/Metlakatla", "Asia/Manila", "Pacific/Apia", "Pacific/Kwajalein", "Pacific/Guam")
"""Zones whose clocks moved by a day."""


@pytest.mark.slow
@pytest.mark.parametrize("zone", [*DATE_LINE, *sorted(available_timezones())[::40][: tries(15)]])
def test_no_period_of_a_zone_is_longer_than_the_kind_says(zone: str) -> None:
    for unit in ("day", "month"):
        assert periods_of(zone, unit, -47_500, 25_000).max() <= Calendar(1, unit, zone).longest


@pytest.mark.parametrize(("unit", "days"), [("day", 1), ("week", 7), ("month", 31), ("quarter", 92)])
def test_a_period_in_which_clocks_went_back_a_day_is_as_long_as_the_kind_says(unit: str, days: int) -> None:
    # Alaska was bought on 1867-10-18, a day that came twice
    calendar = Calendar(1, unit, "America/Juneau")
    assert periods_of("America/Juneau", unit, -37_500, -37_100).max() == calendar.longest == (days + 1) * DAY
    assert calendar.halo == (calendar.longest - 1, 0)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
@settings(max_examples=tries(60), deadline=None)
@given(TIMES)
def test_windows_of_rows_within_a_range_stay_within_it(kind: WindowKind, times: list[int]) -> None:
    least, greatest = -18, 27
    inside = kind.within(np.array(times, np.int64), least, greatest)
    made = windows_of(kind, [time for time, is_inside in zip(times, inside, strict=True) if is_inside])
    assert all(least <= start and end <= greatest for start, end, _ in made)
    for time in [time for time, is_inside in zip(times, inside, strict=True) if not is_inside]:
        # another row just after it makes the last of the windows that a sliding one can be in
        out = windows_of(kind, [time, *[time - 1, time + kind.span] * isinstance(kind, Sliding)])
        assert any(start < least or end > greatest for start, end, _ in out)
