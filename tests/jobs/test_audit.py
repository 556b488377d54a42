"""The audit against stored tables that are corrupted in one way each: exactly the invariants about it fail, the table
is named, and a sound lake passes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from spark_jobs.audit.audit import audit
from spark_jobs.config import Settings
from spark_jobs.definitions.definition import Definition
from spark_jobs.definitions.versions import DefinitionChanged
from spark_jobs.model import STAGES
from spark_jobs.sources import find_source
from spark_jobs.storage.delta.fingerprints import NOTED
from spark_jobs.storage.descriptions.chain_tables import CHAINS
from spark_jobs.storage.descriptions.schema import Table
from spark_jobs.storage.descriptions.tables import (
    DUPLICATES,
    FILES,
    FRONTIERS,
    LATE,
    PUBLISHED,
    QUARANTINE,
    STATE,
    chunks,
    updates,
)
from spark_jobs.storage.lakes.spark_lake import SparkLake
from tests.effort import share_of
from tests.jobs.harness import DAY, SOURCE, START, Reading, run, write_drops, write_lines, write_source

pytestmark = [pytest.mark.spark, pytest.mark.turns]

ROWS, READ, TRACE = "files_with_other_rows", "files_that_read_otherwise", "files_that_the_trace_has_otherwise"
PUBLISHED_ANEW = {"windows_otherwise", "states_otherwise"}
READINGS = [
    *[Reading(0, minute, meter, minute % 7) for meter in "ab" for minute in (10, 50, 100, 900)],
    *[Reading(1, minute, meter, minute % 5) for meter in "ac" for minute in (1300, 1500, 1700)],
    Reading(1, 880, "b", 2),  # late: a window that was published ends otherwise
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


def with_stray(diff: int) -> Change:
    """The first row once more, of a landing that the ledger does not name: nothing is wrong with that."""

    def of(rows: pa.Table) -> pa.Table:
        stray = with_value("diff", lambda _: diff)(with_value("landing", lambda v: v + 1000)(rows.slice(0, 1)))
        return pa.concat_tables([rows, stray])

    return of


def _silver(source: Any) -> Table:
    return Definition(source, "hourly").table()


def _batches(source: Any) -> Table:
    return Definition(source, "batches").table()


def closing(change: Change) -> Change:
    """A change of the first of the rows that close others."""

    def of(rows: pa.Table) -> pa.Table:
        closes = pc.equal(rows["era"], "closing")
        assert rows.filter(closes).num_rows, "readings that change what was published"
        return pa.concat_tables([rows.filter(pc.invert(closes)), change(rows.filter(closes))])

    return of


def first(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A change of the first element of a list."""
    return lambda values: [change(values[0]), *values[1:]]


SECOND = timedelta(seconds=1)
BRONZE = {ROWS, READ, TRACE}
SHAPE, PLACE, HISTORY = "chunks_out_of_shape", "updates_out_of_place", "broken_histories"
REJECTS, REREAD = "files_with_other_rejects", "rejects_that_read_otherwise"
WINDOWS, STATES, LATE_ROWS = "windows_otherwise", "states_otherwise", "unlisted_late_rows"
OF_LATE_UPDATE = {*PUBLISHED_ANEW, LATE_ROWS}
"""What says so of the first update, which is of a late row."""


def _of(table: Table) -> Callable[[Any], Table]:
    return lambda _: table


