"""Sources that are renamed, dropped and reset: other sources' tables stay as they are, and an interruption anywhere is
gone on with."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_jobs.audit.audit import audit
from spark_jobs.audit.examination import examine_lake
from spark_jobs.backup import back_up
from spark_jobs.config import Settings
from spark_jobs.definitions.versions import DefinitionChanged
from spark_jobs.landing.moving import FilesCutAnew
from spark_jobs.lifecycle import removal, renaming
from spark_jobs.lifecycle import source_parts as parts
from spark_jobs.lifecycle.removal import find_removal, remove_source
from spark_jobs.lifecycle.renaming import NameTaken, find_rename, rename_source
from spark_jobs.lifecycle.source_parts import SHARED, SourceUnknown, histories, source_parts
from spark_jobs.plans.plan import plan_run
from spark_jobs.reads.why import why
from spark_jobs.sources import SourceFileError, find_source, load_source
from spark_jobs.storage.coordination.source_changes import SourceChangeUnfinished
from spark_jobs.storage.delta.records import newest_token
from spark_jobs.storage.descriptions.schema import Table
from spark_jobs.storage.descriptions.tables import PUBLISHED
from spark_jobs.storage.lakes.spark_catalog import SparkCatalog
from spark_jobs.storage.lakes.spark_lake import SparkLake
from spark_jobs.storage.lakes.table_columns import TableDiffers
from spark_jobs.upkeep.pins import make_pin, pins
from tests.jobs.harness import SOURCE, Reading, path_of, published, run, write_drops, write_lines, write_source

pytestmark = [pytest.mark.spark, pytest.mark.turns]

OTHER = SOURCE.replace("source: meters", "source: others")
for _window in ("hourly", "shifts"):
    OTHER = OTHER.replace(f"  {_window}:", f"  {_window}_o:")
NIGHT = 24 * 60
READINGS = [
    *[Reading(0, 10 + 7 * i, "xyz"[i % 3], i) for i in range(9)],
    *[Reading(1, NIGHT + 5 + 9 * i, "xy"[i % 2], i) for i in range(4)],
    Reading(1, 30, "x", 5),  # late
    Reading(1, 10, "x", 0),  # again
]
BETWEEN = "2024-01-01T23:59:59.999999"


class KilledError(Exception):
    """In place of a kill."""


@pytest.fixture
def home(lake: SparkSession, spark_settings: Settings, tmp_path: Path) -> Settings:
    """Two sources over the same files, two drops of each published, of the first one after the other."""
    settings = spark_settings.model_copy(
        update={"home": tmp_path, "landing": tmp_path / "landing", "sources": tmp_path / "sources"}
    )
    settings.sources.mkdir()
    (settings.sources / "meters.yml").write_text(SOURCE)
    (settings.sources / "others.yml").write_text(OTHER)
    write_drops(settings, READINGS)
    with (settings.landing_folder / path_of(0)).open("a") as file:
        file.write("nonsense\n")
    for drop in (0, 1):
        run(lake, settings, drop, drop)
    run(lake, settings, 0, 1, source="others")
    return settings


def answers(spark: SparkSession, source: str, mark: str = "") -> dict[str, list[str]]:
    """What people read of a source: now, as of a time, what changed and what landed; its name left out."""
    names = [f"silver.hourly{mark}", f"silver.hourly{mark}_as_of('{BETWEEN}')", f"silver.shifts{mark}_changes"]
    names += [f"gold.{source}", f"gold.{source}_as_of('{BETWEEN}')", f"silver.late_as_of('{source}', '{BETWEEN}')"]
    frames = {name: spark.sql(f"SELECT * FROM {name}") for name in names}
    shared = ("gold.state", "trace.publications", "bronze.quarantine", f"bronze.{source}_deltas")
    frames |= {name: spark.table(name).where(f"source = '{source}'").drop("source") for name in shared}
    return {name.replace(source, "it"): sorted(repr(row) for row in frame.collect()) for name, frame in frames.items()}


def stored(spark: SparkSession, source: str) -> dict[str, list[str]]:
    """Every row that tables have of a source."""
    lake = SparkLake(spark)
    parts: dict[Table, dict[str, list[str]]] = {table: {} for table in histories(lake, source)}
    shared = [table for table in (PUBLISHED, *SHARED) if lake.folder.is_stored(table.database, table.table)]
    parts |= {table: {"source": [source]} for table in shared}
    rows = {
        t.qualified: lake.stored(t, lake.destination(t).schema.names, partitions=where).whole()
        for t, where in parts.items()
    }
    return {name: sorted(map(repr, table.to_pylist())) for name, table in rows.items()}


STEPS = [
    *[(SparkCatalog, name) for name in ("drop", "copy_folder")],
    *[(renaming, "copy_partition"), (parts, "_remove_source"), (SparkLake, "replace_records")],
    *[(module, name) for module in (removal, renaming) for name in ("forget_names", "record_change")],
    *[(removal, "forget_shown"), (renaming, "names_follow"), (renaming, "_put")],
]
"""What drops and renames are made of."""


def killed_after(steps: int, act: Callable[[], Any], *, after: bool) -> bool:
    """Do `act`, killed once so many steps were begun, before or after that one's own work; whether it was."""
    begun = 0

    def counting(original: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **options: Any) -> Any:
            nonlocal begun
            begun += 1
            if begun > steps and not after:
                raise KilledError
            done = original(*args, **options)
            if begun > steps:
                raise KilledError
            return done

        return called

    with pytest.MonkeyPatch.context() as patch:
        for owner, name in STEPS:
            patch.setattr(owner, name, counting(getattr(owner, name)))
        try:
            act()
        except KilledError:
            return True
    return False


