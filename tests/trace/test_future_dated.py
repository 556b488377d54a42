"""Updates dated in the future wait in buckets on disk: a run opens the files of those that come due, and no others."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urlparse

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.config import Settings
from spark_jobs.sources import load_source
from spark_jobs.storage.descriptions.tables import updates
from spark_jobs.storage.lakes.spark_lake import SparkLake
from spark_jobs.storage.names.past import future_deltas_view
from spark_jobs.trace.source_plane import batch_rows, buckets
from tests.jobs.harness import SOURCE, write_source
from tests.trace.days import DAY_US, Days, Update

pytestmark = pytest.mark.spark

HOUR_US = 3_600_000_000
AHEAD = (0, 1, 2, 3, 6, 7, 20, 25, 100, 101)


@pytest.fixture
def days(lake: SparkSession, spark_settings: Settings, tmp_path: Path) -> Days:
    settings = write_source(spark_settings.model_copy(update={"home": tmp_path}), SOURCE)
    return Days(SparkLake(lake), load_source(settings.sources / "meters.yml"), tmp_path)


def scheduled(day: int) -> list[Update]:
    return [(1000 * day + i, (day + n) * DAY_US + i * HOUR_US, 1) for i, n in enumerate(AHEAD)]


@contextmanager
def out_of_reach(days: Days, handles: list[str]) -> Iterator[int]:
    """The files of these batches are elsewhere meanwhile; gives their number."""
    table = updates(days.source)
    found = (
        days.lake.read(table)
        .where(F.col("batch").isin(handles))
        .selectExpr("_metadata.file_path AS file")
        .distinct()
        .collect()
    )
    paths = [Path(unquote(urlparse(row.file).path)) for row in found]
    for path in paths:
        shutil.move(path, path.with_suffix(".away"))
    try:
        yield len(paths)
    finally:
        for path in paths:
            shutil.move(path.with_suffix(".away"), path)


@pytest.mark.turns
def test_a_run_opens_the_batches_that_come_due_and_no_others(days: Days) -> None:
    days.land(0, scheduled(0))
    widths = []
    for batch in days.standing().arrangement.unsealed:
        lo, hi = buckets(days.source).bucket(batch.least, days.standing().seal_us)
        assert lo <= batch.least <= batch.greatest < hi
        widths.append((hi - lo) // DAY_US)
    # days 1; 2 and 3; 6 and 7; 20 and 25; 100 and 101, seen from the seal at the end of day 0
    assert widths == [1, 2, 4, 16, 64]
    unreached = 0
    for first, last in ((1, 1), (2, 2), (3, 5), (6, 19), (20, 24), (25, 99), (100, 101)):
        hi_us = days.start_us + (last + 1) * DAY_US
        later = [b.handle for b in days.standing().arrangement.unsealed if b.least >= hi_us]
        with out_of_reach(days, later) as n_files:
            days.land(first, scheduled(first) if first < 3 else [], last=last)
            unreached += n_files
        standing = days.standing().arrangement
        assert standing.handles() >= set(later)
        at = hi_us - 1
        assert days.read(at) == {at: days.model(at)}
    assert unreached >= 20
    # nothing that waits was lost or doubled on the way
    waiting = batch_rows(days.lake, days.source, [batch.handle for batch in standing.unsealed])
    assert sorted(row.row_id for row in waiting.collect()) == sorted(r for r, at, _ in days.history if at >= hi_us)


@pytest.mark.turns
def test_what_is_not_due_before_a_time_is_read_from_the_buckets_below_it_alone(days: Days) -> None:
    days.land(0, scheduled(0))
    days.publish()
    days.land(1, scheduled(1))
    days.publish()
    days.lake.catalog.define(future_deltas_view(days.source))
    standing = days.standing()
    for until in (3, 30, 101):
        until_us = days.start_us + until * DAY_US
        needless = [b.handle for b in standing.arrangement.unsealed if b.least >= until_us]
        before = f"time < timestamp_micros({until_us})"
        with out_of_reach(days, needless) as n_files:
            waiting = days.lake.spark.sql(f"SELECT row_id FROM trace.meters_corrections WHERE {before}").collect()
        assert n_files == len(needless)
        wanted = sorted(row for row, at, _ in days.history if standing.seal_us <= at < until_us)
        assert sorted(row.row_id for row in waiting) == wanted
    everything = days.lake.spark.table("trace.meters_corrections").count()
    assert everything == sum(at >= standing.seal_us for _, at, _ in days.history)
