"""Restating chains: the segments and states of exactly the entities that got deltas, and the published chains as read.

A run brings together the touching rows, and of each entity that they touch its published state and its segments from
the one on that the earliest of its rows falls into; of other entities a segment that age has compacted. What both
frontiers have passed goes with the next run that changes anything. Corrections of states and of segments are made in
one pass.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Observation
from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.checkpoints import ChainFrame
from spark_jobs.checkpoints.frames import NEEDED, PLACE, columns_needed, together
from spark_jobs.definitions.meaning import chain_inputs, meaning_of, policy_of
from spark_jobs.kernels.comparison import CLOSING, LIVE, without_closed
from spark_jobs.kernels.deltas.frontiers import ALWAYS, UNMOVED, Frontiers
from spark_jobs.kernels.deltas.mapping import Meaning
from spark_jobs.kernels.deltas.packing import unpack
from spark_jobs.kernels.deltas.segments import Segments
from spark_jobs.kernels.deltas.states import NO_DELTA
from spark_jobs.kernels.deltas.traffic import Traffic, entity_class
from spark_jobs.restatement.chain_stretches import ROW, SEGMENT_PART, STATE_PART
from spark_jobs.restatement.chain_worker import TYPED, ChainWorker, oldest_age, typed
from spark_jobs.restatement.published import published_rows
from spark_jobs.restatement.touched import Scope
from spark_jobs.sources import Source
from spark_jobs.storage.chain_files import DeltaFiles, delta_files
from spark_jobs.storage.chain_tables import CHAINS, CHAINS_PART, COMPACTION, METRICS, SEGMENT
from spark_jobs.storage.lake import Lake
from spark_jobs.storage.publication import Publication
from spark_jobs.storage.schema import Column as Stored
from spark_jobs.storage.tables import STATE
from spark_jobs.trace.frontiers import SourceFrontiers

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_TOLD = ("checkpoints", "merged", "dropped", "bytes_before", "bytes_after")
_VISIBLE = ("known_from", "known_to")
_STORED = ("source", "token")
_PRIOR = ("entity", "timestamp", "at_delta", "delta_count", "names", "ints", "floats", "seen", "revision", "era")
_TYPES = {
    "STRING": pa.string(), "BIGINT": pa.int64(), "INT": pa.int32(), "TINYINT": pa.int8(), "DOUBLE": pa.float64(),
    "BOOLEAN": pa.bool_(),
}  # fmt: skip


@dataclass(frozen=True)
class ChainCorrections:
    """The rows to append to `gold.state_history` and to `gold.chain_history`."""

    states: DataFrame
    segments: DataFrame
    _observed: Observation

    @property
    def counts(self) -> dict[str, int]:
        """`segments` and `checkpoints` written, segments `closed`, deltas `merged` into newest checkpoints and those
        `dropped` behind both frontiers, `bytes_before` and `bytes_after`; blocks until `segments` have been written."""
        return dict(self._observed.get)


def chain_corrections(
    lake: Lake, scope: Scope, token: int, *, traffic: Traffic | None = None
) -> ChainCorrections | None:
    """The corrections of a source that keeps chains; None if nothing touches it. `traffic` is for the strategy
    adaptive."""
    source, publication = scope.source, scope.publication
    touching, known_us = scope.touching(lake), 0
    frontiers = retention_of(scope.frontiers)
    if not scope.everything:
        known_us = publication.published_us
    rows = chain_inputs(touching, source, known_us)
    segments = published_rows(lake, CHAINS, publication).where(F.col("source") == source.name)
    states = _states(lake, scope)
    meaning, policy = meaning_of(source), policy_of(source)
    if not scope.everything:
        touched = touched_entities(rows)
        if touched is None:
            return None
        oldest = oldest_age(policy, scope.frontiers.reached_us)
        segments = needed_segments(segments, touched, frontiers, whole=meaning.with_parents, oldest=oldest)
        states = touched.of(states)
    worker = ChainWorker(
        meaning, policy, frontiers, scope.known_from_us, scope.frontiers.reached_us, scope.everything, chain_schema(),
        traffic,
    )  # fmt: skip
    both = rows.withColumn("part", F.lit(ROW))
    for part in (states, _segments(segments)):
        both = both.unionByName(part, allowMissingColumns=True)
    ddl = ", ".join(["part STRING", *(f"`{c.name}` {_plain(c.name, c.type)}" for c in _columns())])
    # not `persist`: Spark plans a cached query again at every write to a table that it reads
    placed = both.withColumn(PLACE, F.coalesce("event_time", "start_time", F.lit(NO_DELTA)))
    made = together(placed, PLACE).mapInArrow(worker, ddl).localCheckpoint()
    constants = {"source": F.lit(source.name), "token": F.lit(token).cast("bigint")}
    stamped = made.withColumns({c: F.timestamp_micros(c) for c in _VISIBLE}).withColumns(constants)
    states = stamped.where(F.col("part") == STATE_PART).withColumn("timestamp", F.timestamp_micros("timestamp"))
    observation = Observation(f"chains_{token}")
    chains = stamped.where(F.col("part") == SEGMENT_PART).observe(observation, *_counted())
    return ChainCorrections(
        states.select(*STATE.column_names).repartition(1).sortWithinPartitions("entity"),
        chains.select(*CHAINS.column_names).repartition(1).sortWithinPartitions("entity", "start_time", "start_row"),
        observation,
    )


def writes_by_class(lake: Lake, scope: Scope) -> tuple[dict[int, int], dict[int, int]]:
    """Published entities of each class (see `entity_class`), and the deltas that they have had."""
    states = published_rows(lake, STATE, scope.publication).where(F.col("source") == scope.source.name)
    held = F.when(F.col("era") == LIVE, 1).otherwise(-1)
    entities: Counter[int] = Counter()
    deltas: Counter[int] = Counter()
    for row in states.groupBy("delta_count").agg(F.sum(held).alias("entities")).collect():
        of_class = int(entity_class(row.delta_count))
        entities[of_class] += row.entities
        deltas[of_class] += row.entities * row.delta_count
    return entities, deltas


@dataclass(frozen=True)
class Touched:
    """The entities that rows touch (`entities`: `entity`, and `least`, the event time of the earliest row), and bounds
    over all of them."""

    entities: DataFrame
    least: int
    first: str
    last: str

    def of(self, rows: DataFrame) -> DataFrame:
        """Those rows that are of one of the entities."""
        return rows.where(self.in_range()).join(self.entities.select("entity"), "entity", "left_semi")

    def in_range(self) -> Column:
        """Whether an entity may be one of them, by which files are skipped."""
        return F.col("entity").between(F.lit(self.first), F.lit(self.last))


def touched_entities(rows: DataFrame) -> Touched | None:
    """Which entities the rows (`entity`, `event_time`) touch; None for no row."""
    entities = rows.groupBy("entity").agg(F.min("event_time").alias("least"))
    bounds = entities.agg(F.min("least"), F.min("entity"), F.max("entity")).collect()[0]
    return None if bounds[0] is None else Touched(entities, *bounds)


def needed_segments(
    segments: DataFrame, touched: Touched, frontiers: Frontiers, *, whole: bool, oldest: int | None
) -> DataFrame:
    """Of published segments those that a run works on: what its rows reach, what age has compacted, and what both
    frontiers have passed. All of it is told by columns with statistics and by a join with the touched entities, so what
    is left out is neither shuffled nor handed to a worker.

    Args:
        segments: rows of `gold.chain_history`, live and closing.
        touched: the entities of the rows.
        frontiers: what retention has moved.
        whole: whether all segments of a touched entity are reached: a parent may stand anywhere before its child.
        oldest: see `oldest_age`.
    """
    anyhow = _passed(frontiers)
    if oldest is not None:
        anyhow = anyhow | (F.col("ages_from") < oldest)
    of_touched = touched.in_range() if whole else touched.in_range() & _reached(F.lit(touched.least))
    found = segments.where(of_touched | anyhow).join(touched.entities, "entity", "left")
    reached = F.lit(True) if whole else _reached(F.col("least"))
    return found.where((F.col("least").isNotNull() & reached) | anyhow).drop("least")


def _counted() -> list[Column]:
    told = {name: F.sum(F.when(F.col("era") == COMPACTION, F.col(name))) for name in _TOLD}
    counts = {"segments": F.count_if(F.col("era") == LIVE), "closed": F.count_if(F.col("era") == CLOSING), **told}
    return [F.coalesce(count, F.lit(0)).alias(name) for name, count in counts.items()]


def retention_of(frontiers: SourceFrontiers) -> Frontiers:
    """Since and horizon as the kernels take them; before retention moves them nothing has passed."""
    since = frontiers.arrangement.since.time
    return Frontiers(since or ALWAYS, frontiers.horizon_us)


def published_chains(
    lake: Lake,
    source: Source,
    publication: Publication,
    *,
    entity: str | None = None,
    frontiers: Frontiers = UNMOVED,
) -> ChainFrame:
    """The published chains of a source: see `spark_jobs.checkpoints`. Times are in microseconds. `frontiers`: those
    below which reads are to be refused."""
    meaning = meaning_of(source)
    rows = published_rows(lake, CHAINS, publication).where(F.col("source") == source.name)
    if entity is not None:
        rows = rows.where(F.col("entity") == entity)
    numbers = {name: of[meaning.dtype != "int64"] for name, of in TYPED.items()}
    kind = {"int64": "bigint", "float64": "double", "float32": "float"}[meaning.dtype]
    columns = [F.col(numbers[c]).cast(f"array<{kind}>").alias(c) if c in numbers else F.col(c) for c in NEEDED]
    found = delta_files(lake.spark, CHAINS) if entity is None else None
    files = None if found is None else PublishedFiles(found, source.name, meaning, publication)
    return ChainFrame(_standing(rows).select(*columns), meaning, frontiers, files)


def published_segments(lake: Lake, source: Source, publication: Publication, entity: str) -> Segments:
    """The published segments of one entity, whose code is 0: read from the table's files, or by Spark where it has to.
    Times are in microseconds."""
    meaning = meaning_of(source)
    files = delta_files(lake.spark, CHAINS)
    if files is None:
        table = published_chains(lake, source, publication, entity=entity).segments.toArrow()
    else:
        table = PublishedFiles(files, source.name, meaning, publication).between(entity, entity)
    names = pa.array([entity], pa.string())
    return unpack(table, names, dtype=meaning.dtype, dims=meaning.dims, ids=meaning.with_parents)


@dataclass(frozen=True)
class PublishedFiles:
    """The published chains of a source in the files of `gold.chain_history`."""

    files: DeltaFiles
    source: str
    meaning: Meaning
    publication: Publication

    def between(self, least: str, greatest: str) -> pa.Table:
        """What `published_chains` gives of the entities from `least` to `greatest`, packed."""
        stored = [of[self.meaning.dtype != "int64"] for of in TYPED.values()]
        needed = [c for c in columns_needed(self.meaning) if c not in TYPED]
        schema = _segments_schema([*stored, *needed, *_VISIBLE, "token"])
        found = [schema.empty_table()]
        partitions = {"source": [self.source], "era": [LIVE, CLOSING]}
        for partition, rows in self.files.between(least, greatest, schema.names, partitions):
            era = pa.array([partition["era"]] * rows.num_rows, pa.string())
            columns = {name: rows[name] for name in rows.column_names} | {"era": era}
            missing = {f.name: pa.nulls(rows.num_rows, f.type) for f in schema}
            found.append(pa.table({f.name: (missing | columns)[f.name].cast(f.type) for f in schema}))
        rows = pa.concat_tables(found)
        for name in ("start_time", "start_row"):
            rows = rows.set_column(rows.schema.get_field_index(name), name, pc.fill_null(rows[name], NO_DELTA))
        live = without_closed(rows.filter(_published(rows, self.publication)), ["entity", "start_time", "start_row"])
        return typed(live, self.meaning)


def _segments_schema(names: list[str]) -> pa.Schema:
    kinds = {f.name: f.type for f in chain_schema()} | {"token": pa.int64(), "era": pa.string()}
    return pa.schema([(name, kinds[name]) for name in dict.fromkeys([*names, "era"])])


def _published(rows: pa.Table, publication: Publication) -> pa.Array:
    """Of rows of the history, which `published_rows` gives; closing rows too, which end some of them."""
    visible = pc.or_(
        pc.less_equal(rows["token"], publication.settled),
        pc.is_in(rows["token"], value_set=pa.array(publication.tokens, pa.int64())),
    )
    closing = pc.equal(rows["era"], CLOSING)
    since = pc.if_else(closing, rows["known_to"], rows["known_from"])
    return pc.and_(visible, pc.less(since, publication.published_us))


def chains_left_behind(lake: Lake, scope: Scope, token: int) -> DataFrame | None:
    """The rows that close all chains of a source which no longer keeps any; None where it kept none before."""
    if scope.source.keeps_chains or CHAINS_PART not in json.loads(scope.publication.definition or "{}"):
        return None
    rows = published_rows(lake, CHAINS, scope.publication).where(F.col("source") == scope.source.name)
    told = (*SEGMENT, "end_time", "settled_end", "ages_from", "deltas", "known_from", "revision")
    constants = {
        "dropped": F.lit(0), "known_to": F.timestamp_micros(F.lit(scope.known_from_us)), "era": F.lit(CLOSING),
        "token": F.lit(token),
    }  # fmt: skip
    missing = [c for c in CHAINS.columns if c.name not in {*told, *constants}]
    empty = {c.name: F.lit(None).cast(c.type) for c in missing}
    return _standing(rows).select(*told).withColumns(constants | empty)


def _standing(rows: DataFrame) -> DataFrame:
    """The live segments that no closing row ends."""
    live, closing = (rows.where(F.col("era") == era).alias(era) for era in (LIVE, CLOSING))
    same = F.lit(True)
    for column in (*SEGMENT[1:], "known_from"):
        same = same & F.col(f"{LIVE}.{column}").eqNullSafe(F.col(f"{CLOSING}.{column}"))
    return live.join(F.broadcast(closing), same, "left_anti")


def _reached(event_time: Column) -> Column:
    """Segments that a row at or after this time can fall into or come before."""
    return F.col("end_time").isNull() | (F.col("end_time") >= event_time)


def _passed(frontiers: Frontiers) -> Column:
    """Segments that no read needs any more."""
    settled = F.col("settled_end").isNull() | (F.col("settled_end") <= frontiers.since)
    return (F.col("end_time") < frontiers.horizon) & settled & F.lit(frontiers.since > ALWAYS)


def _states(lake: Lake, scope: Scope) -> DataFrame:
    states = published_rows(lake, STATE, scope.publication).where(F.col("source") == scope.source.name)
    timed = {c: F.unix_micros(c) for c in ("timestamp", "known_from")}
    return states.withColumns(timed).select(*_PRIOR, "known_from", F.lit(STATE_PART).alias("part"))


def _segments(rows: DataFrame) -> DataFrame:
    """Published segments as the worker takes them: starts that are null are so by a number, for joins."""
    starts = {c: F.coalesce(c, F.lit(NO_DELTA)) for c in ("start_time", "start_row")}
    times = {c: F.unix_micros(c) for c in _VISIBLE}
    held = [c.name for c in _columns() if c not in METRICS]
    return rows.withColumns(starts | times).select(*held, F.lit(SEGMENT_PART).alias("part"))


def _columns() -> list[Stored]:
    return [c for c in CHAINS.columns if c.name not in _STORED]


def _plain(name: str, kind: str) -> str:
    return "BIGINT" if name in _VISIBLE else kind


def chain_schema() -> pa.Schema:
    """What the worker puts out: `part` and the columns of `gold.chain_history`, visible times as integers."""

    def arrow(kind: str) -> pa.DataType:
        element = kind.removeprefix("ARRAY<").removesuffix(">")
        return pa.list_(_TYPES[element]) if element != kind else _TYPES[kind]

    return pa.schema([("part", pa.string()), *((c.name, arrow(_plain(c.name, c.type))) for c in _columns())])