@pytest.mark.long
def test_a_source_is_renamed_another_dropped_and_the_first_reset(home: Settings, lake: SparkSession) -> None:
    before, others = answers(lake, "meters"), stored(lake, "others")
    make_pin(SparkLake(lake), [find_source(home.sources, "meters")], "kept")
    pinned = [row.asDict() for row in lake.table("pins.kept__meters_state").orderBy("meter").collect()]
    told = why(SparkLake(lake), find_source(home.sources, "meters"), "meters", ["x"]).deltas
    for new, refusal in (("others", NameTaken), ("Zähler", SourceFileError), ("../a'; DROP", SourceFileError)):
        with pytest.raises(refusal):
            find_rename(home, lake, "meters", new)
    report = find_rename(home, lake, "meters", "gauges")
    assert (report.tables["bronze.files"], report.pins) == (2, ["kept"])
    token = newest_token(SparkLake(lake).folder, "meters")

    assert killed_after(9, lambda: rename_source(home, lake, "meters", "gauges"), after=False)
    with pytest.raises(SourceChangeUnfinished, match="source rename meters gauges"):
        run(lake, home, 1, 1)
    with pytest.raises(SourceChangeUnfinished):
        remove_source(home, lake, "meters", "drop")
    assert any("interrupted" in finding.found for finding in examine_lake(home))
    rename_source(home, lake, "meters", "gauges")
    assert answers(lake, "gauges") == before
    assert stored(lake, "others") == others
    assert sorted(path.name for path in home.sources.iterdir()) == ["gauges.yml", "others.yml"]
    gone = source_parts(home, SparkLake(lake), "meters")
    assert not (any(stored(lake, "meters").values()) or gone.tables or gone.histories or gone.shared)
    assert [pin.sources for pin in pins(SparkLake(lake))] == [["gauges"]]
    assert [row.asDict() for row in lake.table("pins.kept__gauges_state").orderBy("meter").collect()] == pinned
    gauges = find_source(home.sources, "gauges")
    assert why(SparkLake(lake), gauges, "gauges", ["x"]).deltas == told
    assert newest_token(SparkLake(lake).folder, "gauges") > token
    assert not [f for f in examine_lake(home) if f.verdict == "wrong"]

    shutil.rmtree(home.home / "leases")
    write_drops(home, [Reading(2, 2 * NIGHT + 5, "x", 7)])
    landed = run(lake, home, 2, 2, source="gauges")[0]
    assert (landed["rows"], landed["rows_back"]) == (1, 0), "nothing of before lands again, whatever became of leases"
    assert not audit(home, gauges, lake).failed
    kept = published(lake, "bronze.gauges_deltas")
    tables = stored(lake, "gauges")

    (home.sources / "others.yml").unlink()
    assert any("tidemark source drop others" in finding.do for finding in examine_lake(home))
    assert find_removal(home, lake, "others", "drop").tables["silver.hourly_o_history"] > 0
    back_up(home, str(home.home / "sets"))
    assert killed_after(5, lambda: remove_source(home, lake, "others", "drop"), after=True)
    remove_source(home, lake, "others", "drop")
    assert stored(lake, "gauges") == tables
    assert published(lake, "bronze.gauges_deltas") == kept
    assert not any(stored(lake, "others").values())
    assert not [name for name in SparkLake(lake).catalog.names("silver") if "_o" in name.replace("_of", "")]
    back_up(home, str(home.home / "sets"))
    with pytest.raises(SourceUnknown):
        remove_source(home, lake, "others", "drop")

    token = newest_token(SparkLake(lake).folder, "gauges")
    text = (home.sources / "gauges.yml").read_text().replace("start: 2024-01-01", "start: 2023-12-31")
    (home.sources / "gauges.yml").write_text(text)
    with pytest.raises(DefinitionChanged, match="source reset gauges"):
        run(lake, home, 0, 0, source="gauges")
    remove_source(home, lake, "gauges", "reset")
    assert not any(stored(lake, "gauges").values())
    run(lake, home, 0, 2, source="gauges")
    assert newest_token(SparkLake(lake).folder, "gauges") > token
    assert [row.rows for row in lake.table("bronze.files").orderBy("path").collect()] == [9, 5, 1]
    assert lake.table("gold.gauges").orderBy("meter").collect()[0].readings == 7


