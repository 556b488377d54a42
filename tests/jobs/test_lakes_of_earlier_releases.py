"""A lake that an earlier release made opens, is migrated once and says the same; then its files come and go."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_jobs.audit.audit import audit
from spark_jobs.config import Settings
from spark_jobs.definitions.catalog import LakeOlder, check_tables
from spark_jobs.landing.counted import counted_rows
from spark_jobs.sources import drop_of, first_row_id, load_source, row_id
from spark_jobs.storage.coordination.lake_format import FORMAT, format_of
from spark_jobs.storage.lakes.spark_lake import SparkLake
from tests.jobs.harness import published
from tests.lakes import made
from tests.lakes.made import NIGHT, WINDOWS, file_of, gauge, meter, run, write

pytestmark = [pytest.mark.spark, pytest.mark.turns]

SUMMED = ("rows", "rows_back", "rejects", "rejects_back", "duplicates", "duplicates_back")


@pytest.fixture
def lake(empty_lake: SparkSession) -> SparkSession:
    """The shared session over an empty lake."""
    return empty_lake


@pytest.fixture
def at_home(spark_settings: Settings, tmp_path: Path) -> Settings:
    """Settings with a home of the test's own."""
    return spark_settings.model_copy(update={"home": tmp_path})


@pytest.fixture
def home(lake: SparkSession, at_home: Settings) -> Settings:
    """Settings of the oldest lake."""
    return made.opened(lake, at_home)


def same(said: Mapping[str, Any], then: Mapping[str, Any]) -> None:
    """The answers of then are those of now; tables may have columns that they did not have."""
    assert said.keys() == then.keys()
    for name, answer in then.items():
        if isinstance(answer, dict):
            assert without_origins(said[name]) == without_origins(answer), name
            continue
        columns = {column for row in answer for column in row}
        now = [{column: row[column] for column in row.keys() & columns} for row in said[name]]
        assert sorted(now, key=repr_of) == sorted(answer, key=repr_of), name


def without_origins(told: dict[str, Any]) -> dict[str, Any]:
    """What is behind a row, without the files of rows that went: the release named the file that got their ids next."""
    causes = [{**cause, "file": None} if cause["diff"] < 0 else cause for cause in told["causes"]]
    return {**told, "causes": causes}


