"""A source beside others: a broken file stops nobody else, names that two claim stop a run before it writes, and what
one source shows does not grow with the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_jobs.config import Settings
from spark_jobs.definitions.catalog import name_definitions
from spark_jobs.sources import SourceFileError, parse_source
from tests.jobs.harness import SOURCE, Reading, Session, lake_of, run, write_drops, write_lines, write_source

ROOMS = (
    SOURCE.replace("source: meters", "source: rooms")
    .replace("meters/", "rooms/")
    .replace("  hourly:", "  by_hour:")
    .replace("  shifts:", "  visits:")
)
OF_EARLIER_RELEASES = ("bronze.deltas", "bronze.chunks", "silver.corrections")
LONGEST_IN_DERBY = 32_700
"""Characters of a view's text that the metastore on this machine takes."""
BROKEN = "source: rooms\nstart: yesterday\n"


@pytest.fixture
def home(spark_settings: Settings, tmp_path: Path) -> Settings:
    return write_source(spark_settings.model_copy(update={"home": tmp_path, "landing": tmp_path / "landing"}))


def run_rooms(spark: Session, home: Settings) -> None:
    readings = [reading.line() for reading in (Reading(0, 5, "x", 1), Reading(0, 9, "y", 2))]
    moved = write_lines(home, 0, readings, name="b.ndjson")
    target = home.landing_folder / "rooms" / moved.parent.name / moved.name
    target.parent.mkdir(parents=True, exist_ok=True)
    moved.rename(target)
    run(spark, home, 0, 0, source="rooms")


def test_a_broken_file_beside_it_stops_no_source_and_hides_no_rows(lake: Session, home: Settings) -> None:
    write_source(home, ROOMS, "rooms")
    run_rooms(lake, home)
    write_source(home, BROKEN, "rooms")
    write_drops(home, [Reading(0, 10, "a", 5)])
    # earlier releases had one view over all sources; it ends where the metastore's longest text does
    for old in OF_EARLIER_RELEASES:
        lake.sql(f"CREATE VIEW {old} AS SELECT 1 AS n")
    assert [summary["stage"] for summary in run(lake, home, 0, 0)][-1] == "publish"
    names = lake_of(lake).catalog.names_in(["bronze", "trace", "silver"])
    assert not [old for old in OF_EARLIER_RELEASES if old.split(".")[1] in names[old.split(".")[0]]]
    # what the broken source landed is still there to read
    assert [lake.table(f"bronze.{source}_deltas").count() for source in ("meters", "rooms")] == [1, 2]


def test_each_name_has_a_text_that_the_metastore_takes() -> None:
    columns = ", ".join(f"a_measured_quantity_{n}: 'decimal(18, 3)'" for n in range(150))
    windows = "".join(
        f"  window_{n}: {{kind: tumbling, size: 1 h, key: meter, time: taken, keep: 2 days,"
        " aggregates: {n: count(), total: sum(load)}, late: reemit}\n"
        for n in range(100)
    )
    text = SOURCE.replace("load: int", f"load: int, {columns}").replace("windows:\n", f"windows:\n{windows}")
    source = parse_source(text, file="meters.yml")
    longest = max(name_definitions(source), key=len)
    assert len(longest) < LONGEST_IN_DERBY, longest[:200]


def test_names_that_two_sources_claim_stop_a_run_before_anything_is_written(
    empty_lake: Session, home: Settings
) -> None:
    write_source(home, ROOMS.replace("by_hour", "hourly"), "rooms")
    write_drops(home, [Reading(0, 10, "a", 5)])
    for source, other in (("meters", "rooms.yml"), ("rooms", "meters.yml")):
        with pytest.raises(SourceFileError) as refusal:
            run(empty_lake, home, 0, 0, source=source)
        assert refusal.value.file == f"{source}.yml"
        assert [(p["path"], other in p["found"]) for p in refusal.value.problems] == [("windows.hourly", True)]
        assert not {"bronze", "trace", "silver"} & {row.namespace for row in empty_lake.sql("SHOW DATABASES").collect()}


def test_a_source_that_has_published_a_name_keeps_it(lake: Session, home: Settings) -> None:
    write_drops(home, [Reading(0, 10, "a", 5)])
    run(lake, home, 0, 0)
    write_source(home, ROOMS.replace("by_hour", "hourly"), "rooms")
    write_drops(home, [Reading(1, 24 * 60 + 10, "a", 5)])
    run(lake, home, 1, 1)
    with pytest.raises(SourceFileError, match=r"meters\.yml"):
        run(lake, home, 0, 0, source="rooms")
    assert lake.table("silver.hourly").count() == 2
