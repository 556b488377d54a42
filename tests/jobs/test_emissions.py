"""Early results through whole runs: the table of emissions is restated, kept, gated and read like that of the windows,
whatever days come in whatever order; the windows' own table does not know of it."""

from __future__ import annotations

import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle

from spark_jobs.config import Settings
from spark_jobs.definitions.kinds import kind_of
from spark_jobs.definitions.versions import DefinitionChanged
from spark_jobs.engine.windows import EmissionsKind, OwnTrigger
from spark_jobs.gates.verdicts import GateFailed
from spark_jobs.reads.why import why
from spark_jobs.sources import find_source, parse_source
from spark_jobs.sources.problems import SourceFileError
from spark_jobs.trials.source_tests import CaseResult, run_tests
from tests.empty_lake import empty
from tests.jobs.harness import SOURCE, Reading, Session, lake_of, minute_of, published, run, write_drops, write_source

EARLY = "    emit: early\n    triggers: [time(30 min), count(2)]\n"
EMITTING = SOURCE.replace("    gap: 90 min\n", "    gap: 90 min\n" + EARLY).replace(
    "    size: 60 min\n", "    size: 60 min\n    emit: early\n    triggers: [count(2), size(200)]\n"
)
TABLES = ("silver.hourly", "silver.hourly_emissions", "silver.shifts", "silver.shifts_emissions")
NIGHT = 24 * 60
READINGS = [
    *[Reading(0, 10 + 7 * i, "xyz"[i % 3], i) for i in range(9)],
    *[Reading(1, NIGHT + 5 + 9 * i, "xy"[i % 2], i) for i in range(6)],
    Reading(1, 12, "x", 5),  # late: the second row of its session, where it was the first emission's end
    Reading(1, 1430, "x", 3),  # joins the night's sessions
    Reading(2, NIGHT + 8, "y", 1),
]
Emission = tuple[int, str, float, int, int]
"""Number, trigger, minute, count, total."""


def shifts(lake: Session, table: str = "silver.shifts_emissions") -> dict[tuple[str, float], list[Emission]]:
    emissions: dict[tuple[str, float], list[Emission]] = defaultdict(list)
    for r in lake.sql(f"SELECT * FROM {table} ORDER BY meter, window_start, emission").collect():
        emission = (r.emission, r.trigger, minute_of(r.emitted_at), r.n, r.total)
        emissions[r.meter, minute_of(r.window_start)].append(emission)
    return dict(emissions)


def expected(readings: list[Reading]) -> dict[tuple[str, float], list[Emission]]:
    """The emissions of shifts in plain Python: every half hour since the session's start, or after two rows."""
    emissions: dict[tuple[str, float], list[Emission]] = {}
    for meter in {r.meter for r in readings}:
        sessions: list[list[Reading]] = []
        for reading in sorted((r for r in readings if r.meter == meter), key=lambda r: r.minute):
            if sessions and reading.minute - sessions[-1][-1].minute <= 90:
                sessions[-1].append(reading)
            else:
                sessions.append([reading])
        for rows in sessions:
            emitted: list[tuple[int, str, int]] = []
            start, end = rows[0].minute, rows[-1].minute
            for place, row in enumerate(rows):
                before = emitted[-1][0] if emitted else 0
                instants = range(start + 30, row.minute + 1, 30)
                due = next((i for i in instants if place and i > rows[place - 1].minute), None)
                if due is not None and place > before:
                    emitted.append((place, "time", due))
                    before = place
                if place + 1 - before >= 2:
                    emitted.append((place + 1, "count", row.minute))
            emitted.append((len(rows), "end", end))
            emissions[meter, start] = [
                (number, why, at, upto, sum(r.load for r in rows[:upto]))
                for number, (upto, why, at) in enumerate(emitted, start=1)
            ]
    return emissions


@pytest.fixture
def home(spark_settings: Settings, tmp_path: Path) -> Settings:
    home = spark_settings.model_copy(update={"home": tmp_path, "landing": tmp_path / "landing"})
    return write_source(home, EMITTING)


def show(lake: Session) -> dict[str, Any]:
    return {table: published(lake, table, "final", "provisional") for table in TABLES}


