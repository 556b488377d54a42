"""The audit against stored tables that are corrupted in one way each: exactly the invariants about it fail, the table
is named, and a sound lake passes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from spark_jobs.config import Settings
from spark_jobs.jobs.audit import audit
from spark_jobs.sources import find_source
from spark_jobs.storage.lake import Lake
from spark_jobs.storage.schema import Table
from spark_jobs.storage.tables import DUPLICATES, FRONTIERS, PUBLISHED, QUARANTINE, STATE, chunks, updates
from tests.jobs.harness import DAY, SOURCE, START, Reading, run, write_drops, write_lines, write_source

pytestmark = pytest.mark.spark

ROWS, READ, TRACE = "files_with_other_rows", "files_that_read_otherwise", "files_that_the_trace_has_otherwise"
PUBLISHED_ANEW = {"windows_otherwise", "states_otherwise"}
READINGS = [
    *[Reading(0, minute, meter, minute % 7) for meter in "ab" for minute in (10, 50, 100, 900)],
    *[Reading(1, minute, meter, minute % 5) for meter in "ac" for minute in (1300, 1500, 1700)],
    *[Reading(2, minute, "b", 3) for minute in (1000, 3000, 3100)],
]

Change = Callable[[pa.Table], pa.Table]


@dataclass(frozen=True)
class Corruption:
    """A table, what becomes of its rows, and the invariants that fail then."""

    table: Callable[[Any], Table]
    change: Change
    fails: set[str]


@pytest.fixture
def bare(spark_settings: Settings, tmp_path: Path) -> Settings:
    """Settings of the shared lake with a home of the test's own, without sources."""
    return spark_settings.model_copy(update={"home": tmp_path, "landing": tmp_path / "landing"})


def without(rows: pa.Table, place: int = 0) -> pa.Table:
    return pa.concat_tables([rows.slice(0, place), rows.slice(place + 1)])


def doubled(rows: pa.Table) -> pa.Table:
    return pa.concat_tables([rows, rows.slice(0, 1)])


def live(change: Change) -> Change:
    """A change of the first of the live rows of a history table."""

    def of(rows: pa.Table) -> pa.Table:
        alive = pc.equal(rows["era"], "live")
        return pa.concat_tables([rows.filter(pc.invert(alive)), change(rows.filter(alive))])

    return of


def with_value(column: str, change: Callable[[Any], Any]) -> Change:
    """A change of one value in the first row."""

    def of(rows: pa.Table) -> pa.Table:
        values = rows[column].to_pylist()
        values[0] = change(values[0])
        place = rows.column_names.index(column)
        return rows.set_column(place, rows.schema.field(place), pa.array(values, rows.schema.field(place).type))

    return of


def _silver(source: Any) -> Table:
    from spark_jobs.definitions.definition import Definition

    return Definition(source, "hourly").table()


CORRUPTIONS = {
    "a second publication": Corruption(lambda _: PUBLISHED, doubled, {"records_at_odds"}),
    "frontiers twice under a token": Corruption(lambda _: FRONTIERS, doubled, {"records_at_odds"}),
    "a chunk that is gone": Corruption(chunks, without, {ROWS, READ, TRACE}),
    "a chunk twice": Corruption(chunks, doubled, {ROWS, READ, TRACE}),
    "a value of a chunk": Corruption(chunks, with_value("c_load", lambda v: [v[0] + 1, *v[1:]]), {READ, TRACE}),
    "a time of a chunk": Corruption(chunks, with_value("event_times", lambda v: [v[0] + DAY, *v[1:]]), {READ, TRACE}),
    "another entity of a chunk": Corruption(chunks, with_value("entity", lambda _: "z"), {READ, TRACE}),
    "a reject that is gone": Corruption(lambda _: QUARANTINE, without, {"files_with_other_rejects"}),
    "a reject twice": Corruption(lambda _: QUARANTINE, doubled, {"files_with_other_rejects"}),
    "a duplicate that is gone": Corruption(lambda _: DUPLICATES, without, {"files_with_other_duplicates", READ}),
    "a duplicate twice": Corruption(lambda _: DUPLICATES, doubled, {"files_with_other_duplicates"}),
    "an update that is gone": Corruption(updates, without, {TRACE, *PUBLISHED_ANEW}),
    "an update twice": Corruption(updates, doubled, {TRACE, *PUBLISHED_ANEW}),
    "an update of two": Corruption(
        updates, with_value("diff", lambda _: 2), {"updates_of_several", "states_otherwise"}
    ),
    "a value of an update": Corruption(updates, with_value("c_load", lambda v: v + 1), {TRACE, *PUBLISHED_ANEW}),
    "a window that is gone": Corruption(_silver, live(without), {"windows_otherwise"}),
    "a window twice": Corruption(_silver, live(doubled), {"repeated_windows"}),
    "a value of a window": Corruption(_silver, live(with_value("total", lambda v: v + 1)), {"windows_otherwise"}),
    "a state that is gone": Corruption(lambda _: STATE, live(without), {"states_otherwise"}),
    "a state twice": Corruption(lambda _: STATE, live(doubled), {"repeated_entities"}),
    "a value of a state": Corruption(
        lambda _: STATE, live(with_value("ints", lambda v: [v[0], v[1] + 1])), {"states_otherwise"}
    ),
}


