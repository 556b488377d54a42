"""Chains of many entities as a DataFrame: compaction, states of any time, and the point-in-time join.

A row is a segment: a checkpoint and, in lists, the deltas after it (`engine.deltas.packing`). A read needs, per
entity, the segment into which its event time falls. If its checkpoint was not settled yet at the visible time of the
read, it also needs the segments before it, back to one whose checkpoint was.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, DataType, DoubleType, FloatType, LongType

from spark_jobs.engine.columns.grouping import whole_groups
from spark_jobs.engine.deltas.asking import states_for
from spark_jobs.engine.deltas.cutting import CompactionPolicy
from spark_jobs.engine.deltas.frontiers import LATEST, UNMOVED, Frontiers
from spark_jobs.engine.deltas.mapping import Meaning, changes_of
from spark_jobs.engine.deltas.ops import Status
from spark_jobs.engine.deltas.packing import pack, segment_schema, unpack
from spark_jobs.engine.deltas.parting import parts_of
from spark_jobs.engine.deltas.restating import RestatedChains, restate_chains
from spark_jobs.engine.deltas.segments import Segments
from spark_jobs.engine.deltas.states import States
from spark_jobs.engine.deltas.transforms import REGISTERED
from spark_jobs.engine.spark.checkpoints.questions import (
    ROW,
    answer,
    answered,
    answered_type,
    questions_of,
    refuse_taken,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

LEAST_ROWS = 1 << 16
"""The number of rows that a worker processes at once, if entities are small."""

PART_BYTES = 1 << 26
"""The size of deltas and segments in Arrow, in bytes, that a worker processes at once.

A bucket with more bytes is processed in spans of event time. If rows declare parents, it is not parted, because a
parent may be anywhere before its child."""

PLACE = "place"
"""The column with the event time from which on a row changes its chain."""

QUESTIONS = 1 << 14
"""The number of questions for which a worker reads the segments of their entities at once, if it reads from files."""

BUCKET, BUCKETS = "bucket", 4096
"""The column by which the rows of an entity are brought together, and the number of its values.

Spark sorts by a number several times as fast as by text; the kernels sort the rows of a bucket further."""

NEEDED = (
    "entity", "start_time", "start_row", "end_time", "settled", "settled_end", "timestamp", "at_delta", "delta_count",
    "deleted", "vector", "seen", "encoding", "event_times", "row_ids", "known", "known_until", "ops", "refusals",
    "sizes", "indices", "values", "given", "scalars", "transforms", "delta_ids", "parents", "sequences",
)  # fmt: skip
"""The columns of a segment that a read may need; `columns_needed` returns those for a meaning."""


class SegmentFiles(Protocol):
    """Packed segments in files that the workers read by themselves."""

    def between(self, least: str, greatest: str) -> pa.Table:
        """All segments of the entities from `least` to `greatest`, with the columns that a read needs."""
        ...


@dataclass(frozen=True)
class ChainFrame:
    """Packed segments as a DataFrame (`segments`, times as integers), with the meaning of the deltas.

    `frontiers` are the times from which on all deltas are there. `files` are the same segments, if workers can read
    them without Spark."""

    segments: DataFrame
    meaning: Meaning
    frontiers: Frontiers = UNMOVED
    files: SegmentFiles | None = None

    def states(
        self, event_time: int | None = None, *, known_at: int | None = None, entity: str | None = None
    ) -> DataFrame:
        """One row per entity that is live at `event_time` (None: the latest) as known at `known_at` (None: now).

        Columns: entity, the components (or `vector`), timestamp, at_delta, delta_count. Times are integers.

        Raises BelowHorizon or BelowSince for a time before the frontiers.
        """
        self.frontiers.check_read(event_time, known_at)
        rows = self._select_needed()
        if entity is not None:
            rows = rows.where(F.col("entity") == entity)
        rows = rows.where(needed_for(event_time, known_at))
        # as known now, every entity has one segment
        rows = rows.withColumn(BUCKET, F.col("entity")) if known_at is None else together(rows)
        asker = _StatesAt(self.meaning, _or_latest(event_time), _or_latest(known_at))
        return rows.mapInArrow(asker, state_ddl(self.meaning))

    def _select_needed(self) -> DataFrame:
        return self.segments.select(*[c for c in columns_needed(self.meaning) if c in self.segments.columns])

    def join_as_of(
        self, df: DataFrame, *, entity: str, time: str, known_at: str | None = None, prefix: str = ""
    ) -> DataFrame:
        """`df` with the state of each row's entity at the time of the row; see `join_as_of`."""
        names = [f"{prefix}{name}" for name in [*_components(self.meaning), "timestamp", "at_delta"]]
        refuse_taken(df, names)
        asked = questions_of(df, entity=entity, time=time, known_at=known_at or time)
        if self.files is None:
            brought = together(asked.unionByName(self._select_needed(), allowMissingColumns=True))
        else:
            brought = asked.repartitionByRange("entity").sortWithinPartitions("entity")
        joiner = _JoinAsOf(self.meaning, self.frontiers, self.files)
        joined = brought.mapInArrow(joiner, answered_type(df, _answers(self.meaning)))
        return answered(joined, df, names, time=time, stamp=len(names) - 2)


