"""Adaptive and calendar windows against their twins."""

import datetime
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from types import FrameType
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.engine.twins.adaptive_windows import NaiveAdaptiveRow, adaptive
from spark_jobs.engine.windows import (
    AdaptiveKind,
    Calendar,
    Cuts,
    Deltas,
    IntegerOverflow,
    Trigger,
    Windowing,
    WindowInputs,
    collect,
    count,
    sum_,
)
from spark_jobs.engine.windows.kinds.cuts import adaptive_spans
from spark_jobs.engine.windows.streams import PortionLimits, stream_windows
from spark_jobs.errors import ParameterError
from tests.effort import tries
from tests.engine.whole_tables import adaptive_table, skipped_table, window_table

CUTS = Cuts(target=3, shortest=2, longest=12, reset=40, triggers=(), memory_bytes=100, rate_unit=10)
TRIGGERS = st.lists(
    st.sampled_from(
        [
            Trigger("time"),
            Trigger("count", 3),
            Trigger("size", 20),
            Trigger("rate_change", 0.3),
            Trigger("memory_pressure", 0.5),
            Trigger("memory_pressure", 0.07),
            Trigger("memory_pressure", 0.29),
        ]
    ),
    max_size=4,
    unique=True,
).map(tuple)
ROWS = st.lists(st.tuples(st.integers(-50, 90), st.integers(0, 30), st.none() | st.integers(0, 200)), max_size=40).map(
    lambda rows: [
        NaiveAdaptiveRow(t, n, size, -(2**63) if late is None else late) for n, (t, size, late) in enumerate(rows)
    ]
)
IDS = st.tuples(st.integers(-50, 90), st.integers(0, 4), st.none() | st.integers(0, 200))
REPEATED = st.lists(IDS, max_size=30).map(
    lambda rows: [NaiveAdaptiveRow(t, n, n, -(2**63) if late is None else late) for t, n, late in rows]
)
"""Ids that come several times, some of them late."""
INPUTS = WindowInputs(["k"], "t", {"n": count(), "bytes": sum_("size")}, min_end="least")
DELTAS = Deltas("id", vector="vector", size_bytes="size")


def table_of(rows: list[NaiveAdaptiveRow]) -> pa.Table:
    columns = {
        "k": ["x"] * len(rows),
        "t": [row.time for row in rows],
        "id": [row.delta for row in rows],
        "size": [row.size for row in rows],
        "least": [row.min_end for row in rows],
        "vector": [row.delta % 3 for row in rows],
    }
    types = {"k": pa.string()}
    return pa.table({name: pa.array(values, types.get(name, pa.int64())) for name, values in columns.items()})


EDGE = st.sampled_from([-(2**63), -(2**63) + 1, -(2**63) + 7, -1, 0, 5, 2**63 - 20, 2**63 - 7, 2**63 - 2, 2**63 - 1])
EDGES = st.lists(st.tuples(EDGE, st.integers(0, 30), st.none() | EDGE), max_size=20).map(
    lambda rows: [
        NaiveAdaptiveRow(t, n, size, -(2**63) if late is None else late) for n, (t, size, late) in enumerate(rows)
    ]
)
RATE_WINDOWS = st.sampled_from([None, 1, 3, 12, 50])
RESETS = st.sampled_from([1, 40, 1000, 2**40, 2**62, 2**63 - 1])


@settings(max_examples=tries(100), deadline=None)
@given(EDGES, TRIGGERS, RESETS, st.sampled_from([2, 12, 300]), RATE_WINDOWS | st.just(2**63 - 1))
def test_adaptive_windows_equal_the_twin_at_the_ends_of_int64(
    rows: list[NaiveAdaptiveRow], triggers: tuple[Trigger, ...], reset: int, longest: int, rate_window: int | None
) -> None:
    cuts = replace(CUTS, triggers=triggers, reset=reset, longest=longest, rate_window=rate_window)
    found, _ = adaptive_table(table_of(rows), cuts, DELTAS, INPUTS)
    if rate_window is not None:
        assert [(w["stats"]["rate"], w["stats"]["rate_window"]) for w in found.to_pylist()] == [
            (w.rate, w.rate_window) for w in adaptive(rows, cuts)
        ]
    assert [(w["window_start"], w["window_end"], w["trigger"], w["delta_ids"]) for w in found.to_pylist()] == [
        (w.start, min(w.end, 2**63 - 1), w.trigger, [delta.delta for delta in w.deltas]) for w in adaptive(rows, cuts)
    ]


