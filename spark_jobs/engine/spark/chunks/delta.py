"""A chunk store on a Delta table, with the interface and the answers of the in-memory store.

Every operation is one commit, or none if it changes nothing. The effect of an operation on an entity does not depend on
other entities. So an insert reads the entities of its chunks and applies the kernel's store to them in this process.
Operations on the whole table (compaction, dropping a time range, collecting) apply it in the workers, one entity at a
time. The memory needed is that of the greatest entity or, for an insert, of the entities of the batch.

Only one writer is allowed at a time; readers are not restricted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial, reduce
from operator import and_
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.engine.chunks import checks
from spark_jobs.engine.chunks.config import StoreConfig
from spark_jobs.engine.chunks.gc import Candidate, GcOptions, choose
from spark_jobs.engine.chunks.index import StoredChunk
from spark_jobs.engine.chunks.model import Chunk
from spark_jobs.engine.chunks.part_reader import PartReader
from spark_jobs.engine.chunks.reads import Latest
from spark_jobs.engine.chunks.store import ChunkStore, InsertReport
from spark_jobs.engine.chunks.stored import StoredLayout, stored_chunks, stored_table
from spark_jobs.engine.chunks.summary import ChunkStats, StoreStats
from spark_jobs.engine.spark.chunks.entity_steps import (
    CANDIDATES,
    REPORT,
    Compact,
    DropTimeRange,
    EntityStep,
    find_candidates,
    on_entity,
)
from spark_jobs.engine.spark.chunks.stored_parts import stored_parts
from spark_jobs.errors import ParameterError
from spark_jobs.storage.descriptions.schema import Column as TableColumn
from spark_jobs.storage.descriptions.schema import Table
from spark_jobs.storage.lakes.spark_lake import SparkLake

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, DataFrameWriterV2, SparkSession

COMPONENT_TYPES = {
    "bigint": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
    "boolean": pa.bool_(),
}
"""The types of components: SQL name to Arrow type."""

MANY_ENTITIES = 1_000
"""The number of changed entities beyond which the whole table is rewritten: to match a longer list with files costs
more than it saves."""


class DeltaChunkStore:
    """A store of chunks in a Delta table, created if it is not there.

    Args:
        spark: a session, classic or Connect.
        table: `database.table`.
        timelines: names of the timelines that chunks may be on; times are whole numbers in the timeline's own unit.
        components: name to type, one of `COMPONENT_TYPES`.
        config: limits of splitting and merging.
    """

    def __init__(
        self,
        spark: SparkSession,
        table: str,
        *,
        timelines: Sequence[str],
        components: Mapping[str, str],
        config: StoreConfig | None = None,
    ) -> None:
        self.config = StoreConfig() if config is None else config
        self._layout = StoredLayout(tuple(timelines), {name: _arrow_type(name, t) for name, t in components.items()})
        self._table = stored_chunks_table(table, timelines, components)
        self._lake = SparkLake(spark)
        self._lake.spark.sql(self._table.ddl())

    def insert(self, chunk: Chunk) -> InsertReport:
        """Insert a chunk; see `ChunkStore.insert`.

        Raises:
            UnsortedRows: the chunk's row ids do not ascend.
            ParameterError: the chunk has a timeline, a component or a value that the table does not declare.
        """
        return self.insert_all([chunk])[0]

    def insert_all(self, chunks: Iterable[Chunk]) -> list[InsertReport]:
        """Insert chunks one after another, all or none, with one read of their entities and one commit.

        Chunks of different entities must have different ids.

        Raises:
            UnsortedRows: row ids of a chunk that is not known yet do not ascend.
            ParameterError: a chunk has a timeline, a component or a value that the table does not declare.
        """
        given = [self._as_declared(chunk) for chunk in chunks]
        entities = sorted({chunk.entity for chunk in given if chunk.components})
        if not entities:
            return [InsertReport(changed=False) for _ in given]
        before = stored_chunks(self._frame().where(F.col("entity").isin(entities)).toArrow(), self._layout)
        store = ChunkStore.restore(before, self.config)
        reports = store.insert_all(given)
        self._commit(before, store.stored())
        return reports

    def chunks(self) -> list[Chunk]:
        """The live chunks, by least row id; all of them in memory."""
        return [stored.chunk for stored in stored_chunks(self._frame().toArrow(), self._layout)]

    def stats(self) -> StoreStats:
        """Numbers of chunks, rows and non-null cells."""
        events = F.lit(0)
        for name in self._layout.components:
            events += F.coalesce(F.size(F.filter(F.col(f"c_{name}"), lambda value: value.isNotNull())), F.lit(0))
        sums = [F.count("*").alias("chunks"), F.sum("rows").alias("rows"), F.sum(events).alias("events")]
        counts = self._frame().groupBy(self._static().alias("static")).agg(*sums).collect()
        by_kind = {row.static: ChunkStats(row.chunks, row.rows, row.events) for row in counts}
        nothing = ChunkStats(0, 0, 0)
        return StoreStats(static=by_kind.get(True, nothing), temporal=by_kind.get(False, nothing))

    def latest_at(self, entity: str, timeline: str, at: int, components: Sequence[str]) -> dict[str, Latest]:
        """See `ChunkStore.latest_at`."""
        return self._reader().latest_at(entity, timeline, at, components)

    def range_query(self, entity: str, timeline: str, lo: int, hi: int, components: Sequence[str]) -> pa.Table:
        """See `ChunkStore.range_query`."""
        return self._reader().range_query(entity, timeline, lo, hi, components)

    def gc(self, options: GcOptions) -> list[str]:
        """Drop whole temporal chunks until the target is met; their ids in drop order."""
        checks.check_kind(options, GcOptions, "what to collect")
        asked = find_candidates(self._layout, options)
        candidates = self._frame().groupBy("entity").applyInArrow(asked, CANDIDATES).toArrow().to_pylist()
        plan = choose((Candidate(**row) for row in candidates), options)
        replaced = _these((candidate.first_row_id, candidate.name) for candidate in plan)
        self._replace(replaced, bool(plan))
        return [candidate.name for candidate in plan]

    def drop_time_range(self, timeline: str, lo: int, hi: int) -> int:
        """Drop every temporal row with a time in `[lo, hi]`, both inclusive, from all its timelines; their number."""
        checks.check_names(timeline=timeline)
        lo, hi = checks.time_range((lo, hi), "an end of the range")
        if timeline not in self._layout.timelines or lo > hi:
            return 0
        return self._on_every_entity(DropTimeRange(timeline, lo, hi))["dropped"]

    def drop_entity(self, entity: str) -> list[str]:
        """Drop all chunks of exactly this entity; their ids, static ones first, then by least row id."""
        checks.check_names(entity=entity)
        of_entity = F.col("entity") == entity
        by_kind = self._frame().where(of_entity).select("chunk_id", "first_row_id", self._static().alias("static"))
        listed = by_kind.orderBy(F.desc("static"), "first_row_id").collect()
        self._replace(of_entity, bool(listed))
        return [row.chunk_id for row in listed]

    def compact(self, config: StoreConfig, passes: int = 50) -> int:
        """Insert all chunks anew under `config` until the number of an entity's chunks stops falling.

        Returns the number of all chunks. The store then neither merges nor splits."""
        checks.check_kind(config, StoreConfig, "the limits")
        step = Compact(config, checks.whole_number(passes, "passes", least=0))
        n_chunks = self._on_every_entity(step)["rows"]
        self.config = StoreConfig.off()
        return n_chunks

    def _frame(self) -> DataFrame:
        return self._lake.read(self._table)

    def _reader(self) -> PartReader:
        return PartReader(partial(stored_parts, self._lake, self._table, self._layout), self._layout)

    def _static(self) -> Column:
        """The condition that a chunk is on none of the timelines."""
        return reduce(and_, (F.col(f"min_{name}").isNull() for name in self._layout.timelines), F.lit(True))

    def _as_declared(self, chunk: Chunk) -> Chunk:
        """The chunk with the declared types, as a later read will return it."""
        checks.check_kind(chunk, Chunk, "what is inserted")
        if not chunk.components:
            return chunk
        table = stored_table([StoredChunk(chunk, {chunk.id})], self._layout)
        return stored_chunks(table, self._layout)[0].chunk

    def _commit(self, before: list[StoredChunk], after: list[StoredChunk]) -> None:
        """Write new chunks and remove old ones; a chunk that stayed is the same object in both lists."""
        unchanged = set(map(id, before)) & set(map(id, after))
        new = [stored for stored in after if id(stored) not in unchanged]
        gone = [stored for stored in before if id(stored) not in unchanged]
        if not new and not gone:
            return
        rows = self._lake.spark.createDataFrame(stored_table(new, self._layout)).coalesce(1)
        if not gone:
            self._write(rows).append()
            return
        entities = {stored.chunk.entity for stored in gone + new}
        named = _these((stored.chunk.first_row_id, stored.chunk.id) for stored in gone + new)
        self._replace(F.col("entity").isin(sorted(entities)) & named, True, rows)

    def _on_every_entity(self, step: EntityStep) -> dict[str, int]:
        """Run a step on the chunks of each entity and commit the changes; the sums of the entities' reports."""
        run = on_entity(self._layout, self.config, step)
        made = self._frame().groupBy("entity").applyInArrow(run, f"{self._table.schema()}, {REPORT}").persist()
        try:
            is_report = F.col("chunk_id").isNull()
            reports = made.where(is_report).select("entity", "changed", "rows", "dropped").collect()
            changed = sorted(report.entity for report in reports if report.changed)
            everything = len(changed) > MANY_ENTITIES
            replaced = F.lit(True) if everything else F.col("entity").isin(changed)
            rows = made.where(~is_report & replaced).select(*self._table.column_names)
            self._replace(replaced, bool(changed), rows)
        finally:
            made.unpersist()
        return {name: sum(report[name] for report in reports) for name in ("rows", "dropped")}

    def _replace(self, replaced: Column, needed: bool, rows: DataFrame | None = None) -> None:
        """Replace the rows that `replaced` selects by `rows` (None: by none) in one commit, if `needed`."""
        if needed:
            self._write(self._frame().limit(0) if rows is None else rows).overwrite(replaced)

    def _write(self, rows: DataFrame) -> DataFrameWriterV2:
        return rows.select(*self._table.column_names).writeTo(self._table.qualified)


