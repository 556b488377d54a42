"""Restating chains: the segments and states of exactly the entities that got deltas, and the published chains as read.

A run brings together the touching rows, and the published state and segments of each entity that they touch. Segments
are read from the one on that the entity's earliest row falls into. Of other entities, a segment is read if it is due to
be compacted by age. Segments that both frontiers have passed are closed by the next run. A run without rows does both,
too. Corrections of states and of segments are made in one pass. A small run is worked on in this process, without a
Spark job.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.definitions.meaning import chain_columns, chain_inputs, meaning_of, policy_of, policy_of_runs
from spark_jobs.distribution import cut_work
from spark_jobs.engine.columns import Flags, are, numbers
from spark_jobs.engine.deltas import (
    ALWAYS,
    AT_ONCE,
    NO_DELTA,
    UNMOVED,
    CompactionPolicy,
    Frontiers,
    Meaning,
    Segments,
    TimeBoundary,
    Traffic,
    entity_class,
    unpack,
)
from spark_jobs.engine.restatement import CLOSING, LIVE, key_codes, without_closed
from spark_jobs.engine.spark.checkpoints import NEEDED, ChainFrame, columns_needed
from spark_jobs.exchange import Block, Labelled, exchange
from spark_jobs.restatement.by_entity import dealt, stamp
from spark_jobs.restatement.chain_needs import NEEDED_COLUMNS, Needs, touched_entities
from spark_jobs.restatement.chain_stretches import ROW, SEGMENT_PART, STATE_PART
from spark_jobs.restatement.chain_task import COMPACTED, ChainTask, segment_columns
from spark_jobs.restatement.chain_worker import TYPED, ChainWorker, cast_segments, oldest_age
from spark_jobs.restatement.pressure import add_use, no_use
from spark_jobs.restatement.published import published_files, published_rows
from spark_jobs.restatement.states import prior_states
from spark_jobs.restatement.touched import Scope, instant
from spark_jobs.sources import Source
from spark_jobs.storage.coordination.publication import Publication
from spark_jobs.storage.delta.chain_files import DeltaFiles, delta_files
from spark_jobs.storage.delta.data_files import StoredRows
from spark_jobs.storage.delta.written_files import Destination, WrittenFile, as_plain
from spark_jobs.storage.descriptions.chain_tables import CHAINS, CHAINS_PART, SEGMENT
from spark_jobs.storage.descriptions.tables import STATE, updates
from spark_jobs.storage.lakes.lake import FrameLake, Lake, with_frames
from spark_jobs.trace.frontiers import SourceFrontiers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROWS_A_TASK, BYTES_A_TASK = 1 << 18, 1 << 28
"""The approximate number of rows and segments of a task, and of their bytes in Parquet; the limit that makes more tasks
decides."""
Choice = Callable[[pa.Table], Flags]
"""A function of a table that returns True for each row that is needed."""
_VISIBLE = ("known_from", "known_to")
_TYPES = {
    "STRING": pa.string(), "BIGINT": pa.int64(), "INT": pa.int32(), "TINYINT": pa.int8(), "DOUBLE": pa.float64(),
    "BOOLEAN": pa.bool_(),
}  # fmt: skip


@dataclass
class ChainCorrections:
    """The files to append to `gold.state_history` and to `gold.chain_history`, the counts of the work done (see
    `chain_task`), and the memory that its workers used (see `pressure`)."""

    states: list[WrittenFile] = field(default_factory=list)
    segments: list[WrittenFile] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(("segments", "closed", *COMPACTED), 0)))
    memory: dict[str, int] = field(default_factory=no_use)

    def take(self, answer: bytes) -> None:
        """Add the files and counts of one task's answer."""
        outcome = json.loads(answer)
        self.states += [WrittenFile(**file) for file in outcome[STATE_PART]]
        self.segments += [WrittenFile(**file) for file in outcome[SEGMENT_PART]]
        self.counts.update(outcome["counts"])
        add_use(self.memory, outcome["memory"])