@settings(max_examples=tries(100), deadline=None)
@given(ROWS | REPEATED, TRIGGERS, RATE_WINDOWS, st.randoms(use_true_random=False))
def test_adaptive_windows_equal_the_twin_in_any_order_of_rows(
    rows: list[NaiveAdaptiveRow], triggers: tuple[Trigger, ...], rate_window: int | None, random: Random
) -> None:
    cuts = replace(CUTS, triggers=triggers, rate_window=rate_window)
    shuffled = list(rows)
    random.shuffle(shuffled)
    result, _ = adaptive_table(table_of(shuffled), cuts, DELTAS, INPUTS)
    wanted = adaptive(rows, cuts)
    found = result.to_pylist()
    assert [(w["window_start"], w["window_end"], w["trigger"], w["delta_ids"]) for w in found] == [
        (w.start, w.end, w.trigger, [delta.delta for delta in w.deltas]) for w in wanted
    ]
    for row, window in zip(found, wanted, strict=True):
        size = sum(delta.size for delta in window.deltas)
        assert row["stats"] == {
            "delta_count": len(window.deltas),
            "vectors_affected": len({delta.delta % 3 for delta in window.deltas}),
            "total_bytes": size,
            "avg_delta_size": size / len(window.deltas),
            "duration": window.end - window.start,
            **({} if rate_window is None else {"rate": window.rate, "rate_window": window.rate_window}),
        }
        assert (row["n"], row["bytes"]) == (len(window.deltas), size)
    assert len({row["window_id"] for row in found}) == len(found)


def streamed(table: pa.Table, cuts: Cuts, most_rows: int, held: Callable[[int, int], None] | None = None) -> pa.Table:
    """The windows of rows by key and time, so many at a time."""
    table = table.sort_by([("k", "ascending"), ("t", "ascending")])
    chunks = (table.slice(begin, most_rows) for begin in range(0, table.num_rows, most_rows))
    windowing = Windowing.of(AdaptiveKind(cuts, DELTAS), INPUTS)
    return pa.concat_tables(stream_windows(chunks, windowing, PortionLimits(most_rows, None, held)))


@pytest.mark.parametrize("text_ids", [False, True])
@settings(max_examples=tries(150), deadline=None)
@given(
    st.lists(ROWS | REPEATED | EDGES, min_size=1, max_size=3).filter(any), TRIGGERS, RESETS | st.just(7),
    st.sampled_from([2, 12, 300]), RATE_WINDOWS, st.sampled_from([1, 2, 5]), st.randoms(use_true_random=False),
)  # fmt: skip
def test_windows_of_rows_some_at_a_time_are_those_of_all_rows(
    text_ids: bool,
    of_keys: list[list[NaiveAdaptiveRow]],
    triggers: tuple[Trigger, ...],
    reset: int,
    longest: int,
    rate_window: int | None,
    most_rows: int,
    random: Random,
) -> None:
    cuts = replace(CUTS, triggers=triggers, reset=reset, longest=longest, rate_window=rate_window)
    tables = []
    for number, rows in enumerate(of_keys):
        shuffled = list(rows)
        random.shuffle(shuffled)
        tables.append(table_of(shuffled).set_column(0, "k", pa.array([f"k{number}"] * len(rows), pa.string())))
    table = pa.concat_tables(tables)
    if text_ids:
        ids = table["id"].cast(pa.string())
        table = table.set_column(2, "id", ids)
    whole, _ = adaptive_table(table, cuts, DELTAS, INPUTS)
    assert streamed(table, cuts, most_rows).to_pylist() == whole.to_pylist()


def _note_second(noted: list[int], _: int, n_rows: int) -> None:
    noted.append(n_rows)


@pytest.mark.slow
@pytest.mark.parametrize("triggers", [(Trigger("time"),), (Trigger("count", 50), Trigger("rate_change", 0.5))])
def test_rows_held_do_not_grow_with_the_cell(triggers: tuple[Trigger, ...]) -> None:
    most = {}
    for n in (2_000, 20_000):
        held: list[int] = []
        rows = table_of([NaiveAdaptiveRow(t, t, 1) for t in range(n)])
        cuts = replace(CUTS, triggers=triggers, reset=10**9, longest=40, target=30)
        streamed(rows, cuts, 100, partial(_note_second, held))
        most[n] = max(held)
    assert most[20_000] == most[2_000] < 500


