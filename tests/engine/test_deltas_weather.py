"""The year of hourly weather through the chain kernels: the state at every hour is that hour's row, bit for bit."""

from __future__ import annotations

import csv
import io
from datetime import datetime
from functools import cache

import numpy as np
import pyarrow as pa
import pytest

from spark_jobs.engine.deltas import (
    Adaptive,
    CompactionPolicy,
    FullMerge,
    Meaning,
    Segments,
    Strategy,
    TieredMerge,
    TimeBoundary,
    changes_of,
    pack,
    restate_chains,
    states_for,
    unpack,
)
from spark_jobs.sample import sample_file

COMPONENTS = ("temp", "dewp", "humid", "wind_dir", "wind_speed", "wind_gust", "precip", "pressure", "visib")
MEANING = Meaning("diff", "float64", {name: name for name in COMPONENTS})
DAY_US = 86_400_000_000
STRATEGIES: list[Strategy] = [FullMerge(), TieredMerge(10), TimeBoundary(DAY_US), Adaptive(1, 2)]


@cache
def weather() -> pa.Table:
    """All rows of the sample, in its own order."""
    rows = list(csv.DictReader(io.StringIO(sample_file("weather.csv").read_text(encoding="utf-8"))))
    hours = [int(datetime.fromisoformat(r["time_hour"].replace("Z", "+00:00")).timestamp()) * 1_000_000 for r in rows]
    columns = {
        name: pa.array([None if r[name] in ("", "NA") else float(r[name]) for r in rows], pa.float64())
        for name in COMPONENTS
    }
    count = len(rows)
    return pa.table(
        {
            "entity": [r["origin"] for r in rows], "event_time": hours, "time": hours, "row_id": range(count),
            "diff": [1] * count, **columns,
        }
    )  # fmt: skip


def told(rows: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """Bits and nulls of the rows' components."""
    columns = [rows[name].combine_chunks() for name in COMPONENTS]
    nulls = np.stack([column.is_null().to_numpy(zero_copy_only=False) for column in columns], axis=1)
    return np.stack([c.fill_null(0.0).to_numpy() for c in columns], axis=1).view(np.uint64), nulls


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda s: type(s).__name__)
def test_the_state_at_every_hour_is_the_row_of_that_hour(strategy: Strategy) -> None:
    rows = weather()
    entities = pa.array(["EWR", "JFK", "LGA"])
    policy = CompactionPolicy(strategy, delta_threshold=24)
    segments = Segments.empty("float64", len(COMPONENTS))
    times = rows["event_time"].to_numpy()
    quarters = np.quantile(times, [0, 0.25, 0.5, 0.75, 1])
    for lo, hi in zip(quarters[:-1], [*quarters[1:-1], np.inf], strict=True):
        part = rows.filter(pa.array((times >= lo) & (times < hi)))
        step = restate_chains(segments, changes_of(part, entities, MEANING), policy, as_of=int(times.max()))
        packed = pack(step.segments, entities, names=COMPONENTS, full_rows=True)
        segments = unpack(packed, entities, dtype="float64", dims=len(COMPONENTS))
    codes = pa.compute.index_in(rows["entity"], value_set=entities).to_numpy().astype(np.int64)
    states = states_for(segments, codes, times, times)
    bits, nulls = told(rows)
    assert (states.dims == len(COMPONENTS)).all()
    assert np.array_equal(states.values.view(np.uint64).reshape(bits.shape), bits)
    assert np.array_equal(states.nulls.reshape(nulls.shape), nulls)
    assert states.seen.all()
    assert np.array_equal(states.event_time, times)