def chain_corrections(
    lake: Lake, scope: Scope, token: int, *, traffic: Traffic | None = None
) -> ChainCorrections | None:
    """The corrections of a source that keeps chains; None if no row touches it, no chain is of age, and retention has
    passed none. `traffic`: the reads and writes that the strategy adaptive weighs."""
    source, publication = scope.source, scope.publication
    policy, rows, needs, known_us = policy_of_runs(source), scope.touching_rows(lake, chain_columns(source)), None, 0
    oldest = oldest_age(policy, scope.frontiers.reached_us)
    if not scope.everything:
        known_us = publication.published_us
        touched = touched_entities(rows.with_columns(["entity", "event_time"]))
        needs = Needs(touched, _frontiers_for(policy, scope), meaning_of(source).with_parents, oldest)
    worker = ChainWorker(
        meaning_of(source), policy, retention_of(scope.frontiers), scope.known_from_us, scope.frontiers.reached_us,
        scope.everything, chain_schema(), traffic, oldest,
    )  # fmt: skip
    return _corrections(lake, scope, rows, needs, _task(lake, source, worker, known_us, token))


def due_corrections(lake: Lake, scope: Scope, token: int, *, traffic: Traffic | None = None) -> ChainCorrections | None:
    """The corrections that compact the published chains that are due, without rows; None if there are none.

    `scope`: that of a run that has nothing to publish. The rows that close segments have the time of the publication,
    the others one tick less, as if the publication had written them.
    """
    source, publication = scope.source, scope.publication
    meaning, policy, retention = meaning_of(source), policy_of(source), retention_of(scope.frontiers)
    by_age = oldest_age(policy, publication.reached_us)
    oldest = AT_ONCE + 1 if by_age is None else by_age
    worker = ChainWorker(
        meaning, policy, retention, publication.published_us, publication.reached_us, False, chain_schema(),
        traffic, oldest,
    )  # fmt: skip
    task = replace(_task(lake, source, worker, 0, token), written_from_us=publication.published_us - 1)
    rows = lake.stored(updates(source), chain_columns(source)).without_rows()
    needs = Needs(None, _frontiers_for(policy, scope), meaning.with_parents, oldest)
    return _corrections(lake, scope, rows, needs, task)


def _frontiers_for(policy: CompactionPolicy, scope: Scope) -> Frontiers:
    """The frontiers behind which segments are closed; unmoved for TimeBoundary, which keeps all its checkpoints."""
    return UNMOVED if isinstance(policy.strategy, TimeBoundary) else retention_of(scope.frontiers)


def _task(lake: Lake, source: Source, worker: ChainWorker, known_us: int, token: int) -> ChainTask:
    no_rows = lake.stored(updates(source), chain_columns(source)).none()
    schema = chain_inputs(no_rows, source, known_us).schema
    return ChainTask(worker, source, known_us, schema, lake.destination(STATE), lake.destination(CHAINS), token)


def _corrections(
    lake: Lake, scope: Scope, rows: StoredRows, needs: Needs | None, task: ChainTask
) -> ChainCorrections | None:
    """The corrections that the task makes of the rows and of the published states and segments that `needs` chooses;
    None if there are neither rows nor such segments. Without `needs`, all of them are taken in."""
    of_source = {"source": [scope.source.name]}
    columns = segment_columns(task.worker.schema)
    segments = published_files(lake, CHAINS, scope.publication, columns, needs and needs.segments_where(), of_source)
    if needs is not None and needs.touched is None and not _any_needed(segments, needs):
        return None
    states = prior_states(lake, scope, needs and needs.states_where())
    corrections = ChainCorrections()
    for answer in _exchange(lake, {ROW: rows, STATE_PART: states, SEGMENT_PART: segments}, needs, task):
        corrections.take(answer)
    return corrections


def _any_needed(segments: StoredRows, needs: Needs) -> bool:
    """True if a run needs one of these segments; looks only at the columns that decide it."""
    return any(needs.segments(table).any() for table in segments.with_columns(NEEDED_COLUMNS).tables())


def _exchange(lake: Lake, read: dict[str, StoredRows], needs: Needs | None, task: ChainTask) -> list[bytes]:
    n_rows, n_bytes = (sum(getattr(rows, what) for rows in read.values()) for what in ("n_rows", "n_bytes"))
    cut = cut_work(lake.spark, n_rows, n_bytes, ROWS_A_TASK, BYTES_A_TASK)
    pieces = [(label, part) for label, rows in read.items() for part in rows.split(cut.rows_a_piece)]
    choices = {} if needs is None else {STATE_PART: needs.states, SEGMENT_PART: needs.segments}
    deal = partial(_blocks, choices=choices, n_tasks=cut.tasks)
    return exchange(lake.spark, pieces, deal, cut.tasks, task, here=cut.here)