def join_as_of(
    df: DataFrame, entity: str, time: str, *, chains: ChainFrame, known_at: str | None = None, prefix: str = ""
) -> DataFrame:
    """Every row of `df` with the state of its entity at its time, for training sets without leaks.

    The state is that of the deltas whose event time is not after the row's, as far as they were known at a visible
    time. By default this is the row's own `time`, so that the state has no data that a model could not have known.
    Otherwise it is the row's `known_at`, a column of visible times.

    Args:
        df: any rows; the result has each of them as often as `df`, in any order.
        entity: the column of `df` with the entity.
        time: the column of `df` with the event time: a timestamp, a date (its midnight), both in UTC if they have no
            zone, or whole numbers in ticks of the chains. A row with null has no state.
        chains: the published chains of a source (`spark_jobs.jobs.reads.chains_of`), or the chains of a DataFrame of
            deltas (`compact_deltas`).
        known_at: the column of `df` with the visible time.
        prefix: the prefix of the joined columns: one per component (or `vector`), and `timestamp` and `at_delta` of the
            last delta folded in. All are null if the entity was not live. For a time that is not published yet, they
            have the state as published so far, which can still change.

    Raises:
        ParameterError: a name or a type does not fit, or a column has the name of a joined one.
        BelowHorizon, BelowSince: a row's time is before the times that retention keeps exact. Spark's worker raises
            this when the join is read.
    """
    return chains.join_as_of(df, entity=entity, time=time, known_at=known_at, prefix=prefix)


def columns_needed(meaning: Meaning) -> list[str]:
    """The columns that a read sends to the workers.

    Each column has a cost, even if all its lists are empty. So columns that rows of this meaning never fill are left
    out."""
    never = set() if meaning.operations is not None else {"scalars", "transforms"}
    if not meaning.with_parents:
        never |= {"delta_ids", "parents"}
    if meaning.sequence is None:
        never.add("sequences")
    return [c for c in NEEDED if c not in never]


def together(rows: DataFrame, *within: str) -> DataFrame:
    """The rows with all rows of an entity in one partition, in the same `BUCKET` as those of a few other entities.

    The rows of a bucket are together, ordered by the columns `within`."""
    bucket = F.pmod(F.xxhash64("entity"), F.lit(BUCKETS)).cast("int")
    return rows.withColumn(BUCKET, bucket).repartition("entity").sortWithinPartitions(BUCKET, *within)


def needed_for(event_time: int | None, known_at: int | None) -> Column:
    """The condition that a segment is needed for a state at (event_time, known_at); None stands for the latest.

    It only bounds columns that have statistics, so that files can be skipped."""
    after = F.col("end_time").isNull()
    if event_time is not None:
        after = after | (F.col("end_time") > F.lit(event_time))
    if known_at is not None:
        after = after | (F.col("settled_end") > F.lit(known_at))
    if event_time is None:
        return after
    return after & (F.col("start_time").isNull() | (F.col("start_time") <= F.lit(event_time)))