CORRUPTIONS = {
    "a second publication": Corruption(_of(PUBLISHED), doubled, {"records_at_odds"}),
    "a publication set back": Corruption(
        _of(PUBLISHED), with_value("published", lambda v: v - DAY), {HISTORY, LATE_ROWS}
    ),
    "a publication of long ago": Corruption(
        _of(PUBLISHED), with_value("published", lambda v: v - 2 * DAY), {"records_at_odds"}
    ),
    "a publication that is gone": Corruption(_of(PUBLISHED), without, {"records_at_odds"}),
    "frontiers twice under a token": Corruption(_of(FRONTIERS), doubled, {"records_at_odds"}),
    "frontiers that are gone": Corruption(_of(FRONTIERS), without, {"records_at_odds"}),
    "a file of the ledger that is gone": Corruption(_of(FILES), without, {"records_at_odds"}),
    "a file of the ledger twice": Corruption(_of(FILES), doubled, {ROWS}),
    "another count in the ledger": Corruption(_of(FILES), with_value("rows", lambda v: v + 1), {ROWS}),
    "another count of rejects": Corruption(_of(FILES), with_value("rejects", lambda v: (v or 0) + 1), {REJECTS}),
    "another first row id": Corruption(_of(FILES), with_value("first_row_id", lambda v: v + 1), {ROWS, READ}),
    "a chunk that is gone": Corruption(chunks, without, BRONZE),
    "a chunk twice": Corruption(chunks, doubled, BRONZE),
    "a chunk taken back": Corruption(chunks, with_value("diff", lambda _: -1), BRONZE),
    "a chunk of no landing": Corruption(chunks, with_value("landing", lambda v: v + 1000), BRONZE),
    "a value of a chunk": Corruption(chunks, with_value("c_load", first(lambda v: v + 1)), {READ, TRACE}),
    "a time of a chunk": Corruption(chunks, with_value("event_times", first(lambda v: v + DAY)), {SHAPE, READ, TRACE}),
    "a time on another timeline": Corruption(
        chunks, with_value("t_seen", first(lambda v: v + SECOND)), {SHAPE, READ, TRACE}
    ),
    "an identity of a chunk": Corruption(chunks, with_value("delta_ids", first(lambda _: "x")), {READ, TRACE}),
    "a row id of a chunk": Corruption(chunks, with_value("row_ids", first(lambda v: v + 50)), {SHAPE, *BRONZE}),
    "another entity of a chunk": Corruption(chunks, with_value("entity", lambda _: "z"), {READ, TRACE}),
    "another drop of a chunk": Corruption(chunks, with_value("seq_no", lambda v: v + 1), {SHAPE}),
    "another length of a chunk": Corruption(chunks, with_value("rows", lambda v: v + 1), {SHAPE, *BRONZE}),
    "a list cut short": Corruption(chunks, with_value("c_load", lambda v: v[:-1]), {SHAPE, *BRONZE}),
    "row ids that are gone": Corruption(chunks, with_value("row_ids", lambda _: None), {SHAPE, *BRONZE}),
    "a bound of a chunk": Corruption(chunks, with_value("event_min", lambda v: v + DAY), {SHAPE}),
    "a reject that is gone": Corruption(_of(QUARANTINE), without, {REJECTS, REREAD}),
    "a reject twice": Corruption(_of(QUARANTINE), doubled, {REJECTS, REREAD}),
    "another text of a reject": Corruption(_of(QUARANTINE), with_value("raw", lambda _: "other"), {REREAD}),
    "a reject that an attempt took back and was ended": Corruption(_of(QUARANTINE), with_stray(-1), set()),
    "a reject that an attempt brought and was ended": Corruption(_of(QUARANTINE), with_stray(1), set()),
    "a duplicate that an attempt took back and was ended": Corruption(_of(DUPLICATES), with_stray(-1), set()),
    "another line of a reject": Corruption(_of(QUARANTINE), with_value("line", lambda v: v + 5), {REREAD}),
    "another file of a reject": Corruption(_of(QUARANTINE), with_value("file", lambda v: f"{v}x"), {REJECTS, REREAD}),
    "a duplicate that is gone": Corruption(_of(DUPLICATES), without, {"files_with_other_duplicates", READ}),
    "a duplicate twice": Corruption(_of(DUPLICATES), doubled, {"files_with_other_duplicates"}),
    "another row id of a duplicate": Corruption(_of(DUPLICATES), with_value("row_id", lambda v: v + 7), {READ}),
    "an update that is gone": Corruption(updates, without, {TRACE, *OF_LATE_UPDATE}),
    "an update twice": Corruption(updates, doubled, {TRACE, *OF_LATE_UPDATE}),
    "an update of two": Corruption(updates, with_value("diff", lambda _: 2), {"updates_of_several", STATES, LATE_ROWS}),
    "an update taken back": Corruption(updates, with_value("diff", lambda _: -1), {TRACE, *OF_LATE_UPDATE}),
    "a value of an update": Corruption(updates, with_value("c_load", lambda v: v + 1), {TRACE, *PUBLISHED_ANEW}),
    "an identity of an update": Corruption(updates, with_value("delta_id", lambda _: "x"), {TRACE}),
    "an update of another drop": Corruption(updates, with_value("seq_no", lambda v: v + 1), {PLACE, LATE_ROWS}),
    "an update visible too late": Corruption(updates, with_value("time", lambda v: v + DAY), {PLACE}),
    "an update visible too early": Corruption(updates, with_value("time", lambda v: v - DAY), {PLACE}),
    "an update of no batch": Corruption(updates, with_value("batch", lambda _: "x"), {TRACE, *OF_LATE_UPDATE}),
    "a window that is gone": Corruption(_silver, live(without), {WINDOWS}),
    "a window twice": Corruption(_silver, live(doubled), {"repeated_windows", HISTORY}),
    "a value of a window": Corruption(_silver, live(with_value("total", lambda v: v + 1)), {WINDOWS}),
    "no value of a window": Corruption(_silver, live(with_value("mean", lambda _: None)), {WINDOWS}),
    "another end of a window": Corruption(_silver, live(with_value("window_end", lambda v: v + SECOND)), {WINDOWS}),
    "a window known too early": Corruption(_silver, live(with_value("known_from", lambda v: v - SECOND)), {HISTORY}),
    "another revision": Corruption(_silver, live(with_value("revision", lambda v: v + 1)), {HISTORY}),
    "a window of no attempt": Corruption(_silver, live(with_value("token", lambda v: v + 500)), {WINDOWS}),
    "a closing that is gone": Corruption(_silver, closing(without), {"repeated_windows", HISTORY}),
    "a closing twice": Corruption(_silver, closing(doubled), {HISTORY}),
    "a closing at another time": Corruption(_silver, closing(with_value("known_to", lambda v: v + SECOND)), {HISTORY}),
    "a late row that is not listed": Corruption(_of(LATE), without, {LATE_ROWS}),
    "a late row listed twice": Corruption(_of(LATE), doubled, {LATE_ROWS}),
    "another row in the place of a late one": Corruption(_of(LATE), with_value("row_id", lambda v: v + 1), {LATE_ROWS}),
    "a late row that did otherwise": Corruption(_of(LATE), with_value("action", lambda _: "partial"), {LATE_ROWS}),
    "a state that is gone": Corruption(_of(STATE), live(without), {STATES}),
    "a state twice": Corruption(_of(STATE), live(doubled), {"repeated_entities", HISTORY}),
    "a value of a state": Corruption(_of(STATE), live(with_value("ints", lambda v: [v[0], v[1] + 1])), {STATES}),
    "another count of a state": Corruption(_of(STATE), live(with_value("delta_count", lambda v: v + 1)), {STATES}),
    "another time of a state": Corruption(_of(STATE), live(with_value("timestamp", lambda v: v + SECOND)), {STATES}),
    "another delta of a state": Corruption(_of(STATE), live(with_value("at_delta", lambda v: v + 1)), {STATES}),
    "a state known too early": Corruption(_of(STATE), live(with_value("known_from", lambda v: v - SECOND)), {HISTORY}),
    "a closing of a state that is gone": Corruption(
        _of(STATE), closing(without), {"repeated_entities", STATES, HISTORY}
    ),
}