def _blocks(piece: tuple[str, StoredRows], *, choices: Mapping[str, Choice], n_tasks: int) -> Iterator[Block]:
    """The needed rows of a piece, each row in the task of its entity."""
    label, stored = piece
    for table in stored.tables():
        needed = table.filter(pa.array(choices[label](table))) if label in choices else table
        yield from dealt(label, needed, n_tasks)


def writes_by_class(lake: Lake, scope: Scope) -> tuple[dict[int, int], dict[int, int]]:
    """The number of published entities of each class (see `entity_class`), and the number of deltas they have had."""
    of_source = {"source": [scope.source.name]}
    entities: Counter[int] = Counter()
    deltas: Counter[int] = Counter()
    for table in published_files(lake, STATE, scope.publication, ["delta_count", "era"], None, of_source).tables():
        counts, of_row = np.unique(numbers(table["delta_count"]), return_inverse=True)
        live_rows = np.zeros(len(counts), np.int64)
        np.add.at(live_rows, of_row, np.where(are(table["era"], LIVE), 1, -1))
        for count, n in zip(counts.tolist(), live_rows.tolist(), strict=True):
            entities[int(entity_class(count))] += n
            deltas[int(entity_class(count))] += n * count
    return entities, deltas


def retention_of(frontiers: SourceFrontiers) -> Frontiers:
    """Since and horizon as the kernels take them. Until retention moves since, no time has passed it."""
    since = frontiers.arrangement.since.time
    return Frontiers(since or ALWAYS, frontiers.horizon_us)


def published_chains(
    lake: FrameLake,
    source: Source,
    publication: Publication,
    *,
    entity: str | None = None,
    frontiers: Frontiers = UNMOVED,
) -> ChainFrame:
    """The published chains of a source: see `ChainFrame`. Times are in microseconds. Reads below
    `frontiers` are refused."""
    meaning = meaning_of(source)
    rows = published_rows(lake, CHAINS, publication).where(F.col("source") == source.name)
    if entity is not None:
        rows = rows.where(F.col("entity") == entity)
    opened = delta_files(lake.folder, CHAINS) if entity is None else None
    files = None if opened is None else PublishedFiles(opened, source.name, meaning, publication)
    return chains_of_segments(_live_segments(rows), meaning, frontiers, files)


def chains_of_segments(
    rows: DataFrame, meaning: Meaning, frontiers: Frontiers = UNMOVED, files: PublishedFiles | None = None
) -> ChainFrame:
    """The chains whose segments are live rows of `gold.chain_history`."""
    numbers = {name: of[meaning.dtype != "int64"] for name, of in TYPED.items()}
    kind = {"int64": "bigint", "float64": "double", "float32": "float"}[meaning.dtype]
    columns = [F.col(numbers[c]).cast(f"array<{kind}>").alias(c) if c in numbers else F.col(c) for c in NEEDED]
    return ChainFrame(rows.select(*columns), meaning, frontiers, files)


def published_segments(lake: Lake, source: Source, publication: Publication, entity: str) -> Segments:
    """The published segments of one entity, whose code is 0. They are read from the table's files, or by Spark if those
    cannot be read directly. Times are in microseconds."""
    meaning = meaning_of(source)
    files = delta_files(lake.folder, CHAINS)
    if files is None:
        with_spark = with_frames(lake, "a read of chains whose files Spark alone can read")
        table = published_chains(with_spark, source, publication, entity=entity).segments.toArrow()
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
        """The packed segments of the entities from `least` to `greatest`: the same that `published_chains` returns."""
        stored = [of[self.meaning.dtype != "int64"] for of in TYPED.values()]
        needed = [c for c in columns_needed(self.meaning) if c not in TYPED]
        schema = _segments_schema([*stored, *needed, *_VISIBLE, "token"])
        tables = [schema.empty_table()]
        partitions = {"source": [self.source], "era": [LIVE, CLOSING]}
        for partition, rows in self.files.between(least, greatest, schema.names, partitions):
            era = pa.array([partition["era"]] * rows.num_rows, pa.string())
            columns = {name: rows[name] for name in rows.column_names} | {"era": era}
            missing = {f.name: pa.nulls(rows.num_rows, f.type) for f in schema}
            tables.append(pa.table({f.name: (missing | columns)[f.name].cast(f.type) for f in schema}))
        rows = pa.concat_tables(tables)
        for name in ("start_time", "start_row"):
            rows = rows.set_column(rows.schema.get_field_index(name), name, pc.fill_null(rows[name], NO_DELTA))
        live = without_closed(rows.filter(_is_published(rows, self.publication)), ["entity", "start_time", "start_row"])
        return cast_segments(live, self.meaning)


