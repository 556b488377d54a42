"""The trace gate names a batch that was changed between two publications, and nothing is published."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from spark_jobs.config import Settings
from spark_jobs.engine.arrangement import TraceBatch
from spark_jobs.gates import GateFailed
from spark_jobs.jobs.request import Request
from spark_jobs.model import Frontier
from spark_jobs.sources import load_source
from spark_jobs.storage.delta.fences import Fence
from spark_jobs.storage.descriptions.tables import updates
from spark_jobs.trace import frontiers
from tests.jobs.harness import DAY, START, Reading, Session, lake_of, published, run, run_one, write_drops, write_source

READINGS = [Reading(day, day * 24 * 60 + minute, "ab"[minute % 2], minute) for day in range(3) for minute in (10, 75)]


@pytest.fixture
def home(settings: Settings) -> Settings:
    settings = write_source(settings)
    write_drops(settings, READINGS)
    return settings


def refused_parts(failure: GateFailed) -> list[tuple[str, str]]:
    """The names of the invariants that a gate found broken, with the changed parts that it shows."""
    return [(each["name"], row["changed"]) for each in failure.failed for row in each["sample"]]


def other_bounds(batch: TraceBatch) -> TraceBatch:
    return replace(batch, description=replace(batch.description, lower=Frontier.at(1)))


def other_level(batch: TraceBatch) -> TraceBatch:
    return replace(batch, level=batch.level + 1)


def other_updates(batch: TraceBatch) -> TraceBatch:
    return replace(batch, n_updates=batch.n_updates + 1)


@pytest.mark.parametrize(
    ("change", "parts"),
    [(other_bounds, ["bounds"]), (other_level, ["level"]), (other_updates, ["updates"])],
)
def test_a_state_that_notes_a_surviving_batch_otherwise_is_refused(
    lake: Session, home: Settings, change: Callable[[TraceBatch], TraceBatch], parts: list[str]
) -> None:
    run(lake, home, 0, 0)
    shown = published(lake, "silver.hourly")
    run(lake, home, 1, 1, stages=["land", "seal"])
    source = load_source(home.sources / "meters.yml")
    sealed = frontiers.load(lake_of(lake), source)
    oldest, *later = sealed.arrangement.trace
    changed = replace(sealed.arrangement, trace=(change(oldest), *later))
    token = max(row["token"] for row in lake_of(lake).records(frontiers.FRONTIERS)) + 1
    after = replace(sealed, arrangement=changed)
    frontiers.commit(lake_of(lake), source, Fence("meters", token), "another", after)

    given: dict[str, Any] = {"source": "meters", "lo": START + DAY, "hi": START + 2 * DAY, "run_id": "test-1-1"}
    with pytest.raises(GateFailed) as failure:
        run_one(lake, "seal", **given, settings=home, request=Request(pass_gap=True))
    assert failure.value.gate == "trace"
    assert refused_parts(failure.value) == [("batches_changed", part) for part in parts]
    assert published(lake, "silver.hourly") == shown


def test_a_file_with_other_rows_is_refused_and_put_back_accepted(lake: Session, home: Settings) -> None:
    run(lake, home, 0, 0)
    shown = published(lake, "silver.hourly")
    table = DeltaTable(lake_of(lake).folder.handle(updates(load_source(home.sources / "meters.yml"))).uri)
    (path,) = [Path(file.removeprefix("file://")) for file in table.file_uris()]
    rows = pq.read_table(path, partitioning=None)
    place = rows.schema.get_field_index("event_time")
    # as many rows, of the same entities and visible times: the log and the frontiers see no difference
    moved = [time - timedelta(minutes=1) for time in rows["event_time"].to_pylist()]
    written = path.read_bytes()
    pq.write_table(rows.set_column(place, rows.schema.field(place), pa.array(moved, rows["event_time"].type)), path)

    with pytest.raises(GateFailed) as failure:
        run(lake, home, 1, 1)
    assert failure.value.gate == "trace"
    assert refused_parts(failure.value) == [("batches_changed", "files")]
    assert published(lake, "silver.hourly") == shown

    path.write_bytes(written)
    run(lake, home, 1, 1)
    assert published(lake, "silver.hourly") != shown


def test_batches_that_nobody_changes_pass_whatever_runs_do_with_others(lake: Session, home: Settings) -> None:
    for day in range(3):
        run(lake, home, day, day)
    run(lake, home, 1, 1)  # nothing new
    source = load_source(home.sources / "meters.yml")
    batches = frontiers.load(lake_of(lake), source).arrangement.trace
    assert [batch.n_updates for batch in batches] == [2, 2, 2]
    assert len({batch.checksum for batch in batches}) == 3
    assert all(len(batch.checksum) == 33 for batch in batches)
