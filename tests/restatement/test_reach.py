"""What restating reads: the files within reach of the touched rows, however long the history is."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.config import Settings
from spark_jobs.definitions.catalog import ensure_source
from spark_jobs.definitions.definition import Definition, definitions
from spark_jobs.restatement.reach import reach, rows_near, touched_hours, touched_ranges
from spark_jobs.restatement.touched import Scope
from spark_jobs.restatement.windows import corrections
from spark_jobs.sources import Source, parse_source
from spark_jobs.storage.descriptions.tables import PUBLISHED, updates
from spark_jobs.storage.lakes.spark_lake import SparkLake
from tests.restatement.history import ANY_LATENESS, History, append

pytestmark = pytest.mark.spark

LATE_HOUR = 3 * 24 + 6
"""Hours from the start of the row that comes late."""


@pytest.fixture
def source(lake: SparkSession, settings: Settings) -> Source:
    found = parse_source(ANY_LATENESS, file="meters.yml")
    ensure_source(SparkLake(lake), found)
    return found


def publish_windows(spark: SparkSession, history: History) -> None:
    """A window of an hour over each row as published, one file a day: what is in them is no matter here."""
    start = F.col("t_taken")
    values = {
        "meter": F.col("c_meter"),
        "window_start": start,
        "window_end": start + F.lit(timedelta(hours=1)),
        "n": F.lit(1),
        "known_from": start,
        "revision": F.lit(0),
        "era": F.lit("live"),
        "token": F.lit(1),
    }
    for definition in definitions(history.source):
        windows = history.rows(spark).withColumns(values).repartitionByRange(history.days, "day")
        append(definition.table(), windows)


def read_for(spark: SparkSession, scope: Scope, definition: Definition) -> tuple[int, int]:
    """Files that the corrections read, and the rows that they are."""
    lake, ranges = SparkLake(spark), touched_ranges(SparkLake(spark), scope, [definition])
    near, published = reach(lake, scope, definition, ranges[definition.name], None)
    rows = rows_near(lake, scope, definition, near)
    made = corrections(lake, scope, [definition], ranges, token=2)[definition.name]
    return len(rows.fragments) + len(published.fragments), sum(file.rows for file in made.files)


@pytest.mark.turns
def test_a_late_row_reads_the_files_of_its_days_however_long_the_history(lake: SparkSession, source: Source) -> None:
    read = []
    for days in (6, 24):
        history = History(source, days, rows_a_day=24, meters=1)
        scope = history.write(lake, late=F.col("id") == LATE_HOUR)
        publish_windows(lake, history)
        read.append({d.name: read_for(lake, scope, d) for d in definitions(source)})
        for table in (updates(source), PUBLISHED, *[d.table() for d in definitions(source)]):
            lake.sql(f"DELETE FROM {table.qualified}")
    assert read[0] == read[1]
    # of trace and history the day of the row, the late batch, and the publication
    assert all(files <= 6 and corrected > 0 for files, corrected in read[0].values())


def test_the_hours_of_touched_times_are_exact_in_any_year(source: Source) -> None:
    hour, last = 3_600_000_000, 253_402_300_799_999_999
    times = [-1, 0, hour - 1, 2**53 - 1, 2**53 + 1, last // hour * hour - 1, last // hour * hour, last]
    updates = pa.table({"t_taken": [*times, None, 7 * hour], "c_meter": ["a"] * len(times) + ["a", None]})
    sliding, sessions = definitions(source)
    lo = np.zeros(len(updates), np.int64)
    assert touched_hours(updates, sessions, lo) == {time // hour for time in times}
    # a sliding window over a row of the last hour would end after year 9999
    assert touched_hours(updates, sliding, lo) == {time // hour for time in times if time <= last - hour}
