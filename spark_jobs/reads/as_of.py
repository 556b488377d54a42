"""Reads of the past: windows as they were known at a visible time, states at an event time as known at a visible time.

A read at T sums the changes with a time of at most T. A change of a published table carries its publication's time, a
delta its own: so between two publications tables read as the earlier left them, and states know each delta that was
visible. Which T can be read, `reads.point` says.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.checkpoints.frames import BUCKET, LEAST_ROWS, state_columns, state_ddl, together
from spark_jobs.definitions.definition import Definition
from spark_jobs.definitions.folding import fold_inputs, fold_rows
from spark_jobs.definitions.meaning import meaning_of
from spark_jobs.errors import ParameterError
from spark_jobs.kernels.deltas.asking import states_for
from spark_jobs.kernels.deltas.frontiers import LATEST
from spark_jobs.kernels.deltas.ops import Status
from spark_jobs.kernels.deltas.segments import Segments
from spark_jobs.kernels.deltas.transforms import REGISTERED
from spark_jobs.kernels.grouping import whole_groups
from spark_jobs.reads.point import ReadPoint
from spark_jobs.restatement.chains import published_chains, published_segments
from spark_jobs.restatement.touched import at
from spark_jobs.sources import Source
from spark_jobs.storage.lake import Lake
from spark_jobs.storage.sql import literal, qualified
from spark_jobs.trace.source_plane import counting_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def windows_as_of(lake: Lake, definition: Definition, at_us: int | None = None) -> DataFrame:
    """The rows of a window table as they were known at `at_us`, by its SQL function: key columns, bounds, aggregates,
    revision, known_from."""
    time_us = ReadPoint.open(lake, definition.source, at_us).known_us
    # text in the statement: Spark does not bind parameters in a table function's arguments
    return lake.run(
        f"SELECT * FROM {qualified('silver', f'{definition.name}_as_of')}"
        f"(timestamp_micros(CAST({literal(str(time_us))} AS BIGINT)))"
    )


def states_at(
    lake: Lake, source: Source, *, event_us: int | None = None, known_us: int | None = None, entity: str | None = None
) -> DataFrame:
    """States at an event time (None: all that is published) as known at a visible time (None: the newest).

    Folds the entity's deltas with `event_time <= event_us` and `time <= known_us`: from the chains where the source
    keeps them, else from the trace. Exact for every pair of times. Columns: the entity under its own name, one per
    component (or `vector`), `timestamp`, `at_delta`, `delta_count`.

    Raises:
        BelowHorizon: `event_us` lies before the horizon.
        NotPublished, BelowSince: as `ReadPoint.open`.
    """
    if source.state is None:
        raise ParameterError(
            expected="a source with `state` in its file",
            found=source.name,
            next_step="declare `state` in the source file",
        )
    point = ReadPoint.open(lake, source, known_us)
    time_us, limit_us = point.known_us, point.event_limit(event_us)
    if source.keeps_chains and entity is not None:
        segments = published_segments(lake, source, point.publication, entity)
        asked = (LATEST if event_us is None else limit_us, LATEST if known_us is None else time_us)
        return _of_source(_state_of(lake, source, segments, entity, *asked), source)
    if source.keeps_chains:
        chains = published_chains(lake, source, point.publication)
        # of the newest times one segment of an entity says all; of others those before it may be needed
        return _of_source(chains.states(event_us and limit_us, known_at=known_us and time_us), source)
    rows = counting_rows(lake, source, point.frontiers.arrangement)
    rows = rows.where((F.col("time") <= at(time_us)) & (F.col("event_time") <= at(limit_us)))
    if entity is not None:
        rows = rows.where(F.col("entity") == entity)
    value = "BIGINT" if source.state.datatype == "int64" else "DOUBLE"
    columns = [f"`{source.entity}` STRING", *[f"`{c}` {value}" for c in source.state.components]]
    schema = ", ".join([*columns, "timestamp BIGINT", "at_delta BIGINT", "delta_count BIGINT"])
    folded = together(fold_inputs(rows, source)).mapInArrow(_StatesAt(source), schema)
    return folded.withColumn("timestamp", F.timestamp_micros("timestamp"))


def _state_of(lake: Lake, source: Source, segments: Segments, entity: str, event_us: int, known_us: int) -> DataFrame:
    """As `ChainFrame.states` of one entity, whose segments are at hand."""
    meaning = meaning_of(source)
    asked = (np.array([time]) for time in (0, event_us, known_us))
    states = states_for(segments, *asked, transforms=REGISTERED)
    live = np.flatnonzero(states.status == Status.LIVE)
    told = pa.table({"entity": pa.array([entity] * len(live)), **state_columns(states.take(live), meaning)})
    return lake.spark.createDataFrame([tuple(row.values()) for row in told.to_pylist()], state_ddl(meaning))


def _of_source(states: DataFrame, source: Source) -> DataFrame:
    return states.withColumnRenamed("entity", source.entity).withColumn("timestamp", F.timestamp_micros("timestamp"))


@dataclass(frozen=True)
class _StatesAt:
    """What runs in the Python workers: all rows of whole entities to their states, one column per component."""

    source: Source

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        components = _components(self.source)
        names = [self.source.entity, *components, "timestamp", "at_delta", "delta_count"]
        for rows in whole_groups(batches, [BUCKET], least_rows=LEAST_ROWS):
            states = fold_rows(rows, self.source)
            vectors = [pa.compute.list_element(states["vector"], i) for i in range(len(components))]
            tail = [states[name] for name in ("timestamp", "at_delta", "delta_count")]
            yield from pa.table([states["entity"], *vectors, *tail], names=names).to_batches()


def _components(source: Source) -> list[str]:
    return [] if source.state is None else list(source.state.components)