def compact_deltas(
    deltas: DataFrame,
    meaning: Meaning,
    policy: CompactionPolicy,
    *,
    as_of: int = LATEST,
    since: int | None = None,
    horizon: int | None = None,
) -> ChainFrame:
    """The compacted chains of a DataFrame of deltas.

    If deltas are small, a session that cuts batches by rows alone sends them to the workers faster: see "Batches" in
    `spark_jobs/engine/spark/windows/README.md`.

    Args:
        deltas: the columns `entity` (text), `event_time`, `time` (at which a row became visible), `row_id`, `diff` (+1,
            or -1 if it is taken back), and those that `meaning` names. Times are integers; rows may be in any order.
            If a row is known twice at one time, reads of the chains fail (`duplicate_delta`); so they do for a delta
            id, if rows declare parents.
        meaning: the mapping from rows to deltas.
        policy: the rules by which checkpoints are placed.
        as_of: the event time from which the age of pending deltas counts.
        since: the least visible time of reads (None: reads at any time are allowed).
        horizon: the least event time of reads. Deltas that both frontiers have passed are dropped.
    """
    given = {name: value for name, value in (("since", since), ("horizon", horizon)) if value is not None}
    compactor = _Compactor(meaning, policy, min(as_of, LATEST), Frontiers(**given))
    placed = deltas.withColumn(PLACE, F.col("event_time"))
    made = together(placed, PLACE).mapInArrow(compactor, _ddl(compactor.schema()))
    return ChainFrame(made, meaning, compactor.frontiers)


@dataclass(frozen=True)
class _Compactor:
    """The task of the Python workers that turns deltas of whole entities into packed segments."""

    meaning: Meaning
    policy: CompactionPolicy
    as_of: int
    frontiers: Frontiers

    def schema(self) -> pa.Schema:
        return segment_schema(pa.from_numpy_dtype(np.dtype(self.meaning.dtype)))

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        most_bytes = None if self.meaning.with_parents else PART_BYTES
        parts = parts_of(batches, group=BUCKET, time=PLACE, least_rows=LEAST_ROWS, most_bytes=most_bytes)
        ahead = self.schema().empty_table()
        for part, until in parts:
            names = pa.chunked_array([*ahead["entity"].chunks, *part["entity"].chunks], pa.string())
            entities = pc.unique(names)
            step = restate_chains(
                unpack_segments(ahead, entities, self.meaning), changes_of(part, entities, self.meaning), self.policy,
                as_of=self.as_of, frontiers=self.frontiers, transforms=REGISTERED,
            )  # fmt: skip
            # segments that later deltas of the entity may fall into are restated together with those deltas
            reached = np.full(len(step.segments), False) if until is None else step.segments.end_time >= until
            reached_now, ahead = (self._pack(step, entities, which) for which in (~reached, reached))
            yield from reached_now.to_batches()

    def _pack(self, step: RestatedChains, entities: pa.Array, which: npt.NDArray[np.bool_]) -> pa.Table:
        numbers, meaning = np.flatnonzero(which & ~step.passed), self.meaning
        return pack(step.segments, entities, names=meaning.names, full_rows=meaning.full_rows, only=numbers)


def unpack_segments(table: pa.Table, entities: pa.Array, meaning: Meaning) -> Segments:
    """The packed segments of these entities, in the form of the kernels."""
    return unpack(table, entities, dtype=meaning.dtype, dims=meaning.dims, ids=meaning.with_parents)


@dataclass(frozen=True)
class _StatesAt:
    """The task of the Python workers that turns the needed segments into one state per entity."""

    meaning: Meaning
    event_time: int
    known_at: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for group in whole_groups(batches, [BUCKET], least_rows=LEAST_ROWS):
            entities = pc.unique(group.column("entity").combine_chunks())
            codes = np.arange(len(entities))
            asked = (np.full(len(codes), limit) for limit in (self.event_time, self.known_at))
            states = states_for(unpack_segments(group, entities, self.meaning), codes, *asked, transforms=REGISTERED)
            live = np.flatnonzero(states.status == Status.LIVE)
            columns = {"entity": entities.take(pa.array(live)), **state_columns(states.take(live), self.meaning)}
            yield from pa.table(columns).to_batches()


