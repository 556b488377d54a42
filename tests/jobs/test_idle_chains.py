"""Chains that no row touches: runs without rows, and maintenance, compact those that are due, and no answer changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_jobs.config import Settings
from spark_jobs.jobs.visits import visit_source
from spark_jobs.sources import find_source
from spark_jobs.storage.descriptions.times import micros
from spark_jobs.storage.lakes.lake import RunLake
from spark_jobs.upkeep.chain_compaction import CompactedChains, compact_chains
from spark_jobs.upkeep.maintenance import CHAINS_STEP, maintain_source
from tests.jobs.harness import DAY, MINUTE, START, Session, _iso, known_states, lake_of, run, write_lines, write_source

SOURCE = """
source: meters
start: 2024-01-01
landing: {path: "meters/{date}/*", format: ndjson}
columns: {id: string, meter: string, at: timestamp, load: int}
timelines: [at]
event_time: at
entity: meter
delta_id: id
state: {mode: upsert, components: [load]}
"""
Row = tuple[int, int, str, int]
"""The drop, the day of the event, the entity, and the minute of that day."""


@pytest.fixture
def home(spark_settings: Settings, tmp_path: Path) -> Settings:
    return spark_settings.model_copy(update={"home": tmp_path, "landing": tmp_path / "landing"})


def declare(home: Settings, **rules: Any) -> Settings:
    return write_source(home, f"{SOURCE}compaction: {json.dumps(rules)}\n")


def land(home: Settings, drop: int, rows: list[Row]) -> None:
    lines = [
        json.dumps({"id": f"{entity}{day}-{m}", "meter": entity, "at": _iso(START + day * DAY + m * MINUTE), "load": m})
        for landed, day, entity, m in rows
        if landed == drop
    ]
    write_lines(home, drop, lines)


def compact(lake: Session, home: Settings) -> CompactedChains:
    return compact_with(lake_of(lake), home)


def compact_with(of: RunLake, home: Settings) -> CompactedChains:
    source = find_source(home.sources, "meters")
    with visit_source(home, source, of) as lease:
        return compact_chains(of, source, lease, home.home)


def rows_of(lake: Session, table: str) -> list[str]:
    return sorted(repr(row) for row in lake.table(table).collect())


def pending(lake: Session) -> dict[str, int]:
    return {row.entity: row.pending for row in lake.table("gold.chains").collect()}


def expected_states(rows: list[Row], event_us: int, known_us: int) -> dict[str, int]:
    """The slow twin: the load of the newest row of each entity, among those that had landed and happened."""
    newest: dict[str, int] = {}
    for drop, event_drop, entity, minute in sorted(rows, key=lambda row: (row[1], row[3])):
        at = START + event_drop * DAY + minute * MINUTE
        if micros(at) <= event_us and micros(max(at, START + drop * DAY)) <= known_us:
            newest[entity] = minute
    return newest


def answers_are_those_of_the_twin(lake: Session, home: Settings, rows: list[Row]) -> None:
    source, day = find_source(home.sources, "meters"), micros(START + DAY) - micros(START)
    published = lake.sql("SELECT unix_micros(published) AS at FROM trace.published").collect()[0].at
    for known_us in {micros(START) + day - 1, published - 1}:
        for event_us in {micros(START) + day // 2, micros(START) + day * 5 // 3, published - 1}:
            states = known_states(lake, source, event_us=event_us, known_us=known_us)
            assert {s["meter"]: s["load"] for s in states} == expected_states(rows, event_us, known_us)


def age(event_drop: int, minute: int, reached: int) -> float:
    """The age of an event in days, once all drops before `reached` have been run."""
    return reached - event_drop - minute / 1440


def first_rows() -> list[Row]:
    return [(0, 0, "a", 60 * n) for n in range(5)] + [(1, 1, "b", 60 * n) for n in range(3)] + [(0, 0, "c", 30)]


@pytest.mark.parametrize("touches", [False, True])
def test_a_run_without_rows_compacts_chains_that_come_of_age(lake: Session, home: Settings, touches: bool) -> None:
    """Beside rows of another entity and without any, the pending deltas are those of the slow twin, day by day."""
    home = declare(home, strategy="tiered", keep_recent=1, delta_threshold=99, age_threshold="2 days")
    rows = first_rows() + [(drop, drop, "z", 5) for drop in range(5) if touches]
    for drop in range(5):
        land(home, drop, rows)
        run(lake, home, drop, drop)
        expected = {}
        for entity in {row[2] for row in rows if row[0] <= drop} - {"z"}:
            own = sorted((row[1], row[3]) for row in rows if row[2] == entity)
            expected[entity] = 1 if len(own) > 1 and age(*own[0], drop + 1) > 2 else len(own)
        assert {e: n for e, n in pending(lake).items() if e != "z"} == expected, drop
    assert expected == {"a": 1, "b": 1, "c": 1}
    answers_are_those_of_the_twin(lake, home, rows)


def test_maintenance_compacts_what_is_due_by_a_changed_rule_in_one_commit(lake: Session, home: Settings) -> None:
    rows = first_rows()
    home = declare(home, strategy="full", delta_threshold=99)
    for drop in range(3):
        land(home, drop, rows)
        run(lake, home, drop, drop)
    assert pending(lake) == {"a": 5, "b": 3, "c": 1}
    assert compact(lake, home) == CompactedChains()
    # `b` is of age two days and less
    home = declare(home, strategy="full", delta_threshold=99, age_threshold="2 days")
    published, states = rows_of(lake, "trace.published"), rows_of(lake, "gold.state_history")
    commits = lake_of(lake).commits
    done = compact(lake, home)
    assert (done.removed, done.merged, lake_of(lake).commits - commits) == (2, 6, 1)
    assert pending(lake) == {"a": 0, "b": 3, "c": 0}
    assert (rows_of(lake, "trace.published"), rows_of(lake, "gold.state_history")) == (published, states)
    answers_are_those_of_the_twin(lake, home, rows)
    assert (compact(lake, home), lake_of(lake).commits - commits) == (CompactedChains(), 1)
    rows.append((3, 0, "a", 30))
    land(home, 3, rows)
    run(lake, home, 3, 3)
    answers_are_those_of_the_twin(lake, home, rows)


@pytest.mark.spark
@pytest.mark.long
def test_maintenance_on_spark_leaves_whole_chains_that_its_audit_and_the_next_run_accept(
    lake: SparkSession, home: Settings
) -> None:
    rows = [*first_rows(), (2, 0, "a", 75), (2, 2, "b", 9)]
    home = declare(home, strategy="tiered", keep_recent=1, delta_threshold=2, background=True)
    for drop in range(2):
        land(home, drop, rows)
        run(lake, home, drop, drop)
    assert pending(lake) == {"a": 5, "b": 3, "c": 1}
    source = find_source(home.sources, "meters")
    (alone,) = maintain_source(home, source, lake, only=CHAINS_STEP)
    # each time that a second delta waits, the one before it is folded: as many segments as the chains have deltas
    assert (alone.found, alone.failed) == ("2 segments became 8, 6 deltas in newer checkpoints", False)
    steps = {step.step: step for step in maintain_source(home, source, lake)}
    assert [step.found for step in steps.values() if step.failed] == []
    assert steps[CHAINS_STEP].found == "no chain is due"
    assert pending(lake) == {"a": 1, "b": 1, "c": 1}
    land(home, 2, rows)
    run(lake, home, 2, 2)
    answers_are_those_of_the_twin(lake, home, rows)


def test_chains_wait_while_a_run_has_sealed_and_not_published(lake: Session, home: Settings) -> None:
    rows = first_rows()
    home = declare(home, strategy="full", delta_threshold=2, background=True)
    for drop in range(2):
        land(home, drop, rows)
    run(lake, home, 0, 0)
    for stages in (("land",), ("seal",), ("window",), ("compact",)):
        waits = "land" not in stages
        run(lake, home, 1, 1, stages=stages)
        assert compact(lake, home).waits is waits
    run(lake, home, 1, 1, stages=("publish",))
    assert pending(lake) == {"a": 0, "b": 3, "c": 1}
    assert compact(lake, home).removed == 1
    assert pending(lake) == {"a": 0, "b": 0, "c": 1}
    answers_are_those_of_the_twin(lake, home, rows)


@pytest.mark.parametrize("commits", [0, 1])
def test_a_kill_leaves_the_chains_of_before_or_of_after(
    lake: Session, home: Settings, monkeypatch: pytest.MonkeyPatch, commits: int
) -> None:
    rows = first_rows()
    home = declare(home, strategy="full", delta_threshold=2, background=True)
    land(home, 0, rows)
    run(lake, home, 0, 0)
    of = lake_of(lake)
    rewrite = of.rewrite

    def killed(*arguments: Any, **options: Any) -> None:
        if commits:
            rewrite(*arguments, **options)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(of, "rewrite", killed)
        with pytest.raises(KeyboardInterrupt):
            compact_with(of, home)
    assert pending(lake) == ({"a": 0, "c": 1} if commits else {"a": 5, "c": 1})
    answers_are_those_of_the_twin(lake, home, [row for row in rows if not row[0]])
    assert compact(lake, home).removed == 1 - commits
    land(home, 1, rows)
    run(lake, home, 1, 1)
    answers_are_those_of_the_twin(lake, home, rows)
