"""All states that entities went through, as known at one time: rows in which plain SQL finds the state at any time.

SELECT * FROM versions WHERE valid_from <= E AND (valid_to > E OR valid_to IS NULL)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.engine.columns.grouping import whole_groups
from spark_jobs.engine.deltas.asking import states_for
from spark_jobs.engine.deltas.frontiers import ALWAYS, LATEST
from spark_jobs.engine.deltas.mapping import Meaning
from spark_jobs.engine.deltas.ops import Status
from spark_jobs.engine.deltas.transforms import REGISTERED
from spark_jobs.engine.spark.checkpoints.frames import (
    BUCKET,
    LEAST_ROWS,
    ChainFrame,
    columns_needed,
    state_columns,
    state_ddl,
    together,
    unpack_segments,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def versions_at(chains: ChainFrame, known_at: int, horizon: int = ALWAYS) -> DataFrame:
    """Every state that an entity had at an event time from `horizon` on, as known at `known_at`.

    Columns: entity, the components (or `vector`), timestamp, at_delta, delta_count, `valid_from` and `valid_to`. The
    last two are the half-open interval of event time in which the entity has the state (null: to the end). Times are
    integers. An entity has no row for times at which it was not live.
    """
    needed = [c for c in columns_needed(chains.meaning) if c in chains.segments.columns]
    worker = VersionsAt(chains.meaning, known_at, horizon)
    ddl = f"{state_ddl(chains.meaning)}, valid_from BIGINT, valid_to BIGINT"
    return together(chains.segments.select(*needed)).mapInArrow(worker, ddl)


@dataclass(frozen=True)
class VersionsAt:
    """The task of the Python workers that turns the segments of whole entities into versions."""

    meaning: Meaning
    known_at: int
    horizon: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The versions of the entities, one group of entities after the other."""
        for group in whole_groups(batches, [BUCKET], least_rows=LEAST_ROWS):
            yield from self._versions(group).to_batches()

    def _versions(self, group: pa.Table) -> pa.Table:
        entities = pc.unique(group.column("entity").combine_chunks())
        segments = unpack_segments(group, entities, self.meaning)
        visible = (segments.known_from <= self.known_at) & (self.known_at < segments.known_to)
        times = np.maximum(segments.deltas.event_time[visible], self.horizon)
        # deltas behind both frontiers are only in a checkpoint: ask for the state at the horizon, too
        codes = np.concatenate((segments.entity[segments.deltas.entity[visible]], np.arange(len(entities))))
        questions = np.stack((codes, np.append(times, np.full(len(entities), self.horizon))))
        entity, valid_from = np.unique(questions, axis=1)
        known_at = np.full(len(entity), self.known_at)
        states = states_for(segments, entity, valid_from, known_at, transforms=REGISTERED)
        same = states.row_id[1:] == states.row_id[:-1]
        same &= (states.event_time[1:] == states.event_time[:-1]) & (entity[1:] == entity[:-1])
        # a delta that its chain refuses makes no version
        kept = np.flatnonzero(np.append(True, ~same))
        entity, valid_from, states = entity[kept], valid_from[kept], states.take(kept)
        ends = np.append(np.where(entity[1:] == entity[:-1], valid_from[1:], LATEST), LATEST)
        live = np.flatnonzero(states.status == Status.LIVE)
        columns = {"entity": entities.take(pa.array(entity[live])), **state_columns(states.take(live), self.meaning)}
        bounds = {"valid_from": valid_from[live], "valid_to": pa.array(ends[live], mask=ends[live] == LATEST)}
        return pa.table({**columns, **bounds})