def origins(told: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Of each row that went the file that it is said to have come from, and the one that was named when it came."""
    found = []
    for answer in told.values():
        causes = answer["causes"] if isinstance(answer, dict) else []
        for gone in (cause for cause in causes if cause["diff"] < 0):
            same_id = [c for c in causes if c["row_id"] == gone["row_id"] and c["diff"] > 0]
            came = [c for c in same_id if c["landing"] < gone["landing"]]
            found += [(gone["file"], max(came, key=lambda c: c["landing"])["file"])] if came else []
    return found


def repr_of(row: dict[str, Any]) -> str:
    return repr(sorted(row.items()))


def test_it_opens_is_migrated_once_and_says_the_same(lake: SparkSession, home: Settings) -> None:
    sources = {name: load_source(home.sources / f"{name}.yml") for name in ("meters", "gauges")}
    for source in sources.values():
        with pytest.raises(LakeOlder, match=r"bronze\.files without .*first_row_id"):
            check_tables(SparkLake(lake), source)
    for name in sources:
        run(lake, home, name, 2, 2, "first")
    for name, source in sources.items():
        check_tables(SparkLake(lake), source)
        stages = run(lake, home, name, 2, 2, "again")
        assert [stage["commits"] for stage in stages] == [0] * len(stages), "it is migrated"
        assert audit(home, source, lake).failed == []
    told = made.answers(lake, home)
    same(told, made.said())
    assert origins(told)
    assert all(gone == came for gone, came in origins(told))
    comments = {row.col_name: row.comment for row in lake.sql("DESCRIBE bronze.files").collect()}
    assert comments["first_row_id"].startswith("Row id of the file's line 1")
    placed = {(row.path, row.version): row for row in lake.table("bronze.files").collect() if row.path}
    assert placed[file_of("meters", 0, "a"), "retracted"].first_row_id is None
    for row in lake.table("bronze.files").where("path IS NOT NULL AND version <> 'retracted'").collect():
        assert row.first_row_id == (row.seq_no << 43) + (row.file_rank << 29) + 1
        assert row.last_row_id == row.first_row_id + 2**29 - 2


def test_a_lake_without_a_format_opens_is_given_one_and_says_the_same(lake: SparkSession, at_home: Settings) -> None:
    home = made.opened(lake, at_home, "without_format")
    assert format_of(SparkLake(lake)) is None
    for name in ("meters", "gauges"):
        run(lake, home, name, 2, 2, "first")
        source = load_source(home.sources / f"{name}.yml")
        check_tables(SparkLake(lake), source)
        assert [stage["commits"] for stage in run(lake, home, name, 2, 2, "again")] == [0] * 5, "it is migrated"
        assert audit(home, source, lake).failed == []
    assert format_of(SparkLake(lake)) == str(FORMAT)
    same(made.answers(lake, home), made.said("without_format"))


@pytest.mark.long
def test_its_files_change_go_and_come_back_with_the_ids_that_they_had(lake: SparkSession, home: Settings) -> None:
    ids = Ids(lake, home)
    run(lake, home, "meters", 2, 2, "migrates")
    before = ids.of("meters")
    b, c = (file_of("meters", 0, name) for name in "bc")
    # a file whose name goes first joins two drops of old
    write(home, "meters", 0, "0", meter(12, "d", 1), meter(300, "c", 4))
    write(home, "meters", 3, "0", meter(3 * NIGHT + 1, "d", 2))
    land = run(lake, home, "meters", 0, 3, "joined")[0]
    assert sums(land) == {"rows": 2, "duplicates": 1}
    new = {row_id(first_row_id(0, file_of("meters", 0, "0")), 1), row_id(first_row_id(3, file_of("meters", 3, "0")), 1)}
    assert ids.of("meters").keys() == before.keys() | new
    # one changes: a row more, with the next id
    lines = (home.landing_folder / b).read_text().splitlines()
    write(home, "meters", 0, "b", *lines, meter(200, "a", 11))
    assert sums(run(lake, home, "meters", 0, 0, "changed")[0]) == {"rows": 1}
    (added,) = ids.of("meters").keys() - before.keys() - new
    assert (drop_of(added), added & (2**29 - 1), added >> 29) == (0, 5, min(before) >> 29)
    # one goes and comes back
    gone = sums(run(lake, home, "meters", 0, 0, "taken back", retract=True, only_file=c)[0])
    assert gone["rows_back"] >= 1
    run(lake, home, "meters", 0, 0, "back", only_file=c)
    assert ids.of("meters").keys() == before.keys() | new | {added}
    # one that the older version took back comes as new: its ids are another file's by now
    a = file_of("meters", 0, "a")
    run(lake, home, "meters", 0, 0, "old one", only_file=a)
    first = row_id(first_row_id(0, a), 1)
    assert ids.of("meters").keys() == before.keys() | new | {added, first}
    # the rule of a column changes, so that every file is read again, and what that says of no row is other
    text = (home.sources / "meters.yml").read_text()
    changed = text.replace("load: int", 'load: {type: int, null_values: ["-"]}')
    assert changed != text
    (home.sources / "meters.yml").write_text(changed)
    reread = run(lake, home, "meters", 3, 3, "reread", accept_definition=True)[0]
    assert reread["files"] > 5
    assert sums(reread) == {}
    compare(lake, home)


@pytest.mark.long
def test_its_chains_follow_files_that_come_and_go(lake: SparkSession, home: Settings) -> None:
    run(lake, home, "gauges", 2, 2, "migrates")
    before = Ids(lake, home).of("gauges")
    a = file_of("gauges", 0, "a")
    write(home, "gauges", 0, "1", gauge(2, "east", 1), gauge(23, "north", 50))
    write(home, "gauges", 1, "a", gauge(NIGHT + 1, "north", 20), gauge(30, "south", 6))
    assert sums(run(lake, home, "gauges", 0, 1, "joined")[0]) == {"rows": 3, "rows_back": 1}
    assert sums(run(lake, home, "gauges", 0, 0, "gone", retract=True, only_file=a)[0]) == {"rows_back": 2}
    assert len(Ids(lake, home).of("gauges")) == len(before)
    (home.landing_folder / a).unlink()
    text = made.GAUGES.replace("source: gauges", "source: fresh")
    (home.sources / "fresh.yml").write_text(text)
    run(lake, home, "fresh", 0, 2, "fresh")
    assert published(lake, "gold.gauges", "at_delta") == published(lake, "gold.fresh", "at_delta")


def sums(land: dict[str, Any]) -> dict[str, int]:
    """What came and went, but for nothing."""
    return {name: land[name] for name in SUMMED if land[name]}


class Ids:
    """What counts of the sources of a lake: row id -> entity."""

    def __init__(self, spark: SparkSession, home: Settings) -> None:
        self._spark, self._home = spark, home

    def of(self, source: str) -> dict[int, str]:
        rows = counted_rows(SparkLake(self._spark), load_source(self._home.sources / f"{source}.yml"))
        return {row.row_id: row.entity for row in rows.select("row_id", "entity").collect()}


def compare(spark: SparkSession, home: Settings) -> None:
    """With a source that lands the present files in one run: other row ids, the same tables. No two rows of a key have
    the same time, and rows with one delta_id are equal."""
    text = made.METERS.replace("source: meters", "source: fresh")
    for window in WINDOWS:
        text = text.replace(f"  {window}:", f"  {window}_fresh:")
    (home.sources / "fresh.yml").write_text(text)
    run(spark, home, "fresh", 0, 3, "fresh")
    for window in WINDOWS:
        assert published(spark, f"silver.{window}", "final") == published(spark, f"silver.{window}_fresh", "final")
    assert published(spark, "gold.meters", "at_delta") == published(spark, "gold.fresh", "at_delta")
    for table, columns in (
        ("bronze.{}_deltas", ["seq_no", "entity", "event_time", "delta_id", "components"]),
        ("bronze.duplicates", ["seq_no", "delta_id"]),
        ("bronze.quarantine", ["file", "line", "rule"]),
    ):
        ours, theirs = (spark.table(table.format(name)).where(f"source = '{name}'") for name in ("meters", "fresh"))
        if "replay_state" in ours.columns:
            ours, theirs = (frame.where("replay_state = 'open'") for frame in (ours, theirs))
        ours, theirs = (frame.select(*columns) for frame in (ours, theirs))
        assert sorted(map(repr, ours.collect())) == sorted(map(repr, theirs.collect())), table