def test_an_id_that_comes_twice_at_one_time_leaves_no_choice() -> None:
    rows = [
        NaiveAdaptiveRow(time, 7, size, least) for time in (0, 1) for size in (5, 20, 0) for least in (-(2**63), 60)
    ]
    table = table_of(rows).append_column("v", pa.array(["a", None, "b", "c"] * 3))
    cuts = replace(CUTS, triggers=(Trigger("size", 20), Trigger("count", 4)))
    inputs = replace(INPUTS, aggregates={"vs": collect("v", 9)})
    found = [
        adaptive_table(table.take(np.random.default_rng(seed).permutation(len(rows))), cuts, DELTAS, inputs)[0]
        for seed in range(20)
    ]
    assert all(windows.equals(found[0]) for windows in found)


def test_a_delta_that_comes_again_counts_once_in_its_cell() -> None:
    rows = [
        NaiveAdaptiveRow(0, 1, 5),
        NaiveAdaptiveRow(0, 1, 5),
        NaiveAdaptiveRow(3, 1, 9),
        NaiveAdaptiveRow(3, 2, 1),
        NaiveAdaptiveRow(41, 1, 7),
    ]
    cuts = replace(CUTS, triggers=(Trigger("time"),))
    found, counts = adaptive_table(table_of(rows), cuts, DELTAS, INPUTS)
    assert found.column("delta_ids").to_pylist() == [[1, 2], [1]]
    assert [stats["total_bytes"] for stats in found.column("stats").to_pylist()] == [6, 7]
    assert counts.late_rows == 0
    late = [replace(rows[0], min_end=40), *rows[2:]]
    found, counts = adaptive_table(table_of(late), cuts, DELTAS, INPUTS)
    assert found.column("delta_ids").to_pylist() == [[1, 2], [1]], "the one that was not late counts"
    assert counts.late_rows == 1


def test_a_share_of_the_memory_is_the_decimal_that_was_written() -> None:
    cuts = replace(CUTS, triggers=(Trigger("memory_pressure", 0.07),))
    found, _ = adaptive_table(table_of([NaiveAdaptiveRow(t, t, 1) for t in range(10)]), cuts, DELTAS, INPUTS)
    assert found.column("delta_ids").to_pylist() == [[0, 1, 2, 3, 4, 5, 6], [7, 8, 9]]


SIZES = st.sampled_from([0, 1, 7, 2**53, 2**53 + 1, 2**62, 2**63 - 1])


@pytest.mark.slow
@settings(max_examples=tries(100), deadline=None)
@given(st.lists(SIZES, min_size=1, max_size=8), st.sampled_from([7, 2**53 + 1, 2**62 + 1, 2**63 - 1]))
def test_sizes_are_exact_up_to_int64_and_refused_beyond(sizes: list[int], limit: int) -> None:
    rows = [NaiveAdaptiveRow(t, t, size) for t, size in enumerate(sizes)]
    inputs = replace(INPUTS, aggregates={"n": count()})
    for trigger in (Trigger("size", limit), Trigger("count", 5)):
        cuts = replace(CUTS, triggers=(trigger,))
        wanted = adaptive(rows, cuts)
        totals = [sum(delta.size for delta in window.deltas) for window in wanted]
        if max(totals) >= 2**63:
            with pytest.raises(IntegerOverflow, match="sum of size"):
                adaptive_table(table_of(rows), cuts, DELTAS, inputs)
        else:
            found, _ = adaptive_table(table_of(rows), cuts, DELTAS, inputs)
            assert found.column("n").to_pylist() == [len(window.deltas) for window in wanted]
            assert [stats["total_bytes"] for stats in found.column("stats").to_pylist()] == totals


def test_keys_do_not_touch_each_other() -> None:
    rows = [NaiveAdaptiveRow(t, t, 1) for t in (0, 1, 2, 50, 51)]
    cuts = replace(CUTS, triggers=(Trigger("time"), Trigger("count", 2)))
    one = table_of(rows)
    other = one.set_column(0, "k", pa.array(["y"] * len(rows)))
    alone, _ = adaptive_table(one, cuts, DELTAS, INPUTS)
    both, _ = adaptive_table(pa.concat_tables([other, one, other.slice(0, 0)]), cuts, DELTAS, INPUTS)
    assert both.slice(0, alone.num_rows).equals(alone)
    assert both.slice(alone.num_rows).drop(["k"]).equals(alone.drop(["k"]))