def test_late_rows_and_any_slicing_publish_the_emissions_of_all_rows(lake: Session, home: Settings) -> None:
    write_drops(home, READINGS)
    for drop in range(3):
        run(lake, home, drop, drop)
        assert shifts(lake) == expected([r for r in READINGS if r.drop <= drop])
    assert shifts(lake, "silver.shifts_emissions_as_of(TIMESTAMP'2024-01-01 23:59:59.999999')") == expected(
        [r for r in READINGS if r.drop == 0]
    )
    for name in ("hourly", "shifts"):
        ends = f"(SELECT * FROM silver.{name}_emissions WHERE trigger = 'end')"
        leave_out = ("emission", "trigger", "emitted_at", "final", "provisional")
        assert published(lake, ends, *leave_out) == published(lake, f"silver.{name}", "final", "provisional")
    daily = show(lake)
    assert len(daily["silver.hourly_emissions"]) > len(daily["silver.hourly"])
    for slices in ([(2, 2), (0, 1), (1, 1)], [(0, 2)]):
        empty(lake)
        (home.home / "leases" / "meters.lease").unlink()
        for first, last in slices:
            run(lake, home, first, last)
        assert show(lake) == daily


def test_why_names_the_rows_of_an_early_result(lake: Session, home: Settings) -> None:
    write_drops(home, READINGS)
    run(lake, home, 0, 0)
    run(lake, home, 1, 2)
    source, start = find_source(home.sources, "meters"), "2024-01-01T00:10:00Z"
    early, whole = (
        why(lake_of(lake), source, "silver.shifts_emissions", ["x", start, number]) for number in ("1", "3")
    )
    assert {row["event_time"].minute for row in early.deltas} == {10, 12}
    assert (early.revisions[-1].revision, early.revisions[-1].values["n"]) == (1, 2)
    assert early.revisions[-1].values["trigger"] == "count"
    assert len(whole.deltas) == whole.revisions[-1].values["n"] > 2


def test_asking_for_emissions_later_changes_no_window(lake: Session, home: Settings) -> None:
    write_source(home, SOURCE)
    write_drops(home, READINGS)
    run(lake, home, 0, 2)
    before = published(lake, "silver.shifts_changes")
    write_source(home, SOURCE.replace("    gap: 90 min\n", "    gap: 90 min\n" + EARLY))
    with pytest.raises(DefinitionChanged, match=r"another window\.shifts_emissions") as error:
        run(lake, home, 2, 2)
    assert error.value.facts["parts"] == ["window.shifts_emissions"]
    run(lake, home, 2, 2, accept_definition=True)
    assert shifts(lake) == expected(READINGS)
    assert published(lake, "silver.shifts_changes") == before
    write_source(home, SOURCE.replace("    gap: 90 min\n", "    gap: 90 min\n" + EARLY.replace("(2)", "(1)")))
    run(lake, home, 2, 2, accept_definition=True)
    assert all(len(emissions) == emissions[-1][3] + 1 for emissions in shifts(lake).values()), "one a row, and the last"
    write_source(home, SOURCE)
    run(lake, home, 2, 2, accept_definition=True)
    names = lake_of(lake).catalog.names("silver")
    assert "shifts" in names
    assert not names & {"shifts_emissions", "shifts_emissions_changes", "shifts_emissions_causes"}


def test_a_gate_on_emissions_stops_the_publication(lake: Session, home: Settings) -> None:
    check = "checks:\n  few: {kind: between, table: shifts_emissions, column: emission, max: 2, treatment: fail}\n"
    write_source(home, EMITTING + check)
    write_drops(home, READINGS)
    run(lake, home, 0, 0)
    before = show(lake)
    with pytest.raises(GateFailed):
        run(lake, home, 1, 2)
    assert show(lake) == before