def test_each_corruption_is_named_by_the_invariants_about_it(lake: SparkSession, bare: Settings) -> None:
    home = write_source(bare, SOURCE)
    write_drops(home, READINGS)
    write_lines(home, 0, [READINGS[0].line(), "no json"], "b.ndjson")  # a duplicate and a reject
    for drop in range(3):
        run(lake, home, drop, drop)
    source, of_lake = find_source(home.sources, "meters"), Lake(lake)
    sound = audit(home, source, lake)
    assert [verdict.name for verdict in sound.failed] == []
    assert len(sound.verdicts) == 11
    missed = {}
    for name, corruption in CORRUPTIONS.items():
        table = corruption.table(source)
        uri = of_lake.uri(table)
        version = _corrupt(uri, corruption.change)
        found = audit(home, source, lake)
        failed = {verdict.name for verdict in found.failed}
        if failed != corruption.fails:
            missed[name] = (sorted(failed), sorted(corruption.fails))
        for verdict in found.failed:
            assert verdict.sample, (name, verdict.name)
            assert verdict.on_failure, (name, verdict.name)
        DeltaTable(uri).restore(version)
    assert missed == {}
    assert audit(home, source, lake).failed == []
    of_gate = lake.table("quality.results").where("gate = 'audit'")
    results = of_gate.where(of_gate.run_id == sound.run_id)
    assert {row.verdict for row in results.collect()} == {"passed"}


def test_a_source_that_keeps_chains_is_audited(lake: SparkSession, bare: Settings) -> None:
    home = write_source(bare, SOURCE + "compaction: {strategy: tiered, keep_recent: 1, delta_threshold: 3}\n")
    write_drops(home, READINGS)
    for drop in range(3):
        run(lake, home, drop, drop)
    source = find_source(home.sources, "meters")
    assert [verdict.name for verdict in audit(home, source, lake).failed] == []
    _corrupt(Lake(lake).uri(STATE), live(with_value("ints", lambda v: [v[0], v[1] + 1])))
    assert [verdict.name for verdict in audit(home, source, lake).failed] == ["states_otherwise"]


def test_files_before_a_drop_are_left_aside(lake: SparkSession, bare: Settings) -> None:
    home = write_source(bare, SOURCE)
    write_drops(home, READINGS)
    run(lake, home, 0, 2)
    source = find_source(home.sources, "meters")
    uri = Lake(lake).uri(QUARANTINE)
    assert Path(uri.removeprefix("file:")).exists()
    rows_of = Lake(lake).uri(chunks(source))
    _corrupt(rows_of, lambda rows: rows.filter(pc.not_equal(rows["seq_no"], 0)))
    everything, later = (audit(home, source, lake, since=n) for n in (0, 1))
    assert {v.name for v in everything.failed} == {ROWS, READ, TRACE}
    assert later.failed == []
    assert later.since == f"{START + DAY:%Y-%m-%d}"


def _corrupt(uri: str, change: Change) -> int:
    """Rewrite a table's rows; the version before."""
    table = DeltaTable(uri)
    rows = table.to_pyarrow_dataset().to_table()
    write_deltalake(table, change(rows.cast(pa.schema(table.schema().to_arrow()))), mode="overwrite")
    return table.version() - 1 if DeltaTable(uri).version() == table.version() else table.version()