def test_what_a_delta_changes_may_be_of_any_type() -> None:
    rows = table_of([NaiveAdaptiveRow(t, t, 1) for t in (0, 1, 2)])
    for vectors in ([[1.0], [2.0], [1.0]], [0.0, -0.0, 1.0], ["a", "b", "a"]):
        table = rows.set_column(rows.schema.get_field_index("vector"), "vector", pa.array(vectors))
        result, _ = adaptive_table(table, CUTS, DELTAS, INPUTS)
        assert [stats["vectors_affected"] for stats in result.column("stats").to_pylist()] == [2]


def test_a_cell_cuts_and_starts_the_rate_afresh() -> None:
    rows = [NaiveAdaptiveRow(t, t) for t in (36, 37, 38, 39, 40, 41)]
    windows = adaptive(rows, replace(CUTS, triggers=(Trigger("time"),)))
    assert [(w.start, w.end, w.trigger) for w in windows] == [(36, 40, "reset"), (40, 52, "time")]


def test_adaptive_windows_hold_at_the_ends_of_int64() -> None:
    times = np.array([-(2**63), -(2**63) + 1, 2**63 - 2, 2**63 - 1])
    cuts = replace(CUTS, triggers=(Trigger("time"),))
    every = np.ones(4, np.bool_)
    windows, spans, cutting = adaptive_spans(
        offsets=np.array([0, 4]), times=times, sizes=np.zeros(4, np.int64), cuts=cuts, counted=every
    )
    assert windows.start.tolist() == [-(2**63), 2**63 - 2]
    assert windows.end[1] == 2**63 - 1
    assert spans.counts.tolist() == [2, 2]
    assert cutting.reason.size == 2


def test_the_interpreter_runs_no_loop_over_the_rows_of_the_adaptive_kernel() -> None:
    def lines(n: int) -> int:
        arguments: dict[str, Any] = {
            "offsets": np.array([0, n]),
            "times": np.arange(n) * 50,
            "sizes": np.zeros(n, np.int64),
        }
        arguments["counted"] = np.ones(n, np.bool_)
        cuts = replace(CUTS, longest=5_000, reset=10**9, target=100, triggers=(Trigger("time"), Trigger("count", 100)))
        ran = 0

        def count_lines(_frame: FrameType, _event: str, _argument: Any) -> Any:
            nonlocal ran
            ran += 1
            return count_lines

        before = sys.gettrace()
        sys.settrace(count_lines)
        try:
            adaptive_spans(cuts=cuts, **arguments)
        finally:
            sys.settrace(before)
        return ran

    lines(10)  # compiles
    assert lines(100_000) < lines(1_000) + 100