def _these(chunks: Iterable[tuple[int, str]]) -> Column:
    """The condition that a row is one of these chunks: by least row id, which lets files be skipped, and by name."""
    listed = list(chunks)
    firsts, names = sorted({first for first, _ in listed}), sorted({name for _, name in listed})
    return F.col("first_row_id").isin(firsts) & F.col("chunk_id").isin(names)


def stored_chunks_table(name: str, timelines: Sequence[str], components: Mapping[str, str]) -> Table:
    """The Delta table of stored chunks under this name; its columns are those of `StoredLayout.schema()`."""
    database, _, table = name.rpartition(".")
    columns = [
        TableColumn("entity", "STRING", "The entity."),
        TableColumn("chunk_id", "STRING", "Name of the chunk, its own within the entity."),
        TableColumn("first_row_id", "BIGINT", "Least row id."),
        TableColumn("rows", "INT", "Number of rows."),
        TableColumn("size_bytes", "BIGINT", "Sum of the rows' sizes."),
        TableColumn("sources", "ARRAY<STRING>", "Ids under which the rows were inserted."),
        TableColumn("from_split", "BOOLEAN", "Whether it is a piece of a chunk that was split on insert."),
        TableColumn("row_ids", "ARRAY<BIGINT>", "Ids of the rows, ascending."),
        TableColumn("row_bytes", "ARRAY<BIGINT>", "Sizes of the rows."),
    ]
    for timeline in timelines:
        columns += [
            TableColumn(f"t_{timeline}", "ARRAY<BIGINT>", f"Times on {timeline}; null if the chunk is not on it."),
            TableColumn(f"min_{timeline}", "BIGINT", f"Least time on {timeline}."),
            TableColumn(f"max_{timeline}", "BIGINT", f"Greatest time on {timeline}."),
            TableColumn(f"sorted_{timeline}", "BOOLEAN", f"Whether times on {timeline} never decrease."),
        ]
    columns += [TableColumn(f"c_{c}", f"ARRAY<{kind}>", f"Values of {c}.") for c, kind in components.items()]
    bounds = [f"{bound}_{timeline}" for timeline in timelines for bound in ("min", "max")]
    skipping = ("entity", "first_row_id", *bounds)
    return Table(database, table, "Stored chunks, one row each.", tuple(columns), (), skipping)


def _arrow_type(component: str, name: str) -> pa.DataType:
    if name.lower() not in COMPONENT_TYPES:
        raise ParameterError(
            expected=f"one of {', '.join(COMPONENT_TYPES)} as the type of {component!r}",
            found=repr(name),
            next_step="declare the component with one of them",
        )
    return COMPONENT_TYPES[name.lower()]