@pytest.mark.share
def test_each_corruption_is_named_by_the_invariants_about_it(lake: SparkSession, bare: Settings) -> None:
    home = write_source(bare, SOURCE)
    write_drops(home, READINGS)
    write_lines(home, 0, [READINGS[0].line(), "no json"], "b.ndjson")  # a duplicate and a reject
    for drop in range(3):
        run(lake, home, drop, drop)
    source, of_lake = find_source(home.sources, "meters"), SparkLake(lake)
    sound = audit(home, source, lake)
    assert [verdict.name for verdict in sound.failed] == []
    assert len(sound.verdicts) == 19
    missed = {}
    for name in share_of(CORRUPTIONS):
        corruption = CORRUPTIONS[name]
        table = corruption.table(source)
        uri = of_lake.folder.handle(table).uri
        version = _corrupt(uri, corruption.change)
        found = audit(home, source, lake)
        failed = {verdict.name for verdict in found.failed}
        if failed != corruption.fails:
            missed[name] = (sorted(failed), sorted(corruption.fails))
        for verdict in found.failed:
            assert verdict.sample, (name, verdict.name)
            assert verdict.on_failure, (name, verdict.name)
        DeltaTable(uri).restore(version)
    assert missed == {}, "\n".join(f"{name}: {found}, expected {wanted}" for name, (found, wanted) in missed.items())
    assert audit(home, source, lake).failed == []
    of_gate = lake.table("quality.results").where("gate = 'audit'")
    results = of_gate.where(of_gate.run_id == sound.run_id)
    assert {row.verdict for row in results.collect()} == {"passed"}


