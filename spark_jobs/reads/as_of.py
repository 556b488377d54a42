"""Reads of the past: windows as they were known at a visible time, states at an event time as known at a visible time.

A read at T sums the changes with a time of at most T. A change of a published table carries its publication's time, a
delta its own: so between two publications tables read as the earlier left them, and states know each delta that was
visible. It is definite: T must be below `published` (`not_published`) and not below `since` (`below_since`), and then
the answer stays the same, whatever lands, is backfilled or compacted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.checkpoints import ChainFrame
from spark_jobs.definitions.definition import Definition
from spark_jobs.definitions.folding import fold_inputs, fold_rows
from spark_jobs.errors import ParameterError, TidemarkError
from spark_jobs.restatement.chains import published_chains
from spark_jobs.restatement.touched import at
from spark_jobs.sources import Source
from spark_jobs.storage import publication
from spark_jobs.storage.lake import Lake
from spark_jobs.storage.publication import Publication
from spark_jobs.storage.sql import literal, qualified
from spark_jobs.storage.times import instant
from spark_jobs.trace import frontiers
from spark_jobs.trace.advance import counting_rows
from spark_jobs.trace.horizon import check_state_time, published_horizon

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class NotPublished(TidemarkError):
    """The time asked for is not published yet. Facts: `at_us`, `published_us`."""

    code = "not_published"


class BelowSince(TidemarkError):
    """The time asked for lies before what is kept apart. Facts: `at_us`, `since_us`."""

    code = "below_since"


def as_of_time(lake: Lake, source: Source, at_us: int | None) -> tuple[int, Publication]:
    """The visible time to read at, checked (None: the newest, one tick before `published`), and the publication.

    Raises:
        NotPublished: nothing is published at that time yet.
        BelowSince: the time lies before `since`.
    """
    current = publication.load(lake, source)
    return check_time(lake, source, current, at_us), current


def check_time(lake: Lake, source: Source, current: Publication, at_us: int | None) -> int:
    """`as_of_time` where the publication is at hand."""
    newest = current.published_us - 1
    if current.published_us == 0:
        raise NotPublished(
            expected=f"something published of {source.name}",
            found="nothing",
            consequence="no answer was given",
            next_step=f"run its drops first: `tidemark run {source.name} --from … --to …`",
            at_us=at_us,
            published_us=current.published_us,
        )
    if at_us is None:
        return newest
    if at_us > newest:
        raise NotPublished(
            expected=f"a time before what {source.name} has published",
            found=instant(at_us).isoformat(),
            consequence="no answer was given, since it could still change",
            next_step=f"{instant(newest).isoformat()} is the newest; run the drops up to that time first",
            at_us=at_us,
            published_us=current.published_us,
        )
    since_us = frontiers.load(lake, source, near=current.token).arrangement.since.time or 0
    if at_us < since_us:
        raise BelowSince(
            expected=f"a time at or after since, {instant(since_us).isoformat()}",
            found=instant(at_us).isoformat(),
            consequence="no answer was given, since times before it are no longer told apart",
            next_step="ask for a later time, or restore a pinned checkpoint",
            at_us=at_us,
            since_us=since_us,
        )
    return at_us


def windows_as_of(lake: Lake, definition: Definition, at_us: int | None = None) -> DataFrame:
    """The rows of a window table as they were known at `at_us`, by its SQL function: key columns, bounds, aggregates,
    revision, known_from."""
    time_us, _ = as_of_time(lake, definition.source, at_us)
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
        NotPublished, BelowSince: as `as_of_time`.
    """
    if source.state is None:
        raise ParameterError(
            expected="a source with `state` in its file",
            found=source.name,
            next_step="declare `state` in the source file",
        )
    time_us, current = as_of_time(lake, source, known_us)
    limit_us = current.reached_us - 1 if event_us is None else min(event_us, current.reached_us - 1)
    standing = frontiers.load(lake, source, near=current.token)
    check_state_time(published_horizon(source, standing, current), limit_us)
    if source.keeps_chains:
        chains = published_chains(lake, source, current, entity=entity)
        # of the newest times one segment of an entity says all; of others those before it may be needed
        return _from_chains(chains, source, event_us and limit_us, known_us and time_us)
    rows = counting_rows(lake, source, standing.arrangement)
    rows = rows.where((F.col("time") <= at(time_us)) & (F.col("event_time") <= at(limit_us)))
    if entity is not None:
        rows = rows.where(F.col("entity") == entity)
    value = "BIGINT" if source.state.datatype == "int64" else "DOUBLE"
    columns = [f"`{source.entity}` STRING", *[f"`{c}` {value}" for c in source.state.components]]
    schema = ", ".join([*columns, "timestamp BIGINT", "at_delta BIGINT", "delta_count BIGINT"])
    folded = fold_inputs(rows, source).repartition("entity").mapInArrow(_StatesAt(source), schema)
    return folded.withColumn("timestamp", F.timestamp_micros("timestamp"))


def _from_chains(chains: ChainFrame, source: Source, event_us: int | None, known_us: int | None) -> DataFrame:
    states = chains.states(event_us, known_at=known_us)
    return states.withColumnRenamed("entity", source.entity).withColumn("timestamp", F.timestamp_micros("timestamp"))


@dataclass(frozen=True)
class _StatesAt:
    """What runs in the Python workers: all rows of a partition's entities to their states, one column per component."""

    source: Source

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        held = list(batches)
        if not held:
            return
        states = fold_rows(pa.Table.from_batches(held), self.source)
        components = _components(self.source)
        vectors = [pa.compute.list_element(states["vector"], i) for i in range(len(components))]
        tail = [states[name] for name in ("timestamp", "at_delta", "delta_count")]
        names = [self.source.entity, *components, "timestamp", "at_delta", "delta_count"]
        yield from pa.table([states["entity"], *vectors, *tail], names=names).to_batches()


def _components(source: Source) -> list[str]:
    return [] if source.state is None else list(source.state.components)