@pytest.mark.long
@pytest.mark.parametrize("kind", ["rename", "drop"])
def test_an_interruption_anywhere_is_gone_on_with(home: Settings, lake: SparkSession, kind: str) -> None:
    before, tables = answers(lake, "meters"), stored(lake, "others")
    hourly = published(lake, "silver.hourly")

    def act() -> None:
        if kind == "rename":
            rename_source(home, lake, "meters", "gauges")
        else:
            remove_source(home, lake, "meters", "drop")

    kills = 0
    for after, first in ((False, 0), (True, 2)):
        steps = first
        while killed_after(steps, act, after=after):
            kills += 1
            # a drop is made of fewer steps than a rename
            steps += 4 if kind == "rename" else 2
            assert stored(lake, "others") == tables
            if kind == "rename":
                # whoever reads a window by its name sees it whole, wherever the rename is
                assert published(lake, "silver.hourly") == hourly
        if kind == "drop":
            break
        assert answers(lake, "gauges") == before
        if not after:
            rename_source(home, lake, "gauges", "meters")
            assert answers(lake, "meters") == before
    assert kills > 4
    if kind == "rename":
        text = (home.sources / "gauges.yml").read_text().replace("source: gauges", "source: meters")
        (home.sources / "gauges.yml").unlink()
        (home.sources / "meters.yml").write_text(text)
        with pytest.raises(TableDiffers, match="source rename gauges meters"):
            run(lake, home, 1, 1)
        rename_source(home, lake, "gauges", "meters")
        assert answers(lake, "meters") == before
    if kind == "drop":
        assert not any(stored(lake, "meters").values())
        (home.sources / "meters.yml").write_text(SOURCE)
        run(lake, home, 0, 1)
        assert published(lake, "silver.hourly") == published(lake, "silver.hourly_o")