def test_a_source_file_that_no_run_has_accepted_is_no_damage(lake: SparkSession, bare: Settings) -> None:
    home = write_source(bare, SOURCE)
    write_drops(home, READINGS)
    run(lake, home, 0, 2)
    for part, before, after in (
        ("window.hourly", "size: 60 min", "size: 30 min"),
        ("parse", "heat: float", "heat: float, note: {type: string, optional: true}"),
        ("window.batches", "state:", f"  batches: {BATCHES}\nstate:"),
    ):
        write_source(home, SOURCE.replace(before, after))
        with pytest.raises(DefinitionChanged, match=f"another {part}") as refusal:
            audit(home, find_source(home.sources, "meters"), lake)
        assert (refusal.value.consequence, "--accept-definition" in refusal.value.next_step) == (
            "nothing was judged",
            True,
        )
    write_source(home, SOURCE)
    assert audit(home, find_source(home.sources, "meters"), lake).failed == []


def test_a_change_that_is_accepted_corrects_windows_and_states(lake: SparkSession, bare: Settings) -> None:
    home = write_source(bare, SOURCE)
    write_drops(home, READINGS)
    run(lake, home, 0, 2)
    source, of_lake = find_source(home.sources, "meters"), SparkLake(lake)
    _corrupt(of_lake.folder.handle(_silver(source)).uri, live(with_value("total", lambda v: v + 1)))
    _corrupt(of_lake.folder.handle(STATE).uri, live(with_value("ints", lambda v: [v[0], v[1] + 1])))
    failed = audit(home, source, lake).failed
    assert {verdict.name for verdict in failed} == PUBLISHED_ANEW
    assert all("--accept-definition" in (verdict.on_failure or "") for verdict in failed)
    changed = SOURCE.replace("high: max(load)", "high: max(load), low: min(load)")
    write_source(home, changed.replace("load: load}}", "load: load, lowest: load}}"))
    run(lake, home, 2, 2, accept_definition=True)
    assert audit(home, find_source(home.sources, "meters"), lake).failed == []


def test_a_first_publication_that_is_gone_is_missed(lake: SparkSession, bare: Settings) -> None:
    home = write_source(bare, SOURCE)
    write_drops(home, READINGS)
    run(lake, home, 0, 0, stages=STAGES[:-1])
    source = find_source(home.sources, "meters")
    assert audit(home, source, lake).failed == []  # nothing was ever published
    run(lake, home, 0, 0)
    _corrupt(SparkLake(lake).folder.handle(PUBLISHED).uri, without)
    (failed,) = audit(home, source, lake).failed
    assert failed.name == "records_at_odds"
    assert "no row of meters" in str(failed.sample)


BATCHES = "{kind: adaptive, key: meter, max: 2 h, triggers: [time, count(2)], aggregates: {total: sum(load)}}"
ADAPTIVE = SOURCE.replace("state:", f"  batches: {BATCHES}\nstate:")
BATCH_CORRUPTIONS = {
    "another start": with_value("window_start", lambda v: v - SECOND),
    "another end": with_value("window_end", lambda v: v + SECOND),
    "another delta": with_value("delta_ids", first(lambda v: f"{v}x")),
    "a delta that is gone": with_value("delta_ids", lambda v: v[1:]),
    "other bytes": with_value("stats", lambda v: {name: value + 1 for name, value in v.items()}),
    "another trigger": with_value("trigger", lambda _: "size"),
}