TESTED = """
source: readings
start: 2024-03-01
landing: {path: "readings/{date}/*", format: csv}
columns: {id: string, device: string, at: timestamp, heat: int}
timelines: [at]
event_time: at
entity: device
delta_id: id
windows:
  hourly:
    kind: tumbling
    size: 1 hour
    key: device
    emit: early
    triggers: [TRIGGERS]
    aggregates: {n: count(), most: max(heat)}
tests:
  early:
    - drop: 2024-03-01
      rows:
        - {id: 1, device: a, at: "2024-03-01T10:10:00Z", heat: 5}
        - {id: 2, device: a, at: "2024-03-01T10:40:00Z", heat: 3}
      windows:
        hourly: [{device: a, n: 2}]
        hourly_emissions: FIRST
    - drop: 2024-03-02
      rows:
        - {id: 3, device: a, at: "2024-03-01T10:20:00Z", heat: 9}
      windows:
        hourly: [{device: a, n: 3}]
        hourly_emissions: SECOND
"""
END = "{emission: N, trigger: end, emitted_at: 2024-03-01T11:00:00Z, "
FIRST = (
    "[{emission: 1, trigger: time, emitted_at: 2024-03-01T10:30:00Z, n: 1, most: 5}, "
    + END.replace("N", "2") + "n: 2, most: 5}]"
)  # fmt: skip
SECOND = (
    "[{emission: 1, trigger: count, emitted_at: 2024-03-01T10:20:00Z, n: 2, most: 9}, "
    + END.replace("N", "2") + "n: 3, most: 9}]"
)  # fmt: skip


def source_text(triggers: str, first: str, second: str) -> str:
    return TESTED.replace("TRIGGERS", triggers).replace("FIRST", first).replace("SECOND", second)


def results_of(text: str, orders: int = 0) -> list[CaseResult]:
    """The results of the only test of a source file, as it is written and in further orders."""
    return list(run_tests(parse_source(text, file="readings.yml"), text, orders=orders))


def test_a_source_test_expects_emissions_after_each_drop() -> None:
    results = results_of(source_text("time(30 min), count(2)", FIRST, SECOND), orders=2)
    assert [(each.differences, each.refused) for each in results] == [([], None)] * 3
    (result,) = results_of(source_text("time(30 min), count(2)", FIRST, FIRST))
    assert {each.table for each in result.differences} == {"silver.hourly_emissions"}


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "plugins"
    shutil.copytree(Path(__file__).parents[1] / "examples" / "plugins", folder)
    monkeypatch.setenv("TIDEMARK_PLUGINS", str(folder))
    return folder


def test_a_team_emits_by_a_trigger_of_its_own(plugins: Path) -> None:
    falls = "{emission: 1, trigger: falls, emitted_at: 2024-03-01T10:40:00Z, "
    first = f"[{falls} n: 2}}, {END.replace('N', '2')} n: 2}}]"
    second = f"[{falls} n: 3}}, {END.replace('N', '2')} n: 3}}]"
    text = source_text('"falls(heat, 2)"', first, second)
    assert [(each.differences, each.refused) for each in results_of(text, orders=1)] == [([], None)] * 2
    before = parse_source(text, file="readings.yml").definition_parts()
    code = (plugins / "falls.py").read_text()
    (plugins / "falls.py").write_text(code.replace("same_window &", "same_window[:-9] &"))
    after = parse_source(text, file="readings.yml").definition_parts()
    assert {part for part in before if before[part] != after[part]} == {"window.hourly_emissions"}
    (result,) = results_of(text)
    refusal = result.refused or ""
    assert "a result of falls(heat, 2)" in refusal and "falls.py" in refusal
    with pytest.raises(SourceFileError, match=r"by a whole number from 0 to 1e\+06"):
        parse_source(text.replace("falls(heat, 2)", "falls(heat)"), file="readings.yml")
    with pytest.raises(SourceFileError, match=r"a column of type int for falls, found `device` of type string"):
        parse_source(text.replace("falls(heat, 2)", "falls(device, 2)"), file="readings.yml")


def test_a_team_s_trigger_travels_as_text(plugins: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = parse_source(source_text('"falls(heat, 2)"', "[]", "[]"), file="readings.yml")
    kind = kind_of(source.windows["hourly_emissions"])
    monkeypatch.delenv("TIDEMARK_PLUGINS")
    there = cloudpickle.loads(cloudpickle.dumps(kind))
    assert isinstance(there, EmissionsKind) and isinstance(there.rules.triggers[0], OwnTrigger)
    assert there == kind