def test_a_source_goes_on_under_another_name_and_is_dropped(
    lake: SparkSession, spark_settings: Settings, tmp_path: Path
) -> None:
    """In short what the long tests look at."""
    spark, home = lake, spark_settings.model_copy(update={"home": tmp_path, "landing": tmp_path / "landing"})
    home = write_source(home, SOURCE[: SOURCE.index("windows:")] + SOURCE[SOURCE.index("state:") :])
    write_drops(home, READINGS[:5])
    run(spark, home, 0, 0)
    before, rows = published(spark, "gold.meters"), stored(spark, "meters")
    for name in ("../trace.db/meters", "meters'; DROP", "", "Zähler"):
        with pytest.raises(SourceUnknown):
            find_removal(home, spark, name, "drop")
    assert killed_after(8, lambda: rename_source(home, spark, "meters", "gauges"), after=False)
    with pytest.raises(SourceChangeUnfinished, match="source rename meters gauges"):
        remove_source(home, spark, "meters", "drop")
    rename_source(home, spark, "meters", "gauges")
    # one that was killed as it ended has told nobody, so the same command comes again
    assert Path(rename_source(home, spark, "meters", "gauges").file) == home.sources / "gauges.yml"
    with pytest.raises(SourceUnknown):
        rename_source(home, spark, "meters", "dials")
    assert published(spark, "gold.gauges") == before
    renamed = stored(spark, "gauges")
    assert {name: len(each) for name, each in renamed.items()} == {name: len(each) for name, each in rows.items()}
    assert not any(stored(spark, "meters").values())
    assert killed_after(4, lambda: remove_source(home, spark, "gauges", "drop"), after=True)
    remove_source(home, spark, "gauges", "drop")
    assert not any(stored(spark, "gauges").values())
    assert not list(home.sources.iterdir())


def test_files_that_lie_elsewhere_keep_their_rows(lake: SparkSession, spark_settings: Settings, tmp_path: Path) -> None:
    spark, plain = lake, SOURCE.replace("delta_id: id\n", "")
    home = spark_settings.model_copy(update={"home": tmp_path, "landing": tmp_path / "landing"})
    home = write_source(home, plain)
    lines = [reading.line() for reading in READINGS[:9]]
    write_lines(home, 0, [*lines, "nonsense"])
    write_lines(home, 0, [Reading(0, 900, "back", 1).line()], "back")
    run(spark, home, 0, 0)
    run(spark, home, 0, 0, retract=True, only_file=path_of(0, "back"))
    before = {name: published(spark, name) for name in ("silver.hourly", "gold.meters", "bronze.meters_deltas")}

    (home.landing_folder / "meters").rename(home.landing_folder / "Zähler 'neu' <b>")
    write_source(home, plain.replace('"meters/{date}', "\"Zähler 'neu' <b>/{date}"))
    source = load_source(home.sources / "meters.yml")
    planned = plan_run(home, source, source.drops.interval(0), spark, sample=0)
    assert planned.changes_nothing
    assert planned.drops[0].rows == 0
    assert spark.table("bronze.files").where("path LIKE 'meters/%'").count() == 3, "a plan writes nothing"
    landed = run(spark, home, 0, 0)[0]
    place = path_of(0).replace("meters/", "Zähler 'neu' <b>/")
    assert [now for _, now in landed["moved_files"]] == [place, place.replace("a.ndjson", "back")]
    assert (landed["rows"], landed["rows_back"], landed["duplicates"], landed["files"]) == (0, 0, 0, 0)
    assert {name: published(spark, name) for name in before} == before
    assert {delta["file"] for delta in why(SparkLake(spark), source, "meters", ["x"]).deltas} == {place}
    assert [row.file for row in spark.table("bronze.quarantine").collect()] == [place]
    assert run(spark, home, 0, 0)[0]["moved_files"] == []

    folder = (home.landing_folder / place).parent
    (folder / "a.ndjson").unlink()
    (folder / "b").write_text("\n".join(lines[:4]))
    with pytest.raises(FilesCutAnew, match="tidemark retract meters --drop 2024-01-01"):
        run(spark, home, 0, 0)
    (folder / "b").write_text(Reading(0, 700, "x", 3).line())
    assert run(spark, home, 0, 0)[0]["rows"] == 1, "a late file is none that was cut anew"
    (folder / "c").write_text("\n".join([*lines, Reading(0, 701, "x", 3).line()]))
    with pytest.raises(FilesCutAnew):
        plan_run(home, source, source.drops.interval(0), spark, sample=0)
    run(spark, home, 0, 0, retract=True, only_file=place)
    assert run(spark, home, 0, 0)[0]["rows"] == 10
    assert spark.table("bronze.meters_deltas").count() == 11
    assert not audit(home, source, spark).failed