@pytest.mark.share
def test_what_only_adaptive_windows_have_is_audited(lake: SparkSession, bare: Settings) -> None:
    home = write_source(bare, ADAPTIVE)
    write_drops(home, READINGS)
    for drop in range(3):
        run(lake, home, drop, drop)
    source = find_source(home.sources, "meters")
    uri = SparkLake(lake).folder.handle(_batches(source)).uri
    assert audit(home, source, lake).failed == []
    failed = {}
    chosen = share_of(BATCH_CORRUPTIONS)
    for name in chosen:
        version = _corrupt(uri, live(BATCH_CORRUPTIONS[name]))
        failed[name] = {verdict.name for verdict in audit(home, source, lake).failed}
        DeltaTable(uri).restore(version)
    assert failed == {name: {WINDOWS} for name in chosen}


def with_each(column: str, change: Callable[[Any], Any]) -> Change:
    """A change of one value in every row: of segments, some are closed."""

    def of(rows: pa.Table) -> pa.Table:
        place, values = rows.column_names.index(column), [change(value) for value in rows[column].to_pylist()]
        return rows.set_column(place, rows.schema.field(place), pa.array(values, rows.schema.field(place).type))

    return of


def live_with(column: str, change: Change) -> Change:
    """A change of the live segments that have more than 0 in a column."""

    def of(rows: pa.Table) -> pa.Table:
        chosen = pc.fill_null(pc.and_(pc.equal(rows["era"], "live"), pc.greater(rows[column], 0)), fill_value=False)
        assert rows.filter(chosen).num_rows, "readings of which enough are compacted"
        return pa.concat_tables([rows.filter(pc.invert(chosen)), change(rows.filter(chosen))])

    return of


def with_checkpoint(change: Change) -> Change:
    """A change of segments that stand on a checkpoint."""
    return live_with("delta_count", change)


def with_pending(change: Change) -> Change:
    """A change of segments that have deltas."""
    return live_with("deltas", change)


VERSIONS = "versions_otherwise"
CUT, GONE = "a list cut short", "values that are gone"
"""Lists of different lengths: a worker can't read one of these chains."""
CHAIN_CORRUPTIONS = {
    "a value of a state": Corruption(_of(STATE), live(with_value("ints", lambda v: [v[0], v[1] + 1])), {STATES}),
    "a value of a checkpoint": Corruption(
        _of(CHAINS), with_checkpoint(with_value("ints", lambda v: [v[0], v[1] + 1])), {VERSIONS}
    ),
    "another delta of a checkpoint": Corruption(
        _of(CHAINS), with_checkpoint(with_value("at_delta", lambda v: v + 1)), {VERSIONS}
    ),
    "another count of a checkpoint": Corruption(
        _of(CHAINS), with_checkpoint(with_value("delta_count", lambda v: v + 1)), {VERSIONS}
    ),
    "a segment that is gone": Corruption(_of(CHAINS), with_pending(without), {VERSIONS}),
    "a value of a delta": Corruption(
        _of(CHAINS), with_pending(with_each("delta_ints", first(lambda v: v + 1))), {VERSIONS}
    ),
    "a time of a delta": Corruption(
        _of(CHAINS), with_pending(with_each("event_times", first(lambda v: v - 1))), {VERSIONS}
    ),
    "a delta that is taken back": Corruption(
        _of(CHAINS), with_pending(with_each("known_until", lambda v: [1, *(v or [None])[1:]])), {VERSIONS}
    ),
    CUT: Corruption(_of(CHAINS), with_pending(with_each("row_ids", lambda v: v[:-1])), {VERSIONS}),
    GONE: Corruption(_of(CHAINS), with_pending(with_each("delta_ints", lambda v: v[:1])), {VERSIONS}),
}


