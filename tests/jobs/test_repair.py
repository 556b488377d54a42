"""What follows from the lake and is gone is made anew from it; what does not is never made up."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from spark_jobs.audit.examination import examine_names
from spark_jobs.audit.repair import repair
from spark_jobs.config import Settings
from spark_jobs.jobs.in_force import PublicationLost, TablesChanged
from spark_jobs.jobs.visits import merge, sweep
from spark_jobs.sources import load_source
from spark_jobs.storage.coordination.publication import load
from spark_jobs.storage.delta.fingerprints import NOTED
from spark_jobs.storage.lakes.stored_lake import StoredLake
from spark_jobs.upkeep.maintenance import maintain_source
from tests.jobs.harness import Reading, published, run, write_drops, write_source

pytestmark = [pytest.mark.spark, pytest.mark.turns]


def shown(lake: SparkSession) -> list[list[tuple[Any, ...]]]:
    return [published(lake, name) for name in ("silver.hourly", "silver.shifts", "gold.state", "bronze.meters_deltas")]


def test_what_follows_from_the_lake_is_made_anew(lake: SparkSession, spark_settings: Settings, tmp_path: Path) -> None:
    settings = write_source(spark_settings.model_copy(update={"home": tmp_path, "landing": tmp_path / "landing"}))
    write_drops(settings, [Reading(0, 10, "a", 1), Reading(1, 1500, "a", 2), Reading(1, 1600, "b", 3)])
    run(lake, settings, 0, 0)
    run(lake, settings, 1, 1)
    before, folder = shown(lake), Path(spark_settings.lake)
    source = load_source(settings.sources / "meters.yml")
    assert repair(settings, lake) == []
    assert list(examine_names(settings, lake)) == []

    # views
    lake.sql("DROP VIEW silver.hourly")
    lake.sql("DROP VIEW bronze.meters_deltas")
    (missing,) = examine_names(settings, lake)
    assert (missing.what, missing.verdict) == ("meters: names", "wrong")
    assert "silver.hourly" in missing.found
    assert "bronze.meters_deltas" in missing.found
    assert "silver.shifts" not in missing.found
    assert missing.do == "`tidemark doctor --repair`"

    # two rows say what is published, one of an earlier run
    pointer = DeltaTable(folder / "trace.db" / "published")
    older = pointer.to_pyarrow_table().to_pylist()[0]
    again = pa.Table.from_pylist([{**older, "token": older["token"] - 1}], pa.schema(pointer.schema().to_arrow()))
    write_deltalake(pointer, again, mode="append")
    # a batch and rows that nothing names
    updates = folder / "trace.db" / "meters_updates"
    rows = DeltaTable(updates).to_pyarrow_table().slice(0, 1)
    at = rows.schema.get_field_index("batch")
    orphan = rows.set_column(at, "batch", pa.array(["9-nobody"]))
    write_deltalake(updates, orphan, mode="append", commit_properties=CommitProperties(NOTED))
    # a table that the catalog has lost, the lease, a cut note
    state = folder / "gold.db" / "state_history"
    shutil.copytree(state, tmp_path / "state")
    lake.sql("DROP TABLE gold.state_history")
    shutil.rmtree(state, ignore_errors=True)
    shutil.copytree(tmp_path / "state", state)
    (settings.home / "leases" / "meters.lease").unlink()
    note = settings.home / "views" / "meters.definition"
    note.write_text(note.read_text()[:40])

    done = repair(settings, lake)
    assert {finding.verdict for finding in done} == {"ok"}
    told = " ".join(finding.found for finding in done)
    for what in (
        "gold.state_history",
        "meters.lease was lost",
        "named a publication twice",
        "silver.hourly",
        "1 batches",
    ):
        assert what in told, what
    assert json.loads(note.read_text())
    assert load(StoredLake(folder), source).token == older["token"]
    assert shown(lake) == before
    assert repair(settings, lake) == []
    assert list(examine_names(settings, lake)) == []

    # and runs go on
    write_drops(settings, [Reading(2, 3000, "a", 5)])
    assert run(lake, settings, 2, 2)[-1]["moved"]
    assert [row for row in before[-1] if row not in shown(lake)[-1]] == []
    assert len(shown(lake)[-1]) == 4


def test_nothing_is_removed_while_a_publication_is_lost(
    lake: SparkSession, spark_settings: Settings, tmp_path: Path
) -> None:
    settings = write_source(spark_settings.model_copy(update={"home": tmp_path, "landing": tmp_path / "landing"}))
    write_drops(settings, [Reading(day, 1440 * day + 10, "a", day) for day in range(4)])
    source = load_source(settings.sources / "meters.yml")
    run(lake, settings, 0, 0)
    pointer = DeltaTable(Path(spark_settings.lake) / "trace.db" / "published")
    first = pointer.version()
    run(lake, settings, 1, 1)
    run(lake, settings, 2, 2)
    pointer.update_incremental()
    last = pointer.version()
    before, rows = shown(lake), lake.table("silver.hourly_history").count()

    def gone() -> None:
        pointer.delete()

    def set_back() -> None:
        pointer.restore(first)

    for damage in (gone, set_back):
        damage()
        (finding,) = repair(settings, lake)
        assert finding.verdict == "wrong"
        assert "row of " in finding.found
        assert ".restore(VERSION)" in finding.do
        for refused in (
            lambda: sweep(settings, source, lake),
            lambda: merge(settings, source, lake),
            lambda: run(lake, settings, 3, 3),
        ):
            with pytest.raises(PublicationLost):
                refused()
        steps = {step.step: step for step in maintain_source(settings, source, lake)}
        assert {name for name, step in steps.items() if step.failed} == {"chunks", "trace", "fold", "vacuum", "audit"}
        assert lake.table("silver.hourly_history").count() == rows
        # as the refusal says
        pointer.restore(last)
        assert shown(lake) == before
        assert repair(settings, lake) == []
    run(lake, settings, 3, 3)
    assert repair(settings, lake) == []


def test_what_cannot_be_derived_is_not_made_up(lake: SparkSession, spark_settings: Settings, tmp_path: Path) -> None:
    settings = write_source(spark_settings.model_copy(update={"home": tmp_path, "landing": tmp_path / "landing"}))
    write_drops(settings, [Reading(0, 10, "a", 1)])
    run(lake, settings, 0, 0)
    log = Path(spark_settings.lake) / "trace.db" / "frontiers" / "_delta_log"
    shutil.move(log, tmp_path / "log")
    (finding,) = repair(settings, lake)
    assert (finding.verdict, "trace.frontiers" in finding.found) == ("wrong", True)
    shutil.move(tmp_path / "log", log)


def test_windows_that_lost_their_newest_commit_are_refused_and_worked_out_anew(
    lake: SparkSession, spark_settings: Settings, tmp_path: Path
) -> None:
    settings = write_source(spark_settings.model_copy(update={"home": tmp_path, "landing": tmp_path / "landing"}))
    write_drops(settings, [Reading(day, 1440 * day + 10, "a", day) for day in range(3)])
    for day in (0, 1):
        run(lake, settings, day, day)
    before = shown(lake)
    log = Path(spark_settings.lake) / "silver.db" / "hourly_history" / "_delta_log"
    newest = max(path for path in log.glob("*.json") if path.stem.isdigit())
    for lost in (newest, newest.with_suffix(".crc"), newest.with_name(f".{newest.name}.crc")):
        lost.unlink(missing_ok=True)
    with pytest.raises(TablesChanged, match=r"silver.hourly_history: it ends at version"):
        run(lake, settings, 2, 2, stages=("land",))
    (mended, *_) = repair(settings, lake)
    assert mended.verdict == "ok", mended
    assert "worked out anew from the trace" in mended.found
    assert shown(lake) == before
    assert run(lake, settings, 2, 2)[-1]["moved"]
    assert repair(settings, lake) == []
