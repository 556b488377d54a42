"""A worker that may hold few bytes compacts long chains in stretches, and every answer stays."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spark_jobs.engine.deltas import LATEST, UNMOVED, CompactionPolicy, Frontiers, Strategy, states_for, unpack
from spark_jobs.engine.spark.checkpoints import BUCKET, PLACE, frames
from tests.effort import tries
from tests.engine.test_deltas_segments import (
    COLUMNS,
    ENTITIES,
    MEANINGS,
    SCHEMA,
    STRATEGIES,
    Row,
    replayed,
    same_bits,
    updates,
)

WITHOUT_PARENTS = {**MEANINGS, "operations": replace(MEANINGS["operations"], operations=replace(COLUMNS, parent=None))}


def compacted(mode: str, rows: list[Row], policy: CompactionPolicy, frontiers: Frontiers) -> pa.Table:
    """What the worker makes of the rows, which come three at a time."""
    table = pa.Table.from_pylist(rows, schema=SCHEMA).sort_by("event_time")
    table = table.append_column(BUCKET, pa.array(np.zeros(len(rows)), pa.int32()))
    table = table.append_column(PLACE, table["event_time"])
    compactor = frames._Compactor(WITHOUT_PARENTS[mode], policy, 9, frontiers)
    return pa.Table.from_batches(compactor(iter(table.to_batches(max_chunksize=3))), compactor.schema())


@pytest.mark.slow
@pytest.mark.parametrize("mode", list(MEANINGS))
@given(
    rows=updates(),
    strategy=st.sampled_from(STRATEGIES),
    frontiers=st.sampled_from([UNMOVED, Frontiers(5, 3)]),
    age=st.sampled_from([None, 2]),
)
@settings(max_examples=tries(15), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_chains_in_stretches_answer_as_a_replay_does(
    monkeypatch: pytest.MonkeyPatch, mode: str, rows: list[Row], strategy: Strategy, frontiers: Frontiers, age: int
) -> None:
    monkeypatch.setattr(frames, "PART_BYTES", 1)
    rows = [{**row, "parent": None} for row in rows]
    policy = CompactionPolicy(strategy, delta_threshold=3, age_threshold=age)
    table = compacted(mode, rows, policy, frontiers)
    segments = unpack(table, ENTITIES, dtype=WITHOUT_PARENTS[mode].dtype, dims=2)
    least, known_from = max(frontiers.horizon, -3), max(frontiers.since, -3)
    asked = [(e, t, k) for e in (0, 1) for t in range(least, 11) for k in (known_from, known_from + 4, LATEST)]
    states = states_for(segments, *(np.array(column) for column in zip(*asked, strict=True)))
    for question, (code, time, known_at) in enumerate(asked):
        naive = replayed(rows, mode, ENTITIES[code].as_py(), time, known_at)
        assert same_bits(states, question, naive), (code, time, known_at)


@pytest.mark.slow
def test_a_long_chain_is_not_held_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "PART_BYTES", 4000)
    worked_on: list[int] = []

    def watched(published, changes, *arguments, **named):  # type: ignore[no-untyped-def]
        worked_on.append(len(published.deltas) + len(changes.deltas))
        return restate_chains(published, changes, *arguments, **named)

    restate_chains = frames.restate_chains
    monkeypatch.setattr(frames, "restate_chains", watched)
    base = dict.fromkeys(SCHEMA.names) | {"entity": "a", "diff": 1, "x": 1}
    rows = [{**base, "event_time": i, "time": i, "row_id": i} for i in range(2000)]
    table = compacted("add", rows, CompactionPolicy(delta_threshold=20), UNMOVED)
    assert sum(map(len, table["event_times"].to_pylist())) == 2000
    assert max(worked_on) < 100
    last = table.filter(pa.compute.is_null(table["end_time"])).to_pylist()
    assert [(row["delta_count"] + len(row["event_times"]), row["entity"]) for row in last] == [(2000, "a")]