ZONES = ["UTC", "America/New_York", "America/Sao_Paulo", "Asia/Beirut", "Australia/Lord_Howe", "America/Havana"]
UNITS = {
    "day": lambda day: day,
    "week": lambda day: day - datetime.timedelta(days=day.weekday()),
    "month": lambda day: day.replace(day=1),
    "quarter": lambda day: day.replace(month=(day.month - 1) // 3 * 3 + 1, day=1),
    "year": lambda day: day.replace(month=1, day=1),
}
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
MICROSECOND = datetime.timedelta(microseconds=1)
FIRST, LAST = (end.replace(tzinfo=datetime.UTC) for end in (datetime.datetime.min, datetime.datetime.max))  # noqa: DTZ901


def check_calendar(instants: Sequence[int], zone: str, unit: str) -> None:
    """Each instant is in a window that holds exactly the instants with the local dates of its period."""
    times = np.sort(np.asarray(instants, np.int64))
    windows, spans, _ = Calendar(1, unit, zone).find(np.array([0, times.size]), times, None)

    def local(time: int) -> datetime.date:
        return UNITS[unit]((EPOCH + int(time) * MICROSECOND).astimezone(ZoneInfo(zone)).date())

    for row, at in enumerate(times):
        start, end = windows.start[spans.first[row]], windows.end[spans.first[row]]
        assert start <= at < end
        assert local(start) == local(at) == local(end - 1)
        assert local(start - 1) < local(at) < local(end)


@settings(max_examples=tries(60), deadline=None)
@given(
    st.lists(st.integers(-157_000_000 * 10**6, 2_110_000_000 * 10**6), min_size=1, max_size=6),
    st.sampled_from(ZONES),
    st.sampled_from(sorted(UNITS)),
)
def test_a_calendar_window_holds_exactly_the_instants_of_its_local_dates(
    instants: list[int], zone: str, unit: str
) -> None:
    check_calendar(instants, zone, unit)


@pytest.mark.parametrize(
    ("zone", "change"),
    [
        ("America/Havana", "2021-11-07 05:00"),  # back from 1:00 to midnight
        ("Atlantic/Azores", "2021-10-31 01:00"),
        ("America/Havana", "2021-03-14 05:00"),  # on from midnight to 1:00
        ("America/Sao_Paulo", "2018-02-18 02:00"),  # back from midnight to 23:00
        ("America/Toronto", "1919-03-31 04:30"),  # on from 23:30 to 0:30
        ("Pacific/Apia", "2011-12-30 10:00"),  # a day left out
    ],
)
def test_a_day_begins_once_however_clocks_change_around_midnight(zone: str, change: str) -> None:
    at = (datetime.datetime.fromisoformat(f"{change}+00:00") - EPOCH) // MICROSECOND
    instants = [at + minutes * 60_000_000 + more for minutes in range(-150, 151, 30) for more in (-1, 0, 1)]
    check_calendar(instants, zone, "day")
    check_calendar(instants[::-3], zone, "week")


def test_years_between_two_rows_cost_nothing() -> None:
    first, last = datetime.datetime(1, 1, 2, tzinfo=datetime.UTC), datetime.datetime(9999, 12, 30, tzinfo=datetime.UTC)
    instants = [(at - EPOCH) // MICROSECOND for at in (first, EPOCH, last)]
    check_calendar(instants, "Europe/Berlin", "day")
    assert Calendar(1, "day", "Europe/Berlin")._bounds(np.array(instants)).size < 20, "not of 3.6 million days"


@pytest.mark.parametrize("unit", sorted(UNITS))
@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Tokyo"])
@pytest.mark.parametrize("periods", [1, 7, 1000])
def test_bounds_saturate_at_the_ends_of_the_calendar(unit: str, zone: str, periods: int) -> None:
    least, greatest = ((at - EPOCH) // MICROSECOND for at in (FIRST, LAST))
    times = np.array([least, least + 1, greatest - 1, greatest])
    windows, spans, _ = Calendar(periods, unit, zone).find(np.array([0, 4]), times, None)
    assert (windows.start[0], windows.end[-1]) == (least, greatest)
    assert np.all(windows.start < windows.end)
    assert spans.counts.tolist() == [2, 2]


def test_a_day_of_the_change_of_clocks_has_23_or_25_hours() -> None:
    kind = pa.timestamp("us", "UTC")
    noons = [datetime.datetime(2013, month, day, 17, tzinfo=datetime.UTC) for month, day in ((3, 10), (11, 3), (7, 1))]
    table = pa.table({"k": [1, 1, 1], "t": pa.array(noons, kind)})
    result, _ = window_table(table, Calendar(1, "day", "America/New_York"), WindowInputs(["k"], "t", {"n": count()}))
    hours = [(row["window_end"] - row["window_start"]) / datetime.timedelta(hours=1) for row in result.to_pylist()]
    assert hours == [23, 24, 25]


def test_a_row_at_the_last_instant_of_the_calendar_is_not_late_for_its_own_time() -> None:
    last = (LAST - EPOCH) // MICROSECOND
    table = pa.table({"k": [1, 1], "t": [last, last], "least": [last, last - 1]})
    shape, inputs = Calendar(1, "day"), WindowInputs(["k"], "t", {"n": count()}, min_end="least")
    assert window_table(table, shape, inputs)[0].column("n").to_pylist() == [2]
    assert skipped_table(table, shape, inputs).num_rows == 0


def test_times_outside_of_the_calendar_are_refused() -> None:
    with pytest.raises(ParameterError):
        Calendar(1, "day").find(np.array([0, 1]), np.array([2**63 - 1]), None)
