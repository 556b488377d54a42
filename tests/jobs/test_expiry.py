"""Rows that `retention.bronze` lets go: no result changes, later rows stay, and what needs the others is refused."""

from __future__ import annotations

import random
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_jobs.audit.audit import audit
from spark_jobs.config import Settings
from spark_jobs.erasure.erase import erase
from spark_jobs.jobs.expiry import Expiry, expire_rows
from spark_jobs.jobs.visits import visit_source
from spark_jobs.landing.choices import of_entity
from spark_jobs.landing.merging import ChunkMerges, merge_all
from spark_jobs.reads.source_chunks import SourceChunks
from spark_jobs.reads.why import why
from spark_jobs.sources import Source, find_source
from spark_jobs.sources.drops import PLACE_BITS
from spark_jobs.storage.descriptions.times import micros
from spark_jobs.storage.lakes.file_lake import FileLake
from spark_jobs.trace import frontiers
from spark_jobs.trace.expiry import RowsExpired, first_whole_drop
from spark_jobs.trace.frontiers import NO_HORIZON_US
from spark_jobs.upkeep.maintenance import maintain_source
from tests.effort import tries
from tests.jobs.harness import (
    DAY,
    SOURCE,
    START,
    Reading,
    Session,
    lake_of,
    path_of,
    run,
    write_lines,
    write_source,
)

RETENTION = "retention: {since: 1 day, horizon: 2 days, bronze: 3 days}\n"
DROPS = 8
ROWS_FROM = START + (DROPS - 3) * DAY
"""The time from which on all rows are there, once all drops are published."""
A_DAY = 24 * 60
_OF_ROWS = "entity, event_time, row_id, delta_id, times, components"
"""The columns of a row that a merge leaves alone."""
PUBLISHED = ("silver.hourly", "silver.shifts", "gold.meters")


@pytest.fixture
def home(spark_settings: Settings, tmp_path: Path) -> Settings:
    settings = spark_settings.model_copy(update={"home": tmp_path, "landing": tmp_path / "landing"})
    return write_source(settings, SOURCE + RETENTION)


def source_of(home: Settings) -> Source:
    return find_source(home.sources, "meters")


def readings_of(chance: random.Random, drop: int) -> list[Reading]:
    """Rows of a drop, rows of earlier days, and one whose second timeline is far ahead."""
    own = [Reading(drop, drop * A_DAY + chance.randrange(A_DAY), chance.choice("abc"), n) for n in range(5)]
    late = [Reading(drop, max(0, drop * A_DAY - chance.randrange(4 * A_DAY)), chance.choice("abc"), 7)]
    ahead = Reading(drop, drop * A_DAY + 5, "d", 9, seen=drop * A_DAY + chance.choice([5, 6 * A_DAY]))
    return [*own, *late, ahead]


def land_all(lake: Session, home: Settings, seed: int) -> None:
    """Run the drops day by day; one is corrected on the way, and a file of one is taken back."""
    chance = random.Random(seed)
    for drop in range(DROPS):
        rows = readings_of(chance, drop)
        write_lines(home, drop, [row.line() for row in rows])
        write_lines(home, drop, [row.line() for row in readings_of(chance, drop)[:2]], "b.ndjson")
        run(lake, home, drop, drop)
        if drop == 1:
            write_lines(home, drop, [row.line() for row in rows[1:]])
            run(lake, home, drop, drop)
        if drop == 2:
            run(lake, home, drop, drop, retract=True, only_file=path_of(drop, "b.ndjson"))


def expire(lake: Session, home: Settings) -> Expiry:
    of, source = lake_of(lake), source_of(home)
    with visit_source(home, source, of) as lease:
        return expire_rows(of, source, lease)


def rows_in(lake: Session, table: str, columns: str = "*") -> list[str]:
    return sorted(repr(row) for row in lake.sql(f"SELECT {columns} FROM {table}").collect())


def standing(lake: Session) -> list[Any]:
    return lake.sql(f"SELECT *, row_id >> {PLACE_BITS} AS drop FROM bronze.meters_deltas").collect()


