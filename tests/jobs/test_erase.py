"""An entity is erased: no file has it, windows and states are as if it had never landed, now and as of every time, and
rows of it that land again are not kept."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyspark.sql import SparkSession

from spark_jobs.audit.audit import audit
from spark_jobs.config import Settings
from spark_jobs.erasure import erase as erasing
from spark_jobs.erasure.erase import EntityUnknown, Erased, erase, find
from spark_jobs.jobs.published import SourceUnpublished
from spark_jobs.jobs.stage import run_stage
from spark_jobs.landing.choices import Choice, of_entity
from spark_jobs.landing.erasures import ErasureUnfinished, erased_values, erasures
from spark_jobs.lifecycle.environments import build
from spark_jobs.publish.marts import MartsFailed
from spark_jobs.sources import Source, create_environment, find_source
from spark_jobs.storage.delta.places import lake_root
from spark_jobs.storage.lakes.spark_lake import SparkLake
from spark_jobs.upkeep.pins import make_pin
from tests.jobs.harness import DAY, MINUTE, START, published, run
from tests.support.erasures import LEFT_OUT, assert_nothing_left, at_times, erase_until, land, rows_in_files

pytestmark = [pytest.mark.spark, pytest.mark.turns]

GONE = "N380HA"
SOURCE = """
source: {name}
start: 2024-01-01
every: 1 day
landing: {{path: "{name}/{{date}}/*", format: ndjson}}
columns: {{id: string, plane: string, site: string, at: timestamp, load: int}}
timelines: {{taken: at}}
event_time: taken
entity: plane
delta_id: id
windows:
  by_site{mark}:
    kind: sliding
    size: 60 min
    key: site
    time: taken
    aggregates: {{n: count(), total: sum(load), high: max(load)}}
    late: reemit
  busy{mark}:
    kind: session
    gap: 90 min
    key: site
    time: taken
    aggregates: {{n: count(), total: sum(load)}}
    late: reemit
  trips{mark}:
    kind: session
    gap: 90 min
    key: plane
    time: taken
    aggregates: {{n: count(), total: sum(load)}}
    late: reemit
