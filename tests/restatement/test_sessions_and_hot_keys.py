"""Sessions that live for days, are joined and split; and a key too hot for one worker."""

from __future__ import annotations

from functools import cache

import yaml

from spark_jobs.restatement.definitions import Definition
from spark_jobs.sources import parse_source
from tests.restatement.oracle import Row, Spec, expected
from tests.restatement.simulation import Simulation

HOUR = 3_600_000_000
DAY = 24 * HOUR
START = 1_704_067_200_000_000
N = ("n", "count", (), ())


@cache
def definition(kind: str, **length: str) -> Definition:
    document = {
        "source": "meters",
        "start": "2024-01-01",
        "landing": {"path": "meters/{date}/*", "format": "ndjson"},
        "columns": {"meter": "string", "at": "timestamp"},
        "timelines": ["at"],
        "event_time": "at",
        "entity": "meter",
        "windows": {"found": {"kind": kind, **length, "key": "meter", "aggregates": {"n": "count()"}}},
    }
    return Definition(parse_source(yaml.safe_dump(document), file="meters.yml"), "found")


def row(hour: float, drop: int, number: int, key: str = "a") -> Row:
    return Row(START + drop * DAY, START + int(hour * HOUR), (key,), number)


def test_a_session_of_ten_days_is_one_session_that_a_late_row_joins_and_a_retraction_splits() -> None:
    simulation = Simulation(definition("session", gap="6 h"))
    rows = {}
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


def test_a_late_row_touches_the_sessions_it_meets_and_reads_no_others() -> None:
    simulation = Simulation(definition("session", gap="1 h"))
    simulation.run([row(hour, 0, n) for n, hour in enumerate((0, 1, 5, 9, 9.5, 20))])
    simulation.run([row(6, 3, 99)])
    known = {(w["window_start"] - START) // HOUR: w["known_from"] for w in simulation.windows}
    assert known == {0: 0, 5: 1, 9: 0, 20: 0}
    assert simulation.largest_group == 3, "a published session, its row, and the one that came"


def test_a_hot_key_is_worked_on_in_slices_with_exact_windows_across_their_cuts() -> None:
    simulation = Simulation(definition("sliding", size="1 h"))
    rows = [row(0.4 * n, 40, n) for n in range(24 * 20)]
    simulation.run(rows)
    assert simulation.published() == expected(Spec("sliding", {"size": HOUR}, aggregates=[N]), rows)
    assert simulation.largest_group < len(rows) / 5, "of eight days no worker held more than one and its halo"