def rows_of_chunks(lake: Session) -> int:
    """The rows in all chunks, also those that were taken back and the rows that took them back."""
    return int(lake.sql("SELECT sum(rows) AS n FROM bronze.meters_chunks").collect()[0]["n"])


def stays(row: Any) -> bool:
    """The slow twin: a row goes once its drop and all its times lie before ROWS_FROM."""
    end_of_drop = START + (row["drop"] + 1) * DAY
    return end_of_drop > ROWS_FROM or any(time.replace(tzinfo=UTC) >= ROWS_FROM for time in dict(row["times"]).values())


def results(lake: Session) -> dict[str, list[str]]:
    return {name: rows_in(lake, name) for name in (*PUBLISHED, "silver.late", "bronze.files", "trace.published")}


@pytest.mark.parametrize("seed", range(tries(3)))
def test_rows_go_by_the_twin_and_no_result_changes(seed: int, lake: Session, home: Settings) -> None:
    land_all(lake, home, seed)
    before, all_rows, n_rows = results(lake), standing(lake), rows_of_chunks(lake)
    expected = sorted(repr(row) for row in all_rows if stays(row))
    outcome = expire(lake, home)
    assert (outcome.rows_from_us, outcome.waits) == (micros(ROWS_FROM), False)
    assert len(expected) < len(all_rows)
    assert outcome.rows == n_rows - rows_of_chunks(lake) >= len(all_rows) - len(expected)
    assert sorted(map(repr, standing(lake))) == expected
    assert any(row["drop"] < DROPS - 3 for row in standing(lake)), "rows that are ahead keep their chunks"
    assert results(lake) == before
    commits = lake_of(lake).commits
    assert (expire(lake, home).rows, lake_of(lake).commits) == (0, commits)
    merges_nothing_away(lake, home)
    # what lands afterwards is published as ever, and the next rows go a step later
    for drop in (DROPS, DROPS + 1):
        write_lines(home, drop, [Reading(drop, drop * A_DAY + 9, "a", 3).line()])
        run(lake, home, drop, drop)
    assert expire(lake, home).rows_from_us == micros(ROWS_FROM + 2 * DAY)


def merges_nothing_away(lake: Session, home: Settings) -> None:
    """A merge counts the rows of drops that are whole, and leaves all rows as they are."""
    source, of, expected = source_of(home), lake_of(lake), rows_in(lake, "bronze.meters_deltas", _OF_ROWS)
    current = frontiers.load(of, source)
    with visit_source(home, source, of) as lease:
        first_whole = first_whole_drop(source, current.rows_from_us)
        merged = merge_all(of, source, lease.fence.token, current.landed_through, first_whole)
    assert merged == ChunkMerges() or merged.rows == rows_of_chunks(lake)
    assert rows_in(lake, "bronze.meters_deltas", _OF_ROWS) == expected


