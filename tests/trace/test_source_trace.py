"""A source's trace over days of late, future-dated and retracted rows: every definite read stays what it was, whatever
merges, is removed, swept or vacuumed, and the gate's measures find nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from expectations import GATES
from spark_jobs.config import Settings
from spark_jobs.engine.arrangement import ArrangementState, ReadLease, check_state
from spark_jobs.engine.arrangement.errors import ReadBelowSince
from spark_jobs.jobs import visits
from spark_jobs.sources import load_source
from spark_jobs.storage.coordination import leases, publication
from spark_jobs.storage.descriptions.tables import FRONTIERS, LATE, STATE, updates
from spark_jobs.storage.lakes.frames import frame_of
from spark_jobs.storage.lakes.spark_lake import SparkLake
from spark_jobs.trace.inspection import TraceReport, inspect
from spark_jobs.trace.maintenance import Budget
from spark_jobs.trace.source_plane import SourcePlane, batch_rows, counting_rows, trace_handles
from tests.jobs.harness import SOURCE, write_source
from tests.trace.days import DAY_US, Days, Update

pytestmark = pytest.mark.spark

RETENTION = "retention: {since: 1 day, horizon: 2 days}\n"
HOUR_US = 3_600_000_000


def a_day(day: int) -> list[Update]:
    """Two rows of the day, a late one, one of the day after next; from the second day on one that was is taken back."""
    noon = day * DAY_US + 12 * HOUR_US
    base = 10 * day
    rows = [
        (base, noon, 1),
        (base + 1, noon + 1, 1),
        (base + 2, max(0, noon - DAY_US), 1),
        (base + 3, noon + 2 * DAY_US, 1),
    ]
    return rows + ([(base - 10, noon - DAY_US, -1), (base - 7, noon + DAY_US, -1)] if day else [])


@pytest.fixture
def days(lake: SparkSession, spark_settings: Settings, tmp_path: Path) -> Iterator[Days]:
    settings = write_source(spark_settings.model_copy(update={"home": tmp_path}), SOURCE + RETENTION)
    yield Days(SparkLake(lake), load_source(settings.sources / "meters.yml"), tmp_path)


def handles_of(state: ArrangementState) -> set[str]:
    """The handles of the batches that hold updates."""
    sealed = {batch.handle for batch in state.trace if batch.n_updates}
    return sealed | {batch.handle for batch in state.unsealed if batch.n_updates}


def faultless(measured: dict[str, int]) -> bool:
    """Whether every bound of the trace suite holds."""
    for invariant in GATES["trace"]:
        value = measured[invariant.measure]
        other = 0 if invariant.other is None else measured[invariant.other]
        if not (value <= other if invariant.bound == "at_most" else value == other):
            return False
    return True


def report_of(days: Days) -> TraceReport:
    return inspect(days.lake, days.source, days.standing(), publication.load(days.lake, days.source))


@pytest.mark.long
def test_definite_reads_stay_while_batches_merge_and_go(days: Days, spark_settings: Settings, tmp_path: Path) -> None:
    plane = SourcePlane(days.lake, days.source)
    known: dict[int, Counter[int]] = {}
    merges = 0
    for day in range(8):
        added = a_day(day)
        move = days.land(day, added)
        assert faultless(days.measured(move, landed=sum(diff for _, _, diff in added)))
        before_upkeep = days.standing()
        kept, done = days.upkeep()
        assert done.before == before_upkeep
        merges += done.merges
        if done.merges:
            assert faultless(days.measured(kept))
        days.publish()
        state = days.standing().arrangement
        check_state(state)
        since, seal = state.since.time or 0, state.seal.time or 0
        probes = {at for at in known if at >= since} | {seal - 1, max(since, seal - DAY_US // 2)}
        read = days.read(*probes)
        assert read == {at: days.model(at) for at in probes}
        assert all(known.setdefault(at, bag) == bag for at, bag in read.items())
        stored = set(plane.stored())
        named = handles_of(state)
        assert stored == named | {handle for handle, _ in days.standing().obsolete}
    assert merges >= 3
    state = days.standing().arrangement
    assert all(a.level > b.level for a, b in pairwise(state.trace) if b.upper <= state.since)
    assert max(batch.level for batch in state.trace) >= 1
    _sweep_and_vacuum(days, spark_settings, tmp_path)
    still = {at: bag for at, bag in known.items() if at >= (state.since.time or 0)}
    assert days.read(*still) == still


def test_replaced_batches_go_with_the_next_write_so_that_upkeep_commits_only_what_it_changes(
    lake: SparkSession, spark_settings: Settings, tmp_path: Path
) -> None:
    settings = write_source(spark_settings.model_copy(update={"home": tmp_path}), SOURCE)
    days = Days(SparkLake(lake), load_source(settings.sources / "meters.yml"), tmp_path)
    plane = SourcePlane(days.lake, days.source)
    replaced = 0
    for day in range(4):
        move = days.land(day, a_day(day))
        committed = days.lake.commits
        assert days.upkeep()[1].removed == 0
        assert days.lake.commits == committed
        # a publication has been made over what earlier runs replaced, so that is gone; this run's is still there
        standing = days.standing()
        assert {token for _, token in standing.obsolete} <= {move.token}
        named = handles_of(standing.arrangement)
        assert set(plane.stored()) == named | {handle for handle, _ in standing.obsolete}
        replaced += len(standing.obsolete)
        days.publish()
        last = (standing.seal_us) - 1
        assert days.read(last) == {last: days.model(last)}
    assert replaced >= 2
    # a run with nothing new writes nothing that they could go with
    left = len(days.standing().obsolete)
    assert left == days.upkeep()[1].removed > 0
    assert days.standing().obsolete == ()
    assert days.upkeep()[1].removed == 0


def _sweep_and_vacuum(days: Days, spark_settings: Settings, home: Path) -> None:
    """An attempt that ended before its commit left a batch, and rows of a stage; then the files go, too."""
    lake, settings = days.lake, spark_settings.model_copy(update={"home": home})
    unmarked, landed = F.lit(None).cast("int"), lake.spark.createDataFrame(days.rows(6, a_day(6)).table)
    orphan = "U0000000099.0"
    of_batch = {"batch": F.lit(orphan), "time": F.col("event_time"), "below_horizon": unmarked, "token": F.lit(99)}
    table = updates(days.source)
    lake.append(table, landed.withColumns(of_batch).select(*table.column_names), None)
    lake.catalog.ensure({"silver": "", "gold": ""}, [LATE, STATE])
    common = {"source": days.source.name, "entity": "e1"}
    staged, given_up = days.fence().token, days.fence().token
    lake.append(
        STATE, frame_of(lake.spark, STATE, [{**common, "token": t, "era": "live"} for t in (staged, given_up)]), None
    )
    with leases.take(home / "leases", source=days.source.name, run_id="r", starts_run=True, wait_s=0) as lease:
        lease.staged["compact"] = staged
        lease.save()
    assert {b.place for b in report_of(days).batches if b.batch == orphan} == {"orphan"}
    live = days.standing().arrangement.handles()
    swept = visits.sweep(settings, days.source, lake.spark)
    assert orphan in {b.handle for b in swept.batches}
    assert swept.history == {"gold.state_history": 1}
    assert [row.token for row in lake.read(STATE).collect()] == [staged]
    assert live.isdisjoint(b.handle for b in swept.batches)
    assert visits.sweep(settings, days.source, lake.spark, vacuum=False).batches == ()
    report = report_of(days)
    assert report.retracted.dead_files > 0
    assert not report.retracted.gone
    lake.spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    lake.spark.sql(f"VACUUM {updates(days.source).qualified} RETAIN 0 HOURS")
    assert report_of(days).retracted.dead_files == 0


def test_the_report_names_a_batch_that_is_not_stored_in_order(days: Days) -> None:
    days.land(0, a_day(0))
    assert [batch.fault for batch in report_of(days).batches] == [None] * len(report_of(days).batches)
    table, [batch, *_] = updates(days.source), days.standing().arrangement.trace
    rows = (
        days.lake.read(table).where(F.col("batch") == batch.handle).coalesce(1).sortWithinPartitions(F.desc("entity"))
    )
    kept = rows.localCheckpoint().select(*table.column_names)
    kept.writeTo(table.qualified).overwrite(F.col("batch") == batch.handle)
    [fault] = [found.fault for found in report_of(days).batches if found.batch == batch.handle]
    assert fault is not None
    assert fault.startswith("unsorted: ")


def test_a_held_read_keeps_since_back_until_it_expires_or_is_released(
    days: Days, spark_settings: Settings, tmp_path: Path
) -> None:
    settings = spark_settings.model_copy(update={"home": tmp_path})
    for day in range(3):
        days.land(day, a_day(day))
        days.publish()
    held_at = days.start_us + DAY_US
    lease = ReadLease("reader", held_at, expires_at=100)
    leases = visits.hold(settings, days.source, days.lake.spark, lease).arrangement.leases
    assert leases == (lease,)
    assert days.upkeep(now_us=99)[1].after.arrangement.since.time == held_at
    assert days.read(held_at) == {held_at: days.model(held_at)}
    after = days.upkeep(now_us=100, budget=Budget(merges=1))[1]
    assert after.after.arrangement.since.time == days.start_us + 2 * DAY_US
    assert after.after.arrangement.leases == ()
    assert after.after.horizon_us == days.start_us + DAY_US
    assert after.merges == 1
    with pytest.raises(ReadBelowSince):
        visits.hold(settings, days.source, days.lake.spark, lease)
    visits.release(settings, days.source, days.lake.spark, "nobody")
    # the merged batch need not have risen a level: it has as many bytes as each of these few rows' batches
    assert len(days.standing().arrangement.trace) == 2


@pytest.mark.long
def test_the_report_says_when_what_was_taken_back_is_gone(days: Days) -> None:
    noon = 12 * HOUR_US
    days.land(0, [(1, noon, 1), (2, noon, 1)])
    days.publish()
    days.land(1, [(1, noon, -1)])
    days.publish()
    taken_back = report_of(days).retracted
    assert (taken_back.in_trace, taken_back.last_us) == (1, days.start_us + DAY_US)
    merges = 0
    for day in (2, 3):
        days.land(day, [(10 * day, day * DAY_US + noon, 1)])
        merges += days.upkeep()[1].merges
        days.publish()
    assert merges == 1
    merged = report_of(days).retracted
    assert (merged.in_trace, merged.replaced_updates, merged.gone) == (0, 3, False)
    # the publication was made over the merge: the next write takes its inputs away, and only files are left
    days.land(4, [(40, 4 * DAY_US + noon, 1)])
    removed = report_of(days).retracted
    assert (removed.replaced_updates, removed.gone) == (0, False)
    assert removed.dead_files > 0
    days.lake.spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    days.lake.spark.sql(f"VACUUM {updates(days.source).qualified} RETAIN 0 HOURS")
    assert report_of(days).retracted.gone
    last = days.standing().seal_us - 1
    assert days.read(last) == {last: Counter({2: 1, 20: 1, 30: 1, 40: 1})}


def test_frontiers_say_when_they_moved_also_in_a_lake_made_before_they_did(
    lake: SparkSession, spark_settings: Settings, tmp_path: Path
) -> None:
    older = replace(FRONTIERS, columns=tuple(c for c in FRONTIERS.columns if c.name != "moved_at"))
    SparkLake(lake).catalog.ensure({"trace": ""}, [older])
    settings = write_source(spark_settings.model_copy(update={"home": tmp_path}), SOURCE)
    days = Days(SparkLake(lake), load_source(settings.sources / "meters.yml"), tmp_path)
    days.lake.catalog.widen([FRONTIERS])
    begun = datetime.now(UTC)
    days.land(0, a_day(0))
    days.land(1, [])
    moved = [row.moved_at.replace(tzinfo=UTC) for row in days.lake.read(FRONTIERS).orderBy("token").collect()]
    assert len(moved) == 2
    assert begun <= moved[0] < moved[1] <= datetime.now(UTC)
    assert days.standing().has_landed(range(2))


@pytest.mark.turns
def test_what_goes_and_comes_below_the_horizon_stands_beside_what_counts_whatever_merges(days: Days) -> None:
    """A row of the first day, changed twice once its day is below the horizon of two days."""
    noon = 12 * HOUR_US
    landed = [[(1, noon, 1)], [(10, DAY_US + noon, 1)], [(20, 2 * DAY_US + noon, 1)]]
    landed += [[(1, noon, -1), (1, noon + 1, 1)], [(1, noon + 1, -1), (1, noon + 2, 1)], [(50, 5 * DAY_US + noon, 1)]]
    merges = 0
    for day, added in enumerate([*landed, [], []]):
        move = days.land(day, added)
        assert faultless(days.measured(move, landed=sum(diff for _, _, diff in added)))
        kept, done = days.upkeep()
        merges += done.merges
        assert not done.merges or faultless(days.measured(kept))
        days.publish()
    assert merges
    state = days.standing().arrangement
    standing = {row.row_id for row in counting_rows(days.lake, days.source, state).collect()}
    assert standing == {1, 10, 20, 50}
    rows = batch_rows(days.lake, days.source, trace_handles(state)).where("row_id = 1")
    sums = (
        rows.groupBy(F.unix_micros("event_time").alias("at"), "below_horizon").agg(F.sum("diff").alias("n")).collect()
    )
    found = {(row["at"] - days.start_us, row.below_horizon): row.n for row in sums if row.n}
    assert found == {(noon, None): 1, (noon, 1): -1, (noon + 2, 1): 1}
