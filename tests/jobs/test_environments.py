"""Environments with tables: what a changed source file would show, compared with production, promoted or dropped."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_jobs.audit.audit import audit
from spark_jobs.config import Settings
from spark_jobs.jobs.base import StalePlan
from spark_jobs.jobs.pipeline import RunReport
from spark_jobs.jobs.request import Request
from spark_jobs.jobs.stage import run_stage
from spark_jobs.lifecycle.environments import (
    Build,
    NothingPublished,
    build,
    differences,
    drop_tables,
    find_build,
    require_build,
)
from spark_jobs.lifecycle.promotion import _Swap, promote
from spark_jobs.model import STAGES
from spark_jobs.sources import Environment, create_environment, find_source
from spark_jobs.storage.delta.places import lake_root
from spark_jobs.storage.descriptions.chain_tables import CHAINS
from spark_jobs.storage.descriptions.tables import STATE
from spark_jobs.storage.lakes.spark_lake import SparkLake
from tests.jobs.harness import SOURCE, run, write_drops, write_source
from tests.jobs.test_definitions import READINGS
from tests.jobs.test_plan import listing

pytestmark = [pytest.mark.spark, pytest.mark.turns]

CHANGED = (
    SOURCE.replace("mean: avg(heat)}", "mean: avg(heat), low: min(load)}")
    .replace("limit: 12 hours", "limit: 3 days")
    .replace("state:", "  quarters: {kind: tumbling, size: 6 h, key: meter, aggregates: {n: count()}}\nstate:")
)
OTHER_STATE = CHANGED.replace("{readings: 1, load: load}", "{readings: 2, load: load}")
WITH_CHAINS = SOURCE + "compaction: {strategy: tiered, keep_recent: 1, delta_threshold: 3}\n"
SHOWN = ("silver.hourly", "silver.shifts", "silver.quarters", "gold.meters")


@pytest.fixture
def home(spark_settings: Settings, tmp_path: Path) -> Settings:
    settings = write_source(spark_settings.model_copy(update={"home": tmp_path, "landing": tmp_path / "landing"}))
    write_drops(settings, READINGS)
    return settings


def environment_with(home: Settings, text: str, name: str = "dev") -> Environment:
    """An environment with another file of the source."""
    environment = create_environment(home.home, name, home.sources)
    (environment.folder / "meters.yml").write_text(text)
    return environment


def built(lake: SparkSession, home: Settings, environment: Environment) -> Build:
    return build(home, environment, find_source(environment.folder, "meters"), lake)


def rows(lake: SparkSession, table: str) -> list[str]:
    return sorted(map(repr, lake.table(table).collect()))


def shown(lake: SparkSession, prefix: str = "") -> dict[str, list[str]]:
    return {table: rows(lake, f"{prefix}{table}") for table in SHOWN}


def runs(lake: SparkSession, home: Settings) -> Callable[..., RunReport]:
    """A run of the source in this session, as a promotion asks for it."""

    def of(lo: datetime, hi: datetime, *, request: Request, on_stage: Callable[[str], None]) -> RunReport:
        report = RunReport("meters", "promote-test")
        for stage in STAGES:
            on_stage(stage)
            given: dict[str, Any] = {"source": "meters", "lo": lo, "hi": hi, "run_id": report.run_id}
            report.stages.append(run_stage(stage, **given, settings=home, spark=lake, request=request))
        return report

    return of


def promoted(lake: SparkSession, home: Settings, environment: Environment, **options: Any) -> RunReport:
    return promote(home, environment, "meters", runs(lake, home), **options)


@pytest.mark.parametrize("way", [pytest.param("accepted", marks=pytest.mark.long), "promoted"])
@pytest.mark.parametrize("text", [CHANGED, pytest.param(OTHER_STATE, marks=pytest.mark.long)])
def test_an_environment_shows_what_production_does_once_it_has_the_file(
    lake: SparkSession, home: Settings, way: str, text: str
) -> None:
    run(lake, home, 0, 1)
    before, files = (rows(lake, "silver.hourly"), rows(lake, "gold.meters")), listing(home.sources, home.landing_folder)
    environment = environment_with(home, text)
    done = built(lake, home, environment)
    assert (rows(lake, "silver.hourly"), rows(lake, "gold.meters")) == before
    assert listing(home.sources, home.landing_folder) == files
    gold = "view" if text == CHANGED else "table"
    assert done.tables == {
        "dev__silver.hourly": "table",
        "dev__silver.shifts": "view",
        "dev__silver.quarters": "table",
        "dev__gold.meters": gold,
    }
    assert Build.from_json(done.to_json()) == done
    in_environment = shown(lake, "dev__")
    for table in done.tables:
        assert all(column.description for column in lake.catalog.listColumns(table)), table
    if way == "accepted":
        write_source(home, text)
        run(lake, home, 0, 1, accept_definition=True)
    else:
        report = promoted(lake, home, environment)
        assert report.stages[STAGES.index("window")]["promoted"]
        assert (home.sources / "meters.yml").read_text() == text
        assert not list(environment.folder.glob("*.before"))
    assert shown(lake) == in_environment
    assert audit(home, find_source(home.sources, "meters"), lake).failed == []
    assert [summary["commits"] for summary in run(lake, home, 0, 1)] == [0] * len(STAGES)


def test_differences_are_those_from_production_as_it_is(lake: SparkSession, home: Settings) -> None:
    run(lake, home, 0, 1)
    environment = environment_with(home, CHANGED)
    done = built(lake, home, environment)
    source = find_source(environment.folder, "meters")
    compared = {d.table: (d.counts, lacking) for d, lacking in differences(SparkLake(lake), done, source, 0)}
    # minute 100 counts, which was late: with it alone, and with minutes 65 and 10
    assert compared["dev__silver.hourly"][1] == ["low"]
    assert compared["dev__silver.hourly"][0]["inserted"] > 0
    assert compared["dev__silver.quarters"] == ({"inserted": 3, "changed": 0, "removed": 0}, [])
    assert (
        compared["dev__silver.shifts"]
        == compared["dev__gold.meters"]
        == (dict.fromkeys(compared["dev__gold.meters"][0], 0), [])
    )
    production, here = (
        {(r.meter, r.window_start): (r.n, r.total) for r in lake.table(f"{prefix}silver.hourly").collect()}
        for prefix in ("", "dev__")
    )
    counts = {
        "inserted": len(here.keys() - production.keys()),
        "changed": sum(here[key] != production[key] for key in here.keys() & production.keys()),
        "removed": len(production.keys() - here.keys()),
    }
    assert compared["dev__silver.hourly"][0] == counts
    write_source(home, CHANGED)
    run(lake, home, 0, 1, accept_definition=True)
    now = list(differences(SparkLake(lake), done, source, 0))
    assert not any(d.rows for d, _ in now)
    assert not any(lacking for _, lacking in now)


def test_a_build_that_production_left_behind_is_not_promoted(lake: SparkSession, home: Settings) -> None:
    run(lake, home, 0, 0)
    environment = environment_with(home, CHANGED)
    source = find_source(environment.folder, "meters")
    first = built(lake, home, environment)
    assert first.is_current(SparkLake(lake), source)
    run(lake, home, 1, 1)
    assert not first.is_current(SparkLake(lake), source)
    before = shown_of(lake)
    with pytest.raises(StalePlan, match="env build dev meters"):
        promoted(lake, home, environment)
    assert (home.sources / "meters.yml").read_text() == SOURCE
    assert shown_of(lake) == before
    again = built(lake, home, environment)
    root = Path(lake_root(lake))
    kept = [one.kept for one in (first, again)]
    assert [each is not None and (root / each.folder).is_dir() for each in kept] == [False, True]
    (environment.folder / "meters.yml").write_text(OTHER_STATE)
    with pytest.raises(StalePlan, match="another source file"):
        promoted(lake, home, environment)
    (environment.folder / "meters.yml").write_text(CHANGED)
    promoted(lake, home, environment)
    assert shown(lake) == shown(lake, "dev__")


def shown_of(lake: SparkSession) -> list[list[str]]:
    return [rows(lake, table) for table in ("silver.hourly", "silver.shifts", "gold.meters")]


class _Killed(BaseException):
    pass


@pytest.mark.parametrize("stage", [*(pytest.param(s, marks=pytest.mark.long) for s in ("land", "compact")), "publish"])
def test_an_interrupted_promotion_leaves_production_as_it_was(lake: SparkSession, home: Settings, stage: str) -> None:
    run(lake, home, 0, 1)
    environment = environment_with(home, CHANGED)
    built(lake, home, environment)
    before = shown_of(lake)

    def dies(name: str) -> None:
        if name == stage:
            raise _Killed

    with pytest.raises(_Killed):
        promoted(lake, home, environment, on_stage=dies)
    assert shown_of(lake) == before
    assert (home.sources / "meters.yml").read_text() == SOURCE
    promoted(lake, home, environment)
    assert shown(lake) == shown(lake, "dev__")
    assert audit(home, find_source(home.sources, "meters"), lake).failed == []


def test_a_promotion_that_fails_after_its_publication_keeps_the_file_and_goes_on(
    lake: SparkSession, home: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(lake, home, 0, 1)
    environment = environment_with(home, CHANGED)
    built(lake, home, environment)

    def full_disk(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("spark_jobs.jobs.publish.let_names_follow", full_disk)
        with pytest.raises(OSError, match="No space left"):
            promoted(lake, home, environment)
        assert (home.sources / "meters.yml").read_text() == CHANGED
        # again, before anything is published: the file still follows what is
        with pytest.raises(OSError, match="No space left"):
            promoted(lake, home, environment, on_stage=full_disk)
        assert (home.sources / "meters.yml").read_text() == CHANGED
    promoted(lake, home, environment)
    assert not list(environment.folder.glob("*.before"))
    assert shown(lake) == shown(lake, "dev__")
    assert audit(home, find_source(home.sources, "meters"), lake).failed == []


def test_a_killed_promotion_goes_on_and_never_loses_productions_file(
    lake: SparkSession, home: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(lake, home, 0, 1)
    environment = environment_with(home, CHANGED)
    built(lake, home, environment)
    file = home.sources / "meters.yml"

    def dies(name: str) -> None:
        if name == "window":
            raise _Killed

    with monkeypatch.context() as patch:
        patch.setattr(_Swap, "undo", lambda _: None)
        with pytest.raises(_Killed):
            promoted(lake, home, environment, on_stage=dies)
    assert file.read_text() == CHANGED
    # the next attempt fails by itself, and puts back what stood before the first one
    with pytest.raises(_Killed):
        promoted(lake, home, environment, on_stage=dies)
    assert file.read_text() == SOURCE

    with monkeypatch.context() as patch:
        for name in ("end", "undo"):
            patch.setattr(_Swap, name, dies_at_once)
        with pytest.raises(_Killed):
            promoted(lake, home, environment)
    assert shown(lake) == shown(lake, "dev__")
    # it was published, and nobody was told
    promoted(lake, home, environment)
    assert file.read_text() == CHANGED
    assert not list(environment.folder.glob("*.before"))
    assert shown(lake) == shown(lake, "dev__")
    assert audit(home, find_source(home.sources, "meters"), lake).failed == []


def dies_at_once(_: object) -> None:
    raise _Killed


@pytest.mark.long
def test_files_that_are_read_otherwise_are_read_again_by_the_promotion(lake: SparkSession, home: Settings) -> None:
    run(lake, home, 0, 1)
    environment = environment_with(home, SOURCE.replace("delta_id: id\n", ""))
    done = built(lake, home, environment)
    assert done.kept is None
    in_environment = {table: rows(lake, table) for table in done.tables}
    promoted(lake, home, environment)
    assert {table: rows(lake, table.removeprefix("dev__")) for table in done.tables} == in_environment
    assert audit(home, find_source(home.sources, "meters"), lake).failed == []


@pytest.mark.long
def test_states_by_chains_are_promoted(lake: SparkSession, home: Settings) -> None:
    run(lake, home, 0, 1)
    environment = environment_with(home, WITH_CHAINS)
    done = built(lake, home, environment)
    assert done.kept is not None
    assert {STATE.qualified, CHAINS.qualified} <= {*done.kept.files}
    in_environment = rows(lake, "dev__gold.meters")
    promoted(lake, home, environment)
    assert rows(lake, "gold.meters") == in_environment
    assert audit(home, find_source(home.sources, "meters"), lake).failed == []


def test_dropped_it_leaves_nothing(lake: SparkSession, home: Settings) -> None:
    run(lake, home, 0, 0)
    root = Path(lake_root(lake))
    before = listing(root)
    environment, other = environment_with(home, CHANGED), environment_with(home, CHANGED, "other")
    built(lake, home, environment)
    built(lake, home, other)
    # built again with production's file every table is a view
    (environment.folder / "meters.yml").write_text(SOURCE)
    assert {*built(lake, home, environment).tables.values()} == {"view"}
    assert rows(lake, "dev__silver.hourly") == rows(lake, "silver.hourly")
    assert "quarters" not in {r.tableName for r in lake.sql("SHOW TABLES IN dev__silver").collect()}
    for one in (environment, other):
        assert drop_tables(SparkLake(lake), one) == ["meters"]
        assert find_build(one, "meters") is None
    assert listing(root) == before
    assert not [r.namespace for r in lake.sql("SHOW DATABASES").collect() if "__" in r.namespace]
    with pytest.raises(Exception, match="env build dev meters"):
        require_build(environment, "meters")


def test_a_source_without_drops_is_not_built(lake: SparkSession, home: Settings) -> None:
    with pytest.raises(NothingPublished, match="plan meters"):
        built(lake, home, environment_with(home, CHANGED))