def test_a_kill_before_the_removal_leaves_rows_for_the_next_one(
    lake: Session, home: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    land_all(lake, home, 1)
    before = standing(lake)

    def killed(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(FileLake, "rewrite", killed)
        with pytest.raises(KeyboardInterrupt):
            expire(lake, home)
    assert sorted(map(repr, standing(lake))) == sorted(map(repr, before))
    with pytest.raises(RowsExpired):
        SourceChunks(lake_of(lake), source_of(home)).range_query("a", "taken", 0, micros(ROWS_FROM))
    assert expire(lake, home).rows > 0
    assert sorted(map(repr, standing(lake))) == sorted(repr(row) for row in before if stays(row))


def test_a_query_is_answered_from_rows_that_are_there_or_refused(lake: Session, home: Settings) -> None:
    land_all(lake, home, 2)
    queries = SourceChunks(lake_of(lake), source_of(home))
    limit, end = micros(ROWS_FROM), micros(START + 99 * DAY)

    def ranges(timeline: str, lo_us: int) -> dict[str, Any]:
        return {meter: queries.range_query(meter, timeline, lo_us, end).to_pylist() for meter in "abcd"}

    def latest(meter: str, at_us: int, names: list[str]) -> Any:
        return queries.latest_at(meter, "taken", at_us, names)

    before = {timeline: ranges(timeline, limit) for timeline in ("taken", "seen")}
    newest = {meter: latest(meter, end, ["load"]) for meter in "abcd"}
    assert ranges("taken", 0) != before["taken"]
    assert expire(lake, home).rows > 0
    assert {timeline: ranges(timeline, limit) for timeline in ("taken", "seen")} == before
    assert {meter: latest(meter, end, ["load"]) for meter in "abcd"} == newest
    for timeline in ("taken", "seen"):
        with pytest.raises(RowsExpired) as refusal:
            ranges(timeline, limit - 1)
        assert refusal.value.facts == {"source": "meters", "rows_from_us": limit}
    for question in (("a", limit - 1, ["load"]), ("nobody", end, ["load"])):
        with pytest.raises(RowsExpired):
            latest(*question)
    # an inverted range has no rows, whatever there was
    assert queries.range_query("a", "taken", 9, 8).num_rows == 0


def test_a_file_whose_rows_have_expired_is_neither_read_again_nor_taken_back(lake: Session, home: Settings) -> None:
    land_all(lake, home, 3)
    expire(lake, home)
    before, rows = results(lake), sorted(map(repr, standing(lake)))
    landed = (home.landing_folder / path_of(0)).read_text()
    write_lines(home, 0, [Reading(0, 3, "a", 1).line()])
    with pytest.raises(RowsExpired) as refusal:
        run(lake, home, 0, 0)
    assert refusal.value.facts["drops"] == ["2024-01-01"]
    (home.landing_folder / path_of(0)).write_text(landed)
    write_lines(home, 0, [Reading(0, 3, "a", 1).line()], "new.ndjson")
    with pytest.raises(RowsExpired):
        run(lake, home, 0, DROPS - 1)
    (home.landing_folder / path_of(0, "new.ndjson")).unlink()
    with pytest.raises(RowsExpired):
        run(lake, home, 0, 0, retract=True)
    run(lake, home, 0, DROPS - 1)
    assert (results(lake), sorted(map(repr, standing(lake)))) == (before, rows)
    # files of later drops are corrected as ever
    write_lines(home, DROPS - 1, [Reading(DROPS - 1, (DROPS - 1) * A_DAY + 1, "a", 1).line()])
    run(lake, home, DROPS - 1, DROPS - 1)
    assert results(lake) != before


def test_an_expired_row_that_lands_again_changes_nothing_and_is_listed(lake: Session, home: Settings) -> None:
    rows = [Reading(drop, drop * A_DAY + 7, "a", drop) for drop in range(DROPS)]
    for row in rows:
        write_lines(home, row.drop, [row.line()])
        run(lake, home, row.drop, row.drop)
    expire(lake, home)
    before = {name: rows_in(lake, name) for name in PUBLISHED}
    write_lines(home, DROPS, [rows[0].line()])
    run(lake, home, DROPS, DROPS)
    assert {name: rows_in(lake, name) for name in PUBLISHED} == before
    listed = lake.sql(f"SELECT action FROM silver.late WHERE row_id >> {PLACE_BITS} = {DROPS}").collect()
    assert {row.action for row in listed} == {"below_horizon"}
    # the same row while it is there is a duplicate
    write_lines(home, DROPS + 1, [rows[-1].line()])
    run(lake, home, DROPS + 1, DROPS + 1)
    assert lake.table("bronze.duplicates").count() == 1


def test_why_names_the_file_of_an_expired_row_by_the_ledger(lake: Session, home: Settings) -> None:
    write_lines(home, 0, [Reading(0, 7, "a", 1).line(), Reading(0, 9, "a", 2).line()])
    for drop in range(1, DROPS):
        write_lines(home, drop, [Reading(drop, drop * A_DAY + 7, "b", 1).line()])
    for drop in range(DROPS):
        run(lake, home, drop, drop)
    first = lake.sql("SELECT * FROM silver.shifts WHERE meter = 'a'").collect()[0]
    window = ["a", f"{first['window_start']:%Y-%m-%dT%H:%M:%S.%fZ}"]
    before = why(lake_of(lake), source_of(home), "silver.shifts", window)
    expire(lake, home)
    after = why(lake_of(lake), source_of(home), "silver.shifts", window)
    assert [(row["file"], row["line"]) for row in before.deltas] == [(path_of(0), 1), (path_of(0), 2)]
    assert after.deltas == [{**row, "landing": None, "run_id": None} for row in before.deltas]
    assert (after.revisions, after.n_deltas) == (before.revisions, before.n_deltas)


def test_nothing_expires_before_both_frontiers_have_passed_it_nor_while_a_run_is_between_its_stages(
    lake: Session, home: Settings
) -> None:
    write_source(home, f"{SOURCE}retention: {{since: 6 days, horizon: 2 days, bronze: 3 days}}\n")
    land_all(lake, home, 4)
    # since follows with the run after a publication
    assert expire(lake, home).rows_from_us == micros(START + (DROPS - 1 - 6) * DAY)
    write_source(home, SOURCE + RETENTION)
    write_lines(home, DROPS, [Reading(DROPS, DROPS * A_DAY + 9, "a", 3).line()])
    run(lake, home, DROPS, DROPS, stages=["land"])
    before = sorted(map(repr, standing(lake)))
    assert expire(lake, home) == Expiry(waits=True)
    assert sorted(map(repr, standing(lake))) == before
    run(lake, home, DROPS, DROPS)
    assert expire(lake, home).rows > 0


def test_a_source_without_the_key_keeps_everything_and_the_key_stays_once_rows_went(
    lake: Session, home: Settings
) -> None:
    write_source(home)
    land_all(lake, home, 5)
    assert expire(lake, home) == Expiry()
    assert frontiers.load(lake_of(lake), source_of(home)).rows_from_us == NO_HORIZON_US
    write_source(home, SOURCE + RETENTION)
    write_lines(home, DROPS, [Reading(DROPS, DROPS * A_DAY + 9, "a", 3).line()])
    run(lake, home, DROPS, DROPS)
    run(lake, home, DROPS, DROPS)
    assert expire(lake, home).rows > 0
    write_source(home)
    with pytest.raises(RowsExpired, match=r"`retention\.bronze` in meters\.yml"):
        run(lake, home, DROPS, DROPS)
    write_source(home, SOURCE + RETENTION.replace("bronze: 3", "bronze: 30"))
    run(lake, home, DROPS, DROPS)
    assert expire(lake, home).rows == 0


@pytest.mark.spark
@pytest.mark.turns
def test_maintenance_lets_rows_go_and_audits_and_erasures_hold_afterwards(lake: SparkSession, home: Settings) -> None:
    write_lines(home, 0, [Reading(0, 9, "z", 1).line()], "z.ndjson")
    land_all(lake, home, 6)
    source, expected = source_of(home), sorted(row["row_id"] for row in standing(lake) if stays(row))
    before = results(lake)
    steps = {step.step: step for step in maintain_source(home, source, lake)}
    assert [step.found for step in steps.values() if step.failed] == []
    assert f"all rows are there from {ROWS_FROM.isoformat()} on" in steps["expire"].found
    assert sorted(row["row_id"] for row in standing(lake)) == expected
    assert results(lake) == before
    # all rows of this entity have expired; the trace, windows and states still have it
    report = erase(home, source, lake, of_entity(source, "z"), "asked")
    assert report.tables["trace.meters_updates"] == {"went": 1, "came": 0}
    assert lake.sql("SELECT * FROM gold.meters WHERE meter = 'z'").collect() == []
    assert rows_in(lake, "bronze.files") == before["bronze.files"]
    assert audit(home, source, lake).failed == []
    write_lines(home, DROPS, [Reading(DROPS, DROPS * A_DAY + 9, "a", 3).line()])
    run(lake, home, DROPS, DROPS)
    assert audit(home, source, lake).failed == []
