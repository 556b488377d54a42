"""Reads of the past: windows as they were known at a visible time, states at an event time as known at a visible time.

A read at T sums the changes with a time of at most T. A change of a published table carries the time of its
publication; a delta carries its own time. So between two publications a table reads as the earlier publication left
it, and a state includes each delta that was visible by then. `reads.point` decides for which T a read is possible.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.definitions.definition import Definition
from spark_jobs.definitions.folding import columns_read, fold_inputs, fold_rows, folded_columns
from spark_jobs.definitions.meaning import meaning_of
from spark_jobs.engine.columns import whole_groups
from spark_jobs.engine.deltas import LATEST, REGISTERED, Status, states_for
from spark_jobs.engine.spark.checkpoints import BUCKET, LEAST_ROWS, state_columns, together
from spark_jobs.errors import ParameterError
from spark_jobs.reads.point import ReadPoint
from spark_jobs.restatement.chains import published_chains, published_segments
from spark_jobs.restatement.touched import at, instant
from spark_jobs.sources import Source, State
from spark_jobs.storage.descriptions.column_types import INSTANT
from spark_jobs.storage.descriptions.sql import literal, qualified
from spark_jobs.storage.lakes.lake import FrameLake, Lake
from spark_jobs.trace.source_plane import counting_rows, stored_counting_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def windows_as_of(lake: FrameLake, definition: Definition, at_us: int | None = None) -> DataFrame:
    """The rows of a window table as they were known at `at_us` (microseconds; None: the newest), read by the table's
    SQL function. Columns: the key, the window's bounds, aggregates, revision, known_from."""
    time_us = ReadPoint.of_publication(lake, definition.source, at_us).known_us
    # text in the statement: Spark does not bind parameters in a table function's arguments
    return lake.spark.sql(
        f"SELECT * FROM {qualified('silver', f'{definition.name}_as_of')}"
        f"(timestamp_micros(CAST({literal(str(time_us))} AS BIGINT)))"
    )


def states_at(
    lake: FrameLake, source: Source, *, event_us: int | None = None, known_us: int | None = None
) -> DataFrame:
    """States at an event time (None: all that is published) as known at a visible time (None: the newest).

    Folds an entity's deltas with `event_time <= event_us` and `time <= known_us` (microseconds): from the chains if the
    source keeps them, else from the trace. Exact for every pair of times. Columns: the entity under its own name, one
    per component (or `vector`), `timestamp`, `at_delta`, `delta_count`.

    Raises:
        BelowHorizon: `event_us` lies before the horizon.
        NotPublished, BelowSince: as `ReadPoint.open`.
    """
    state = _state_of(source)
    point = ReadPoint.open(lake, source, known_us)
    time_us, limit_us = point.known_us, point.event_limit(event_us)
    if source.keeps_chains:
        chains = published_chains(lake, source, point.publication)
        # at the newest times one segment of an entity is enough; for other times earlier segments may be needed
        states = chains.states(event_us and limit_us, known_at=known_us and time_us)
        states = states.withColumnRenamed("entity", source.entity)
        return states.withColumn("timestamp", F.timestamp_micros("timestamp"))
    rows = counting_rows(lake, source, point.frontiers.arrangement)
    rows = rows.where((F.col("time") <= at(time_us)) & (F.col("event_time") <= at(limit_us)))
    value = "BIGINT" if state.datatype == "int64" else "DOUBLE"
    columns = [f"`{source.entity}` STRING", *[f"`{c}` {value}" for c in state.components]]
    schema = ", ".join([*columns, "timestamp BIGINT", "at_delta BIGINT", "delta_count BIGINT"])
    folded = together(fold_inputs(rows, source)).mapInArrow(_StatesAt(source), schema)
    return folded.withColumn("timestamp", F.timestamp_micros("timestamp"))


def entity_state(
    lake: Lake, source: Source, entity: str, *, event_us: int | None = None, known_us: int | None = None
) -> pa.Table:
    """The state of one entity, as `states_at` gives it, read without Spark from the files that can contain the entity.

    One row; no row if the entity has no state at that time.
    """
    _state_of(source)
    point = ReadPoint.open(lake, source, known_us)
    time_us, limit_us = point.known_us, point.event_limit(event_us)
    if source.keeps_chains:
        segments = published_segments(lake, source, point.publication, entity)
        asked = (0, LATEST if event_us is None else limit_us, LATEST if known_us is None else time_us)
        states = states_for(segments, *(np.array([time]) for time in asked), transforms=REGISTERED)
        live = np.flatnonzero(states.status == Status.LIVE)
        columns = state_columns(states.take(live), meaning_of(source))
        states_then = pa.table({source.entity: pa.array([entity] * len(live), pa.string()), **columns})
    else:
        is_known = (pc.field("time") <= instant(time_us)) & (pc.field("event_time") <= instant(limit_us))
        due = (pc.field("entity") == entity) & is_known
        rows = stored_counting_rows(lake, source, point.frontiers.arrangement, columns_read(source), due).whole()
        states_then = _with_components(fold_rows(folded_columns(rows, source), source), source)
    place = states_then.schema.get_field_index("timestamp")
    return states_then.set_column(place, "timestamp", states_then["timestamp"].cast(INSTANT))


def _state_of(source: Source) -> State:
    if source.state is None:
        raise ParameterError(
            expected="a source with `state` in its file",
            found=source.name,
            next_step="declare `state` in the source file",
        )
    return source.state


def _with_components(states: pa.Table, source: Source) -> pa.Table:
    """The states as people see them: one column per component in place of the vector."""
    assert source.state is not None, "callers look whether the source has state"
    components = list(source.state.components)
    vectors = [pc.list_element(states["vector"], i) for i in range(len(components))]
    tail = ["timestamp", "at_delta", "delta_count"]
    columns = [states["entity"], *vectors, *(states[name] for name in tail)]
    return pa.table(columns, names=[source.entity, *components, *tail])


@dataclass(frozen=True)
class _StatesAt:
    """The function that Python workers run: folds all rows of whole entities into states, one column per component."""

    source: Source

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in whole_groups(batches, [BUCKET], least_rows=LEAST_ROWS):
            yield from _with_components(fold_rows(rows, self.source), self.source).to_batches()
