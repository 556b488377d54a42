"""Queries of one entity on a table of chunks: the table's statistics skip files and chunks, the kernel selects rows.

A range query takes one read of the chunks with a value of a requested component. A latest-at query reads the bounds of
the entity's chunks, then chunks from the newest on, until no unread chunk can have a later row. These are two reads,
unless a component was last seen long ago. If chunks were merged between two reads of a query, their bounds are no
longer valid, and the query starts again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.engine.chunks import checks
from spark_jobs.engine.chunks.config import StoreConfig
from spark_jobs.engine.chunks.newest_first import latest_newest_first
from spark_jobs.engine.chunks.reads import Latest
from spark_jobs.engine.chunks.sequenced import with_places
from spark_jobs.engine.chunks.store import ChunkStore
from spark_jobs.engine.chunks.stored import StoredLayout, standing_chunks, stored_chunks
from spark_jobs.storage.descriptions.schema import Table
from spark_jobs.storage.descriptions.sql import literal, name, qualified, whole

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class ChunkReader:
    """A reader of the chunks of a table with the columns `entity`, `chunk_id` and `row_ids`.

    For the timelines and components of the layout it also has `t_T`, `min_T`, `max_T` and `c_C`. A read is one SQL
    statement: to build a frame column by column would take a call into the JVM for each column.

    Args:
        sql: runs one statement, as a session does.
        layout: the timelines and components of the table.
        instant: SQL that makes a time of a timeline, in the type of the table's bounds, from a whole number.
        has_static: True if the table may have chunks without any time.
        counted: returns, of chunks with `diff`, `landing` and `landings`, those whose landing counts. None: the table
            has no history, and every chunk counts.
        sequence: the components of the layout that order rows of the same time; row ids decide between equal ones.
    """

    sql: Callable[[str], DataFrame]
    table: Table
    layout: StoredLayout
    instant: str = "{}"
    has_static: bool = False
    counted: Callable[[pa.Table], pa.Table] | None = None
    sequence: Sequence[str] = ()

    def range_query(self, entity: str, timeline: str, lo: int, hi: int, components: Sequence[str]) -> pa.Table:
        """`ChunkStore.range_query` over the table's chunks."""
        checks.check_names(entity=entity, timeline=timeline)
        lo, hi = checks.time_range((lo, hi), "an end of the range")
        components = checks.names(components, "components")
        meeting = f"({self._starting_sql(timeline, hi)} AND {self._ending_sql(timeline, lo)}) OR {self._static()}"
        chunks = self._read(entity, timeline, components, f"({meeting}) AND ({self._telling_sql(components)})")
        store, ids = self._in_memory(chunks)
        answer = store.range_query(entity, timeline, lo, hi, components)
        return answer if ids is None else answer.set_column(0, "row_id", pa.array(ids[answer["row_id"].to_numpy()]))

    def latest_at(self, entity: str, timeline: str, at: int, components: Sequence[str]) -> dict[str, Latest]:
        """`ChunkStore.latest_at` over the table's chunks."""
        checks.check_names(entity=entity, timeline=timeline)
        at, components = checks.time(at, "the time asked for"), checks.names(components, "components")
        while True:
            try:
                return self._latest_at(entity, timeline, at, components)
            except _MergedMeanwhile:
                continue

    def _latest_at(self, entity: str, timeline: str, at: int, components: Sequence[str]) -> dict[str, Latest]:
        first_chunks = self._starting_sql(timeline, at)
        bounds = self._bounds(entity, timeline, first_chunks)

        def read(least: int | None, below: int | None) -> pa.Table:
            condition = "false" if least is None else f"{first_chunks} AND {self._ending_sql(timeline, least)}"
            if below is None:
                condition = f"({condition}) OR {self._static()}"
            else:
                condition = f"{condition} AND NOT {self._ending_sql(timeline, below)}"
            chunks = self._read(entity, timeline, components, condition)
            bounds.check(chunks, least, below)
            # rows that land between two reads of a query are not part of its answer
            return chunks if self.counted is None else chunks.filter(pc.is_in(chunks["chunk_id"], bounds.names))

        def answer(chunks: pa.Table) -> dict[str, Latest]:
            store, ids = self._in_memory(chunks)
            latest = store.latest_at(entity, timeline, at, components)
            return (
                latest if ids is None else {c: replace(row, row_id=int(ids[row.row_id])) for c, row in latest.items()}
            )

        return latest_newest_first(bounds.newest_first, bounds.newest_start, components, read=read, answer=answer)

    def _bounds(self, entity: str, timeline: str, condition: str) -> _Bounds:
        """The bounds of the entity's chunks that meet the condition."""
        if timeline not in self.layout.timelines:
            return _Bounds({}, None)
        columns = ["chunk_id", *(name(f"{bound}_{timeline}") for bound in ("min", "max"))]
        bounds = self._count_rows(entity, columns, condition)
        starts, ends = (column.cast(pa.int64()).to_pylist() for column in bounds.columns[1:3])
        names = bounds["chunk_id"].to_pylist()
        return _Bounds(dict(zip(names, ends, strict=True)), max(starts, default=None))

    def _telling_sql(self, components: Sequence[str]) -> str:
        """SQL for the condition that a chunk has a value of any of the components."""
        conditions = [f"{name(f'c_{c}')} IS NOT NULL" for c in dict.fromkeys(components) if c in self.layout.components]
        return " OR ".join(conditions) if conditions else "false"

    def _starting_sql(self, timeline: str, time: int) -> str:
        """SQL for the condition that a chunk starts at or before a time."""
        return self._bounded_sql("min", timeline, "<=", time)

    def _ending_sql(self, timeline: str, time: int) -> str:
        """SQL for the condition that a chunk ends at or after a time."""
        return self._bounded_sql("max", timeline, ">=", time)

    def _bounded_sql(self, bound: str, timeline: str, comparison: str, time: int) -> str:
        if timeline not in self.layout.timelines:
            return "false"
        return f"{name(f'{bound}_{timeline}')} {comparison} {self.instant.format(whole(time))}"

    def _static(self) -> str:
        return without_time(self.layout) if self.has_static else "false"

    def _read(self, entity: str, timeline: str, components: Sequence[str], condition: str) -> pa.Table:
        """The entity's chunks that meet the condition, with the columns that the query needs."""
        times_of = [name(f"t_{timeline}")] if timeline in self.layout.timelines else []
        values = [name(f"c_{c}") for c in dict.fromkeys([*components, *self.sequence]) if c in self.layout.components]
        wanted = ["entity", "chunk_id", "row_ids[0] AS first_row_id", "row_ids", *times_of, *values]
        return self._count_rows(entity, wanted, condition)

    def _in_memory(self, chunks: pa.Table) -> tuple[ChunkStore, npt.NDArray[np.int64] | None]:
        """A store of all chunks read for a query, and the row id of each place in it.

        It needs all chunks, as those of a later read may take back rows of an earlier one. With a sequence, the row ids
        in the store are places; otherwise the second result is None."""
        ids = None
        if self.sequence:
            chunks, ids = with_places(chunks, self.sequence)
        stored = (stored_chunks if self.counted is None else standing_chunks)(chunks, self.layout)
        if ids is not None:
            stored = [replace(of, chunk=of.chunk.take(np.argsort(of.chunk.row_ids), of.chunk.id)) for of in stored]
        return ChunkStore.restore(stored, StoreConfig.off()), ids

    def _count_rows(self, entity: str, wanted: list[str], condition: str) -> pa.Table:
        """The columns `wanted` of the entity's chunks that meet the condition and count."""
        columns = ", ".join(wanted if self.counted is None else [*wanted, "diff", "landing", "landings"])
        chunks = qualified(self.table.database, self.table.table)
        rows = self.sql(f"SELECT {columns} FROM {chunks} WHERE entity = {literal(entity)} AND ({condition})")
        return rows.toArrow() if self.counted is None else self.counted(rows.toArrow())


def without_time(layout: StoredLayout) -> str:
    """SQL for the condition that a chunk is on none of the timelines."""
    return " AND ".join(["true", *(f"{name(f'min_{timeline}')} IS NULL" for timeline in layout.timelines)])


class _MergedMeanwhile(Exception):
    """Chunks whose bounds were read are no longer in the table."""


@dataclass(frozen=True)
class _Bounds:
    """The bounds of an entity's chunks on a timeline: the end per chunk, and the greatest start (None: no chunks)."""

    ends: dict[str, int]
    newest_start: int | None

    @property
    def newest_first(self) -> list[int]:
        """The ends, greatest first."""
        return sorted(self.ends.values(), reverse=True)

    @property
    def names(self) -> pa.Array:
        """The names of the chunks."""
        return pa.array(list(self.ends), pa.string())

    def check(self, chunks: pa.Table, least: int | None, below: int | None) -> None:
        """Raise _MergedMeanwhile if `chunks` lack one with `least <= end < below`."""
        if least is None:
            return
        there = set(chunks["chunk_id"].to_pylist())
        if any(least <= end and (below is None or end < below) for n, end in self.ends.items() if n not in there):
            raise _MergedMeanwhile
