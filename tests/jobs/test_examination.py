"""An examination of the lake's files names each damage, the table, and the way to mend; of a sound lake it says so."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from spark_jobs.audit.examination import examine_lake
from spark_jobs.config import Settings
from spark_jobs.model import Finding
from spark_jobs.sources import load_source
from spark_jobs.storage.coordination.publication import PublicationDoubled, load
from spark_jobs.storage.descriptions.tables import BELOW_HORIZON
from spark_jobs.storage.lakes.stored_lake import StoredLake
from tests.jobs.harness import Reading, run, write_drops, write_source
from tests.remains import leave_remains

pytestmark = pytest.mark.spark


SOUND = [Finding("tables", "ok", "every file there"), Finding("lake", "ok", "records, tables and trace agree")]
"""The findings about a lake without a fault."""


@pytest.fixture
def sound(lake: SparkSession, spark_settings: Settings, tmp_path: Path) -> Settings:
    """A copy of a lake in which two drops were run, with its home."""
    home = tmp_path / "home"
    settings = spark_settings.model_copy(update={"home": home, "landing": home / "landing"})
    settings = write_source(settings)
    write_drops(settings, [Reading(0, 10, "a", 1), Reading(1, 1500, "a", 2), Reading(1, 1600, "b", 3)])
    for day in (0, 1):
        run(lake, settings, day, day)
    copied = home / "lake"
    shutil.copytree(spark_settings.lake, copied)
    catalog = home / "metastore"
    catalog.mkdir()
    (catalog / "service.properties").touch()
    return settings.model_copy(update={"lake": str(copied)})


def without_log(settings: Settings) -> None:
    shutil.rmtree(Path(settings.lake) / "silver.db" / "hourly_history" / "_delta_log")


def without_table(settings: Settings) -> None:
    shutil.rmtree(Path(settings.lake) / "gold.db" / "state_history")


def without_chunks(settings: Settings) -> None:
    shutil.rmtree(Path(settings.lake) / "bronze.db" / "meters_chunks")


def with_an_emptied_folder(settings: Settings) -> None:
    without_table(settings)
    (Path(settings.lake) / "gold.db" / "state_history" / "_delta_log").mkdir(parents=True)


def published_twice(settings: Settings) -> None:
    published = DeltaTable(Path(settings.lake) / "trace.db" / "published")
    write_deltalake(published, published.to_pyarrow_table(), mode="append")


def without_its_publication(settings: Settings) -> None:
    DeltaTable(Path(settings.lake) / "trace.db" / "published").delete("source = 'meters'")


def with_an_earlier_publication(settings: Settings) -> None:
    published = DeltaTable(Path(settings.lake) / "trace.db" / "published")
    published.restore(0)


def newest_commit(settings: Settings, table: str) -> Path:
    log = Path(settings.lake) / table / "_delta_log"
    return max(path for path in log.glob("*.json") if path.stem.isdigit())


def without_newest_frontiers(settings: Settings) -> None:
    newest_commit(settings, "trace.db/frontiers").unlink()


def without_newest_frontiers_and_their_checksum(settings: Settings) -> None:
    lost = newest_commit(settings, "trace.db/frontiers")
    lost.with_suffix(".crc").unlink()
    lost.unlink()


def without_newest_landing(settings: Settings) -> None:
    newest_commit(settings, "bronze.db/files").unlink()


def without_newest_landing_and_its_checksum(settings: Settings) -> None:
    lost = newest_commit(settings, "bronze.db/files")
    lost.with_suffix(".crc").unlink()
    lost.unlink()


def without_updates(settings: Settings) -> None:
    table = DeltaTable(Path(settings.lake) / "trace.db" / "meters_updates")
    table.delete()


def with_cut_lease(settings: Settings) -> None:
    lease = settings.home / "leases" / "meters.lease"
    lease.write_text(lease.read_text()[:30])


def without_lease(settings: Settings) -> None:
    (settings.home / "leases" / "meters.lease").unlink()


def without_metastore(settings: Settings) -> None:
    shutil.rmtree(settings.home / "metastore")


def with_cut_metastore(settings: Settings) -> None:
    (settings.home / "metastore" / "service.properties").unlink()


def without_records(settings: Settings) -> None:
    shutil.rmtree(Path(settings.lake) / "trace.db" / "published")


def with_an_orphan(settings: Settings) -> None:
    updates = Path(settings.lake) / "trace.db" / "meters_updates"
    rows = DeltaTable(updates).to_pyarrow_table().slice(0, 1)
    at = rows.schema.get_field_index("batch")
    write_deltalake(updates, rows.set_column(at, "batch", pa.array(["9-nobody"])), mode="append")


def without_a_column(settings: Settings) -> None:
    table = DeltaTable(Path(settings.lake) / "trace.db" / "meters_updates")
    rows = table.to_pyarrow_table().drop_columns([BELOW_HORIZON.name])
    write_deltalake(table, rows, mode="overwrite", schema_mode="overwrite")


def without_results(settings: Settings) -> None:
    shutil.rmtree(Path(settings.lake) / "quality.db" / "results")


def without_source_file(settings: Settings) -> None:
    (settings.sources / "meters.yml").unlink()


DAMAGES: list[tuple[Callable[[Settings], None], str, str]] = [
    (without_log, "table silver.hourly_history", "no _delta_log"),
    (without_table, "meters: gold.state_history", "no table in"),
    (with_an_emptied_folder, "meters: gold.state_history", "no table in"),
    (without_chunks, "meters: bronze.meters_chunks", "no table in"),
    (published_twice, "meters: publication", "2 rows of the source in trace.published"),
    (without_its_publication, "meters: records", "no row of meters in trace.published"),
    (with_an_earlier_publication, "meters: records", "no row of meters in trace.published"),
    (without_newest_frontiers, "meters: records", "trace.db/frontiers: its checksum alone"),
    (without_newest_frontiers_and_their_checksum, "meters: frontiers", "a commit of trace.frontiers is missing"),
    (without_newest_landing, "meters: records", "bronze.db/files: its checksum alone"),
    (without_newest_landing_and_its_checksum, "meters: ledger", "which the ledger does not have"),
    (without_updates, "meters: trace", "batches of its trace have no files"),
    (with_cut_lease, "meters: lease", "is cut or no JSON"),
    (without_lease, "meters: lease", "a source that has been run"),
    (without_metastore, "catalog", "metastore is not there, or not whole"),
    (with_cut_metastore, "catalog", "metastore is not there, or not whole"),
    (with_an_orphan, "meters: orphans", "1 batches that no state names"),
    (without_a_column, "meters: trace.meters_updates", "without the columns below_horizon: an older lake"),
    (without_results, "meters: quality.results", "no such table: an older lake"),
    (without_source_file, "source meters", "no meters.yml"),
    (without_records, "meters: trace.published", "no Delta log in"),
]


@pytest.mark.turns
def test_each_damage_is_named_and_a_sound_lake_has_none(sound: Settings, tmp_path: Path) -> None:
    assert list(examine_lake(sound)) == SOUND
    kept = tmp_path / "kept"
    shutil.copytree(sound.home, kept)
    for damage, what, found in DAMAGES:
        damage(sound)
        findings = {finding.what: finding for finding in examine_lake(sound)}
        assert what in findings, (damage.__name__, findings)
        assert found in findings[what].found, (damage.__name__, findings[what])
        assert findings[what].verdict != "ok" and findings[what].do
        shutil.rmtree(sound.home)
        shutil.copytree(kept, sound.home)
    assert list(examine_lake(sound)) == SOUND


def test_what_a_run_has_yet_to_accept_is_no_damage(sound: Settings) -> None:
    file = sound.sources / "meters.yml"
    window = "  daily: {kind: tumbling, size: 1 day, key: meter, time: taken, aggregates: {n: count()}, late: reemit}\n"
    compaction = "compaction: {strategy: tiered, keep_recent: 1, delta_threshold: 3}\n"
    text = (
        file.read_text()
        .replace("heat: float", "heat: float, note: {type: string, optional: true}")
        .replace("state:", f"{window}state:")
    )
    file.write_text(text.replace("n: count(), total", "n: count(), low: min(load), total", 1) + compaction)
    findings = {finding.what: finding for finding in examine_lake(sound)}
    assert findings.pop("tables").verdict == "ok"
    assert {finding.verdict for finding in findings.values()} == {"warning"}
    tables = ("silver.daily_history", "silver.hourly_history", "bronze.meters_chunks", "gold.chain_history")
    for table in tables:
        assert "no run has accepted it" in findings[f"meters: {table}"].found
        assert "--accept-definition" in findings[f"meters: {table}"].do
    shutil.rmtree(Path(sound.lake) / "silver.db" / "shifts_history")
    lost = {finding.what: finding.verdict for finding in examine_lake(sound)}
    assert lost["meters: silver.shifts_history"] == "wrong"


def test_a_first_run_that_was_stopped_while_it_created_tables_has_damaged_nothing(sound: Settings) -> None:
    file = sound.sources / "meters.yml"
    file.with_name("gauges.yml").write_text(file.read_text().replace("meters", "gauges"))
    for table in ("bronze.db/gauges_chunks", "trace.db/gauges_updates"):
        leave_remains(Path(sound.lake) / table)
    assert list(examine_lake(sound)) == SOUND


@pytest.mark.turns
def test_a_publication_that_stands_twice_is_read_by_nobody(sound: Settings) -> None:
    published_twice(sound)
    with pytest.raises(PublicationDoubled, match="2, of the tokens"):
        load(StoredLake(Path(sound.lake)), load_source(sound.sources / "meters.yml"))