state: {{mode: add, datatype: int64, components: {{readings: 1, load: load}}}}
"""
NAMES = {"planes": "", "others": "_o"}
WINDOWS = ("by_site", "busy", "trips")


def line(minute: int, plane: str, site: str, load: int, *, identity: str | None = None) -> str:
    at = (START + minute * MINUTE).strftime("%Y-%m-%dT%H:%M:%SZ")
    name = identity or f"{plane}-{minute}-{load}"
    return json.dumps({"id": name, "plane": plane, "site": site, "at": at, "load": load})


NIGHT = 24 * 60
DROPS = {
    0: [
        *[line(60 + 7 * i, plane, "JFK", i) for i, plane in enumerate(["N1", GONE, "N2", "N3", GONE, "N1"])],
        line(400, GONE, "EWR", 9),
        line(560, GONE, "JFK", 4),
        line(600, "N4", "JFK", 1),
        f'{{"id": "x", "plane": "{GONE}", "site": 3, "at": "never"}}',
    ],
    1: [
        *[line(NIGHT + 60 + 9 * i, plane, "JFK", i) for i, plane in enumerate(["N2", "N1", GONE, "N4"])],
        line(70, GONE, "JFK", 5),  # late
        line(480, "N3", "JFK", 2),  # late: with that of minute 560 and 400 it is one session less
        line(60, "N1", "JFK", 0),  # again
        line(67, GONE, "JFK", 1),  # again
        "nonsense",
    ],
    2: [line(2 * NIGHT + 5, "N2", "EWR", 1), line(500, "N1", "JFK", 3), line(NIGHT + 80, GONE, "EWR", 8)],
}


def without(lines: list[str]) -> list[str]:
    return [text for text in lines if GONE not in text]


@pytest.fixture
def home(spark_settings: Settings, tmp_path: Path) -> Settings:
    """Two sources: one with rows of the entity, the other with the same files without them."""
    settings = spark_settings.model_copy(
        update={"home": tmp_path, "landing": tmp_path / "landing", "sources": tmp_path / "sources"}
    )
    settings.sources.mkdir()
    for name, mark in NAMES.items():
        (settings.sources / f"{name}.yml").write_text(SOURCE.format(name=name, mark=mark))
    return settings


def run_all(lake: SparkSession, home: Settings) -> None:
    for drop, lines in DROPS.items():
        land(home, "planes", drop, lines)
        land(home, "others", drop, without(lines))
        for source in NAMES:
            run(lake, home, drop, drop, source=source)


def planes(home: Settings) -> Source:
    return find_source(home.sources, "planes")


def gone(home: Settings) -> Choice:
    return of_entity(planes(home), GONE)


def assert_as_never_there(lake: SparkSession) -> None:
    for window in WINDOWS:
        assert at_times(lake, f"silver.{window}") == at_times(lake, f"silver.{window}_o"), window
    assert at_times(lake, "gold.planes") == at_times(lake, "gold.others")


def assert_no_version_has_it(lake: SparkSession, tables: dict[str, dict[str, int]]) -> None:
    """Whoever may read tables by version or time, as the pipeline may, reads none from before the erasure."""
    for table in tables:
        database, name = table.split(".")
        path = str(Path(lake_root(lake)) / f"{database}.db" / name)
        for version in range(DeltaTable(path).version()):
            try:
                rows = DeltaTable(path, version=version).to_pyarrow_table()
            except (DeltaError, OSError):
                continue  # the log has no such version any more, or its files are gone
            assert GONE not in repr(rows.to_pylist()), (table, version)
    of_most = max(tables, key=lambda table: tables[table]["went"])
    history = lake.sql(f"DESCRIBE HISTORY {of_most}").collect()
    for past in ("VERSION AS OF 0", f"TIMESTAMP AS OF '{history[-1].timestamp - MINUTE}'"):
        with pytest.raises(Exception, match=r"DELTA_VERSION_NOT_FOUND|DELTA_TIMESTAMP_EARLIER|cannot time travel"):
            lake.sql(f"SELECT * FROM {of_most} {past}").collect()


def test_it_is_as_if_it_had_never_been_there(lake: SparkSession, home: Settings) -> None:
    run_all(lake, home)
    make_pin(SparkLake(lake), [planes(home)], "before")
    environment = create_environment(home.home, "dev", home.sources, ["planes"])
    file = environment.folder / "planes.yml"
    file.write_text(file.read_text().replace("size: 60 min", "size: 30 min"))
    build(home, environment, find_source(environment.folder, "planes"), lake)
    preview = find(home, planes(home), lake, gone(home))
    assert (preview.rows, preview.records, len(preview.files)) == (8, 1, 3)
    before = rows_in_files(lake)
    report = erase(home, planes(home), lake, gone(home), "asked on 2024-01-05")
    assert (report.rows, report.records, report.left, report.since) == (8, 1, [], None)
    assert (report.environments, environment.builds()) == (["dev"], {})
    assert sorted(report.files) == sorted(preview.files)
    assert_as_never_there(lake)
    assert_nothing_left(lake, home, GONE)
    assert_no_version_has_it(lake, report.tables)
    assert rows_in_files(lake) == before
    assert audit(home, planes(home), lake).failed == []
    counted = lake.sql(
        "SELECT replay_state, sum(records) AS n FROM bronze.quarantine WHERE source = 'planes' GROUP BY 1"
    )
    assert {row.replay_state: row.n for row in counted.collect()} == {"erased": 9, "open": 1}
    pinned = {row.plane for row in lake.sql("SELECT plane FROM pins.before__trips").collect()}
    assert pinned == {"N1", "N2", "N3", "N4"}


@pytest.mark.long
def test_what_lands_of_it_again_is_not_kept(lake: SparkSession, home: Settings) -> None:
    run_all(lake, home)
    erase(home, planes(home), lake, gone(home), "asked")
    late = [line(300, GONE, "JFK", 7), line(310, "N9", "JFK", 7), f'{{"plane": "{GONE}", "at": 1']
    land(home, "planes", 3, late)
    land(home, "others", 3, without(late))
    again = [*DROPS[0], line(620, GONE, "JFK", 7), line(640, "N5", "JFK", 1)]
    land(home, "planes", 0, again)
    land(home, "others", 0, without(again))
    for source in NAMES:
        run(lake, home, 0, 3, source=source)
    assert_as_never_there(lake)
    assert_nothing_left(lake, home, GONE)
    assert audit(home, planes(home), lake).failed == []


STEPS = [
    "versions",
    *(pytest.param(step, marks=pytest.mark.long) for step in ("histories", "account", "rows", "search")),
]


@pytest.mark.parametrize("step", STEPS)
def test_interrupted_anywhere_it_goes_on(lake: SparkSession, home: Settings, step: str) -> None:
    run_all(lake, home)
    erase_until(step, lake, home, planes(home), gone(home))
    with pytest.raises(ErasureUnfinished, match="goes on"):
        run(lake, home, 2, 2, source="planes")
    # and once more in the same place
    erase_until(step, lake, home, planes(home), gone(home))
    report = erase(home, planes(home), lake, gone(home), "asked")
    assert report.left == []
    assert [one.step for one in erasures(SparkLake(lake), planes(home))] == ["finished"]
    assert_as_never_there(lake)
    assert audit(home, planes(home), lake).failed == []
    # its owner has rewritten the files, and nobody saw the command end
    for file in (path for path in home.landing_folder.rglob("*") if path.is_file()):
        file.write_text("".join(f"{line}\n" for line in file.read_text().splitlines() if GONE not in line))
    again = erase(home, planes(home), lake, gone(home), "asked")
    assert (again.rows, again.left) == (0, [])
    assert not any(count for counts in again.tables.values() for count in counts.values())
    assert_as_never_there(lake)


def test_a_row_that_stood_behind_it_counts_again(lake: SparkSession, home: Settings) -> None:
    land(home, "planes", 0, [line(60, GONE, "JFK", 1, identity="same"), line(61, "N1", "JFK", 2, identity="same")])
    land(home, "others", 0, [line(61, "N1", "JFK", 2, identity="same")])
    for source in NAMES:
        run(lake, home, 0, 0, source=source)
    report = erase(home, planes(home), lake, gone(home), "asked")
    assert [drop for drop, _ in report.again] == [0]
    run(lake, home, 0, 0, source="planes", replay=frozenset(file for _, file in report.again))
    assert published(lake, "silver.by_site", *LEFT_OUT) == published(lake, "silver.by_site_o", *LEFT_OUT)
    assert audit(home, planes(home), lake).failed == []


def test_windows_that_left_the_source_file_lose_it_too_and_marts_that_fail_hold_nothing_up(
    lake: SparkSession, home: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    for drop in (0, 1):
        land(home, "planes", drop, DROPS[drop])
        run(lake, home, drop, drop, source="planes")
    file = home.sources / "planes.yml"
    windows = yaml.safe_load(file.read_text())
    for name in ("busy", "trips"):
        del windows["windows"][name]
    file.write_text(yaml.safe_dump(windows, sort_keys=False))
    run(lake, home, 1, 1, source="planes", accept_definition=True)
    lake.sql("CREATE DATABASE IF NOT EXISTS of_ann")
    lake.sql(f"CREATE TABLE of_ann.notes USING delta AS SELECT '{GONE}' AS plane")

    def marts_follow(*_: Any) -> None:
        failed = {"no_plane_is_late": "1 row"}
        raise MartsFailed(
            expected="tests that pass", found="1 row", source="planes", failed=failed, owner="", log="log"
        )

    monkeypatch.setattr(erasing, "marts_follow", marts_follow)
    try:
        report = erase(home, planes(home), lake, gone(home), "asked")
    finally:
        lake.sql("DROP DATABASE of_ann CASCADE")
    marts, *of_ann = report.left
    assert "no_plane_is_late" in marts and "tidemark run planes" in marts
    # its file, and its log with the statistics of it
    assert len(of_ann) > 1
    assert all("of_ann.db/notes/" in each and "a table that somebody has made" in each for each in of_ann)
    assert report.tables["silver.busy_history"]["went"] > report.tables["silver.trips_history"]["went"] > 0
    silver = Path(lake_root(lake)) / "silver.db"
    assert not (silver / "busy_history").exists()
    left = DeltaTable(str(silver / "trips_history")).to_pyarrow_table(columns=["plane"])
    assert left.num_rows > 0
    assert_nothing_left(lake, home, GONE)


def test_refusals_say_what_is_wrong(lake: SparkSession, home: Settings) -> None:
    run_all(lake, home)
    actions: list[Callable[[], Erased]] = [
        lambda: erase(home, planes(home), lake, of_entity(planes(home), "N380"), "asked"),
        lambda: find(home, planes(home), lake, of_entity(planes(home), "")),
    ]
    for act in actions:
        with pytest.raises(EntityUnknown, match="letter by letter"):
            act()
    assert erased_values(SparkLake(lake), planes(home)) is None
    with pytest.raises(erasing.ParameterError, match="reason"):
        erase(home, planes(home), lake, gone(home), " ")
    land(home, "planes", 3, [line(3 * NIGHT, "N1", "JFK", 1)])
    lo = START + 3 * DAY
    run_stage("land", source="planes", lo=lo, hi=lo + DAY, run_id="landed", settings=home, spark=lake)
    with pytest.raises(SourceUnpublished):
        erase(home, planes(home), lake, gone(home), "asked")


@pytest.mark.parametrize("step", [None, "rows"])
@pytest.mark.long
def test_a_past_that_another_definition_told_is_not_told_any_more(
    lake: SparkSession, home: Settings, step: str | None
) -> None:
    for drop in (0, 1):
        land(home, "planes", drop, DROPS[drop])
        land(home, "others", drop, without(DROPS[drop]))
    for source, mark in NAMES.items():
        run(lake, home, 0, 0, source=source)
        (home.sources / f"{source}.yml").write_text(
            SOURCE.format(name=source, mark=mark).replace("high: max(load)", "high: min(load)")
        )
        run(lake, home, 0, 1, source=source, accept_definition=True)
    told = START + DAY - timedelta(microseconds=1)
    as_of = f"SELECT * FROM silver.by_site_as_of(timestamp'{told:%Y-%m-%dT%H:%M:%S.%fZ}')"
    assert lake.sql(as_of).collect()
    if step:
        erase_until(step, lake, home, planes(home), gone(home))
    report = erase(home, planes(home), lake, gone(home), "asked")
    assert (report.since is None) == (step is not None), "the attempt that moved it says so"
    for window in WINDOWS:
        left_out = (*LEFT_OUT, "token")
        assert published(lake, f"silver.{window}", *left_out) == published(lake, f"silver.{window}_o", *left_out)
    with pytest.raises(Exception, match="since"):
        lake.sql(as_of).collect()
    run(lake, home, 0, 1, source="planes")
    assert audit(home, planes(home), lake).failed == []