def _segments_schema(names: list[str]) -> pa.Schema:
    kinds = {f.name: f.type for f in chain_schema()} | {"token": pa.int64(), "era": pa.string()}
    return pa.schema([(name, kinds[name]) for name in dict.fromkeys([*names, "era"])])


def _is_published(rows: pa.Table, publication: Publication) -> pa.Array:
    """True for each row of the history that `published_rows` returns: live rows, and the closing rows that end some of
    them."""
    visible = pc.or_(
        pc.less_equal(rows["token"], publication.settled),
        pc.is_in(rows["token"], value_set=pa.array(publication.tokens, pa.int64())),
    )
    closing = pc.equal(rows["era"], CLOSING)
    since = pc.if_else(closing, rows["known_to"], rows["known_from"])
    return pc.and_(visible, pc.less(since, publication.published_us))


def close_chains_left_behind(lake: Lake, scope: Scope, token: int) -> list[WrittenFile]:
    """Write the rows that close all chains of a source that no longer keeps chains; returns their files.

    There are none if the source still keeps them, or if its last publication kept none."""
    if scope.source.keeps_chains or CHAINS_PART not in json.loads(scope.publication.definition or "{}"):
        return []
    return close_chains(lake, scope, token)


def close_chains(lake: Lake, scope: Scope, token: int) -> list[WrittenFile]:
    """Write the rows that close all published segments of a source; returns their files."""
    of_source = {"source": [scope.source.name]}
    columns = [*SEGMENT[1:], *_OF_CLOSED, "known_from", "era"]
    segments = published_files(lake, CHAINS, scope.publication, columns, None, of_source)
    cut = cut_work(lake.spark, segments.n_rows, segments.n_bytes, ROWS_A_TASK, BYTES_A_TASK)
    deal = partial(_blocks, choices={}, n_tasks=cut.tasks)
    pieces = [(SEGMENT_PART, part) for part in segments.split(cut.rows_a_piece)]
    work = partial(_close_segments, scope=scope, to=lake.destination(CHAINS), token=token)
    answers = exchange(lake.spark, pieces, deal, cut.tasks, work, here=cut.here)
    return [WrittenFile(**file) for answer in answers for file in json.loads(answer)]


_OF_CLOSED = ("end_time", "settled_end", "ages_from", "deltas", "revision")
"""The columns of a segment that the row which closes it has, too, beside those that identify it."""


def _close_segments(_: int, blocks: Labelled, *, scope: Scope, to: Destination, token: int) -> bytes:
    """Write the rows that close the live segments of some entities; returns the files as JSON."""
    tables = [table for _, table in blocks]
    if not tables:
        return json.dumps([]).encode()
    rows = pa.concat_tables(tables)
    live, closing = (rows.filter(pc.equal(rows["era"], era)).drop_columns(["era"]) for era in (LIVE, CLOSING))
    # the first segment of a chain has no start: nulls are equal here
    codes, ended = key_codes([live, closing], (*SEGMENT[1:], "known_from"))
    live = live.filter(pa.array(~np.isin(codes, ended)))
    marks = {"dropped": 0, "known_to": instant(scope.known_from_us), "era": CLOSING}
    for name, value in marks.items():
        live = live.append_column(name, pa.repeat(value, live.num_rows))
    return json.dumps(as_plain(to.write([stamp(live, scope.source, token)]))).encode()


def _live_segments(rows: DataFrame) -> DataFrame:
    """The live segments that no closing row ends."""
    live, closing = (rows.where(F.col("era") == era).alias(era) for era in (LIVE, CLOSING))
    same = F.lit(True)
    for column in (*SEGMENT[1:], "known_from"):
        same = same & F.col(f"{LIVE}.{column}").eqNullSafe(F.col(f"{CLOSING}.{column}"))
    return live.join(F.broadcast(closing), same, "left_anti")


def chain_schema() -> pa.Schema:
    """The schema of the worker's output: `part` and the columns of `gold.chain_history`, visible times as integers."""

    def arrow(kind: str) -> pa.DataType:
        element = kind.removeprefix("ARRAY<").removesuffix(">")
        return pa.list_(_TYPES[element]) if element != kind else _TYPES[kind]

    columns = [column for column in CHAINS.columns if column.name not in ("source", "token")]
    return pa.schema(
        [("part", pa.string()), *((c.name, arrow("BIGINT" if c.name in _VISIBLE else c.type)) for c in columns)]
    )