@dataclass(frozen=True)
class _JoinAsOf:
    """The task of the Python workers that joins questions about whole entities with states of the entities.

    The segments come with the questions, or are read from `files`."""

    meaning: Meaning
    frontiers: Frontiers
    files: SegmentFiles | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for questions, chains in self._bring(batches) if self.files is None else self._read(batches, self.files):
            if not questions.num_rows:
                continue
            entities = pc.unique(chains.column("entity").combine_chunks())
            codes = pc.fill_null(pc.index_in(questions.column("entity"), value_set=entities), len(entities))
            asked = [pc.fill_null(questions.column(c), -LATEST).to_numpy() for c in ("asked_time", "asked_known")]
            self.frontiers.check_read(*(pc.min(questions.column(c)).as_py() for c in ("asked_time", "asked_known")))
            segments = unpack_segments(
                chains.select([c for c in chains.column_names if c in NEEDED]), entities, self.meaning
            )
            states = states_for(segments, codes.to_numpy().astype(np.int64), *asked, transforms=REGISTERED)
            values = [column for name, column in state_columns(states, self.meaning).items() if name != "delta_count"]
            answers = {answer(place): column for place, column in enumerate(values)}
            yield from pa.table({ROW: questions.column(ROW), **answers}).to_batches()

    def _bring(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[pa.Table, pa.Table]]:
        for group in whole_groups(batches, [BUCKET], least_rows=LEAST_ROWS):
            is_segment = group.column("ops").is_valid()
            yield group.filter(pc.invert(is_segment)), group.filter(is_segment)

    def _read(self, batches: Iterator[pa.RecordBatch], files: SegmentFiles) -> Iterator[tuple[pa.Table, pa.Table]]:
        for questions in whole_groups(batches, ["entity"], least_rows=QUESTIONS):
            entities = pc.unique(questions["entity"])
            bounds = pc.min_max(entities).as_py()
            # without any entity, no segment is needed
            table = files.between(bounds["min"] or "", bounds["max"] or "")
            yield questions, table.filter(pc.is_in(table["entity"], value_set=entities))


def state_columns(states: States, meaning: Meaning) -> dict[str, pa.Array]:
    """The states as columns: components by name, or `vector`; null for an entity that is not live."""
    has_value = states.seen & ~states.nulls
    live = states.status == Status.LIVE
    tail = {
        "timestamp": pa.array(states.event_time, mask=~live),
        "at_delta": pa.array(states.row_id, mask=~live),
        "delta_count": pa.array(states.delta_count),
    }
    if meaning.names is None:
        bounds = pa.array(states.offsets, pa.int32())
        vector = pa.ListArray.from_arrays(bounds, pa.array(states.values, mask=~has_value), mask=pa.array(~live))
        return {"vector": vector, **tail}
    columns: dict[str, pa.Array] = {}
    cells = states.offsets[:-1][live]
    for position, name in enumerate(meaning.names):
        values, missing = np.zeros(len(states), states.values.dtype), np.ones(len(states), np.bool_)
        values[live], missing[live] = states.values[cells + position], ~has_value[cells + position]
        columns[name] = pa.array(values, mask=missing)
    return columns | tail


def _components(meaning: Meaning) -> list[str]:
    return ["vector"] if meaning.names is None else meaning.names


def _answers(meaning: Meaning) -> list[DataType]:
    """The types of the components (or of `vector`), timestamp and at_delta."""
    value: DataType = {"int64": LongType(), "float64": DoubleType(), "float32": FloatType()}[meaning.dtype]
    value = ArrayType(value) if meaning.names is None else value
    return [*[value] * len(_components(meaning)), LongType(), LongType()]


def state_ddl(meaning: Meaning) -> str:
    """The columns of a state with its entity, as an SQL schema."""
    value = {"int64": "BIGINT", "float64": "DOUBLE", "float32": "FLOAT"}[meaning.dtype]
    value = f"ARRAY<{value}>" if meaning.names is None else value
    components = [f"`{name}` {value}" for name in _components(meaning)]
    return ", ".join(["entity STRING", *components, "timestamp BIGINT", "at_delta BIGINT", "delta_count BIGINT"])


def _ddl(schema: pa.Schema) -> str:
    names: dict[Any, str] = {
        pa.string(): "STRING", pa.int64(): "BIGINT", pa.int32(): "INT", pa.int8(): "TINYINT", pa.bool_(): "BOOLEAN",
        pa.float64(): "DOUBLE", pa.float32(): "FLOAT",
    }  # fmt: skip
    kinds = [
        f"ARRAY<{names[field.type.value_type]}>" if pa.types.is_list(field.type) else names[field.type]
        for field in schema
    ]
    return ", ".join(f"`{field.name}` {kind}" for field, kind in zip(schema, kinds, strict=True))


def _or_latest(time: int | None) -> int:
    return LATEST if time is None else time
