"""Sessions that live for days, are joined and split; and a key too hot for one worker."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.definitions.definition import Definition
from spark_jobs.engine.spark.windows import METRICS
from spark_jobs.restatement.restater import Restater, WorkerReport, fill_columns
from spark_jobs.sources import parse_source
from tests.effort import tries
from tests.restatement.given import given_schema, restate
from tests.restatement.oracle import Row, Spec, expected
from tests.restatement.simulation import Simulation

HOUR = 3_600_000_000
DAY = 24 * HOUR
START = 1_704_067_200_000_000
N = ("n", "count", (), ())


def definition(kind: str, **length: Any) -> Definition:
    return _definition(yaml.safe_dump({"kind": kind, **length, "key": "meter", "aggregates": {"n": "count()"}}))


@cache
def _definition(window: str) -> Definition:
    document = {
        "source": "meters",
        "start": "2024-01-01",
        "landing": {"path": "meters/{date}/*", "format": "ndjson"},
        "columns": {"meter": "string", "at": "timestamp", "id": "string"},
        "delta_id": "id",
        "timelines": ["at"],
        "event_time": "at",
        "entity": "meter",
        "windows": {"found": yaml.safe_load(window)},
    }
    return Definition(parse_source(yaml.safe_dump(document), file="meters.yml"), "found")


def row(hour: float, drop: int, number: int, key: str = "a") -> Row:
    return Row(START + drop * DAY, START + int(hour * HOUR), (key,), number)


@pytest.mark.slow
def test_a_session_of_ten_days_is_one_session_that_a_late_row_joins_and_a_retraction_splits() -> None:
    simulation = Simulation(definition("session", gap="6 h"))
    rows: dict[int, Row] = {}
    for day in range(10):
        # every six hours, but on the fifth day nothing lands: two sessions of days
        came = [row(24 * day + 6 * k, day, 100 * day + k) for k in range(4) if day != 5]
        quiet = [row(24 * day + 12, day, 100 * day + 9, "quiet")]
        rows |= {r.row_id: r for r in (*came, *quiet)}
        simulation.run([*came, *quiet])
        assert simulation.published() == expected(Spec("session", {"gap": 6 * HOUR}, aggregates=[N]), rows.values())
    assert sorted(outputs["n"] for (key, *_), outputs in simulation.published().items() if key == ("a",)) == [16, 20]

    bridge = [row(24 * 5 + 6 * k, 10, 5000 + k) for k in range(4)]
    simulation.run(bridge)
    (joined,) = [w for w in simulation.windows if w["k_meter"] == "a"]
    assert (joined["window_start"], joined["window_end"]) == (START, START + 10 * DAY - 6 * HOUR)
    assert (joined["a_n"], joined["known_from"]) == (40, 10)
    assert {w["known_from"] for w in simulation.windows if w["k_meter"] == "quiet"} == set(range(10)), "untouched"

    simulation.run([], [bridge[2]])
    parts = sorted((w["window_start"] - START, w["a_n"]) for w in simulation.windows if w["k_meter"] == "a")
    assert parts == [(0, 22), (5 * DAY + 18 * HOUR, 17)]


@pytest.mark.slow
def test_a_hot_key_of_sessions_is_cut_at_breaks_also_where_a_retraction_parts_a_session() -> None:
    simulation = Simulation(definition("session", gap="2 h"), rows_a_slice=5)
    rows = [row(hour + day * 24, 3, 100 * day + hour) for day in range(3) for hour in (0, 2, 4, 6, 8, 20)]
    simulation.run(rows)
    spec = Spec("session", {"gap": 2 * HOUR}, aggregates=[N])
    assert simulation.slices > 2
    assert simulation.published() == expected(spec, rows)
    gone = [r for r in rows if (r.at - START) // HOUR % 24 == 4]
    rows = [r for r in rows if r not in gone]
    simulation.run([], gone)
    assert simulation.published() == expected(spec, rows)


def test_a_late_row_touches_the_sessions_it_meets_and_reads_no_others() -> None:
    simulation = Simulation(definition("session", gap="1 h"))
    simulation.run([row(hour, 0, n) for n, hour in enumerate((0, 1, 5, 9, 9.5, 20))])
    simulation.run([row(6, 3, 99)])
    known = {(w["window_start"] - START) // HOUR: w["known_from"] for w in simulation.windows}
    assert known == {0: 0, 5: 1, 9: 0, 20: 0}
    assert simulation.memory["rows"] == 3, "a published session, its row, and the one that came"


@pytest.mark.slow
def test_a_hot_key_is_worked_on_in_slices_with_exact_windows_across_their_cuts() -> None:
    simulation = Simulation(definition("sliding", size="1 h"), max_bytes=MiB, rows_a_slice=100)
    rows = [row(0.4 * n, 40, n) for n in range(24 * 20)]
    simulation.run(rows)
    assert simulation.published() == expected(Spec("sliding", {"size": HOUR}, aggregates=[N]), rows)


MiB = 1 << 20


def of_many_rows(n_rows: int, *, every: int, drop: int = 0) -> pa.Table:
    """Rows of one key, three ticks apart, and a break after each `every` of them; in no order."""
    number = (np.arange(n_rows, dtype=np.int64) * 7919) % n_rows
    columns = {"time": START + number * 3 + number // every * HOUR, "row_id": number + (drop << 40)}
    return pa.table({name: pa.array(values) for name, values in columns.items()})


def restated(
    rows: pa.Table, published: pa.Table | None = None, *, diff: int = 1, gap: str = "1 second"
) -> tuple[pa.Table, dict[str, int]]:
    """What a worker with 1 MiB makes of touched rows of one key, and of windows that are published; and its memory."""
    found = definition("session", gap=gap)
    n = rows.num_rows
    same = {"is_window": False, "k_meter": "a", "lo": START, "diff": diff, "touched": True}
    given = rows
    for name, value in same.items():
        given = given.append_column(name, pa.array([value] * n))
    tables = [fill_columns(given, given_schema(found))]
    if published is not None:
        renamed = published.rename_columns([{"meter": "k_meter", "n": "a_n"}.get(c, c) for c in published.column_names])
        tables.append(
            fill_columns(renamed.append_column("is_window", pa.array([True] * len(renamed))), given_schema(found))
        )
    worker = Restater(found, known_from_us=diff + 5, everything=False, max_bytes=MiB)
    outcome = WorkerReport()
    made = restate(worker, pa.concat_tables(tables), outcome, rows_a_batch=4096)
    return made, {name: getattr(outcome.memory, name) for name in METRICS}


@pytest.mark.slow
def test_a_hot_key_of_sessions_takes_no_more_memory_for_more_rows() -> None:
    peaks = []
    for n_rows in (20_000, 80_000):
        made, memory = restated(of_many_rows(n_rows, every=100))
        assert made.column("n").to_pylist() == [100] * (n_rows // 100)
        assert memory["rows"] == n_rows
        assert memory["flushed_runs"] > 1
        assert memory["flushed_bytes"] > n_rows * 40
        peaks.append(memory["peak_bytes"])
        closed, memory = restated(of_many_rows(n_rows, every=100), made, diff=-1)
        assert closed.column("era").to_pylist() == ["closing"] * (n_rows // 100), "all its rows are gone"
        peaks.append(memory["peak_bytes"])
    assert max(peaks) <= MiB


@pytest.mark.slow
def test_a_session_larger_than_the_budget_is_exact_and_tells_by_how_much_it_passed_it() -> None:
    made, memory = restated(of_many_rows(40_000, every=40_000))
    (window,) = made.to_pylist()
    assert (window["n"], window["window_start"], window["window_end"]) == (40_000, START, START + 3 * 39_999)
    assert memory["peak_bytes"] > MiB


@pytest.mark.slow
def test_published_windows_that_fall_due_together_are_taken_back_a_part_at_a_time() -> None:
    made, _ = restated(of_many_rows(40_000, every=1))
    found = definition("session", gap="1 second")
    given = made.rename_columns([{"meter": "k_meter", "n": "a_n"}.get(c, c) for c in made.column_names])
    given = fill_columns(given.append_column("is_window", pa.array([True] * made.num_rows)), given_schema(found))
    worker = Restater(found, known_from_us=9, everything=False, expired_us=2**60, max_bytes=MiB)
    outcome = WorkerReport()
    closed = restate(worker, given, outcome, rows_a_batch=4096)
    assert closed.num_rows == 40_000
    assert outcome.memory.peak_bytes <= MiB


def test_of_two_adaptive_windows_that_start_together_one_is_taken_back() -> None:
    lengths = {"target_batch_size": 2, "min": "1 h", "max": "6 h", "reset": "12 h", "triggers": ["count(2)"]}
    simulation = Simulation(definition("adaptive", **lengths))
    rows = [replace(row(1, 0, n), delta_id=f"d{n}", entity="a") for n in range(4)]
    simulation.run(rows)
    for _ in range(2):
        simulation.run([], [rows.pop()])
    (left,) = simulation.windows
    assert (left["window_id"], left["delta_ids"]) == ("39446.0", ["d0", "d1"])


def kept(rows: Iterable[Row], expired: int) -> dict[Any, Any]:
    """The sessions that all rows make, of them those that are kept."""
    made = expected(Spec("session", {"gap": 6 * HOUR}, aggregates=[N]), rows)
    return {window: found for window, found in made.items() if window[2] > expired}


def test_a_late_row_joins_a_session_that_was_kept_no_longer_to_one_that_is() -> None:
    simulation = Simulation(definition("session", gap="6 h", keep="1 day"))
    simulation.run([row(5, 0, 1), row(10, 0, 2)], reached=START + DAY)
    simulation.run([row(26, 1, 3)], reached=START + 2 * DAY)
    assert [w["a_n"] for w in simulation.windows] == [1], "the first session ended a day before what was reached"
    simulation.run([row(16, 2, 4), row(21, 2, 5)], reached=START + 2 * DAY)
    (joined,) = simulation.windows
    assert (joined["window_start"], joined["window_end"], joined["a_n"]) == (START + 5 * HOUR, START + 26 * HOUR, 5)


came = st.lists(st.tuples(st.integers(-9, 3).map(lambda n: 5 * n), st.sampled_from("aaab")), min_size=2, max_size=6)


@settings(max_examples=tries(30), deadline=None)
@given(days=st.lists(st.tuples(came, st.lists(st.integers(0, 999), max_size=2)), min_size=2, max_size=6))
def test_sessions_that_are_kept_for_a_day_are_those_of_all_rows(days: list[Any]) -> None:
    simulation = Simulation(definition("session", gap="6 h", keep="1 day"), max_bytes=MiB)
    standing: list[Row] = []
    for drop, (hours, picks) in enumerate(days):
        fresh = [row(24 * drop + hour, drop, 100 * drop + n, key) for n, (hour, key) in enumerate(hours)]
        went = [standing.pop(pick % len(standing)) for pick in picks if standing]
        reached = START + (drop + 1) * DAY
        simulation.run(fresh, went, reached=reached)
        standing += fresh
        assert simulation.published() == kept(standing, reached - DAY)