@pytest.mark.turns
@pytest.mark.share
@pytest.mark.parametrize("strategy", ["tiered, keep_recent: 1", "full", "time_boundary, interval: 6 h"])
def test_a_source_that_keeps_chains_is_audited(lake: SparkSession, bare: Settings, strategy: str) -> None:
    home = write_source(bare, f"{SOURCE}compaction: {{strategy: {strategy}, delta_threshold: 3}}\n")
    write_drops(home, READINGS)
    for drop in range(3):
        run(lake, home, drop, drop)
    source = find_source(home.sources, "meters")
    assert audit(home, source, lake).failed == []
    # what was taken back and came again cuts chains elsewhere
    run(lake, home, 1, 1, retract=True)
    assert audit(home, source, lake).failed == []
    write_drops(home, [reading for reading in READINGS if reading.drop == 1])
    run(lake, home, 1, 1)
    assert audit(home, source, lake).failed == []
    if not strategy.startswith("tiered"):
        return
    failed = {}
    said_by_workers = []
    chosen = {CUT, GONE, *share_of(CHAIN_CORRUPTIONS)}
    for name in chosen:
        corruption = CHAIN_CORRUPTIONS[name]
        uri = SparkLake(lake).folder.handle(corruption.table(source)).uri
        version = _corrupt(uri, corruption.change)
        broken = audit(home, source, lake).failed
        failed[name] = {verdict.name for verdict in broken}
        said_by_workers += [row["found"] for verdict in broken for row in verdict.sample or [] if "found" in row]
        DeltaTable(uri).restore(version)
    # a worker that can't read a chain says so; Java's stack comes after it
    assert [said.partition(":")[0] for said in said_by_workers] == ["pyarrow.lib.ArrowInvalid"]
    assert failed == {name: CHAIN_CORRUPTIONS[name].fails for name in chosen}


@pytest.mark.turns
def test_chains_of_which_retention_let_deltas_go_are_audited(lake: SparkSession, bare: Settings) -> None:
    compaction = "compaction: {strategy: tiered, keep_recent: 1, delta_threshold: 3}\n"
    home = write_source(bare, f"{SOURCE}retention: {{since: 1 day, horizon: 1 day}}\n{compaction}")
    write_drops(home, [*READINGS, *[Reading(n, 1440 * n + 10, "ab"[n % 2], n) for n in range(3, 7)]])
    source = find_source(home.sources, "meters")
    dropped = 0
    for drop in range(7):
        done = run(lake, home, drop, drop)
        dropped_now = sum(stage.get("chains", {}).get("dropped", 0) for stage in done)
        dropped += dropped_now
        if dropped_now or drop == 6:
            assert audit(home, source, lake).failed == []
    assert dropped > 0


def test_files_before_a_drop_are_left_aside(lake: SparkSession, bare: Settings) -> None:
    home = write_source(bare, SOURCE)
    write_drops(home, READINGS)
    run(lake, home, 0, 2)
    source = find_source(home.sources, "meters")
    uri = SparkLake(lake).folder.handle(QUARANTINE).uri
    assert Path(uri.removeprefix("file:")).exists()
    rows_of = SparkLake(lake).folder.handle(chunks(source)).uri
    _corrupt(rows_of, lambda rows: rows.filter(pc.not_equal(rows["seq_no"], 0)))
    everything, later = (audit(home, source, lake, since=n) for n in (0, 1))
    assert {v.name for v in everything.failed} == {ROWS, READ, TRACE}
    assert later.failed == []
    assert later.since == f"{START + DAY:%Y-%m-%d}"


def _corrupt(uri: str, change: Change) -> int:
    """Rewrite a table's rows; the version before."""
    table = DeltaTable(uri)
    rows = table.to_pyarrow_dataset().to_table()
    changed = change(rows.cast(pa.schema(table.schema().to_arrow())))
    # as by a fault of our own: others' commits are named as such
    write_deltalake(table, changed, mode="overwrite", commit_properties=CommitProperties(NOTED))
    return table.version() - 1 if DeltaTable(uri).version() == table.version() else table.version()
