"""Queries of one entity on a table of chunks: the table's statistics leave out files and chunks, the kernel decides
rows.

A range takes one read. Latest-at takes a read of the entity's bounds, then reads chunks from the newest on until no
chunk that is left can hold a later row: two reads, unless a component was last seen long ago.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from spark_jobs.kernels.chunks.config import StoreConfig
from spark_jobs.kernels.chunks.index import StoredChunk
from spark_jobs.kernels.chunks.reads import Latest
from spark_jobs.kernels.chunks.store import ChunkStore
from spark_jobs.kernels.chunks.stored import StoredLayout, standing_chunks, stored_chunks
from spark_jobs.storage.lake import Lake
from spark_jobs.storage.schema import Table
from spark_jobs.storage.sql import literal, name, qualified, whole

FIRST_CHUNKS = 8
"""Chunks that the second read of a latest-at takes in; every further one takes twice as many, so that the number of
reads grows with the logarithm of how far back the answer lies."""


@dataclass(frozen=True)
class ChunkReader:
    """Reads the chunks of a table, which has `entity`, `chunk_id`, `row_ids` and, of the layout's timelines and
    components, `t_T`, `min_T`, `max_T` and `c_C`. A read is one statement: building a frame column by column takes a
    call into the JVM for each.

    Args:
        layout: its timelines and components.
        instant: SQL of a time of a timeline, as the table's bounds have it, of a whole number.
        has_static: whether chunks without any time may be there.
        counted: of chunks with `diff` and `landing`, those whose landing counts, whose rows may have come or gone;
            None: the table has no history, and every chunk counts.
    """

    lake: Lake
    table: Table
    layout: StoredLayout
    instant: str = "{}"
    has_static: bool = False
    counted: Callable[[pa.Table], pa.Table] | None = None

    def range_query(self, entity: str, timeline: str, lo: int, hi: int, components: Sequence[str]) -> pa.Table:
        """`ChunkStore.range_query` over the table's chunks."""
        meeting = f"({self._starting(timeline, hi)} AND {self._ending(timeline, lo)}) OR {self._static()}"
        found = self._read(entity, timeline, components, meeting)
        return _in_memory(found).range_query(entity, timeline, lo, hi, components)

    def latest_at(self, entity: str, timeline: str, at: int, components: Sequence[str]) -> dict[str, Latest]:
        """`ChunkStore.latest_at` over the table's chunks."""
        ends, newest_start = self._bounds(entity, timeline, at)
        begun = self._starting(timeline, at)
        ending = "false" if newest_start is None else f"{begun} AND {self._ending(timeline, newest_start)}"
        held = self._read(entity, timeline, components, f"({ending}) OR {self._static()}")
        above, step = newest_start, FIRST_CHUNKS
        while True:
            found = _in_memory(held).latest_at(entity, timeline, at, components)
            left = [end for end in ends if above is not None and end < above]
            needed = _least_end_to_read(found, components, left, step)
            if needed is None:
                return found
            ended = self._ending(timeline, _known(above))
            held += self._read(
                entity, timeline, components, f"{begun} AND {self._ending(timeline, needed)} AND NOT {ended}"
            )
            above, step = needed, step * 2

    def _bounds(self, entity: str, timeline: str, at: int) -> tuple[list[int], int | None]:
        """Ends, greatest first, and the greatest start of the chunks that start at or before `at`."""
        if timeline not in self.layout.timelines:
            return [], None
        bounds = [name(f"{bound}_{timeline}") for bound in ("min", "max")]
        found = self._counted(entity, bounds, self._starting(timeline, at))
        starts, ends = (column.cast(pa.int64()).to_pylist() for column in found.columns[:2])
        return sorted(ends, reverse=True), max(starts, default=None)

    def _starting(self, timeline: str, time: int) -> str:
        """SQL: whether a chunk starts at or before a time."""
        return self._bounded("min", timeline, "<=", time)

    def _ending(self, timeline: str, time: int) -> str:
        """SQL: whether a chunk ends at or after a time."""
        return self._bounded("max", timeline, ">=", time)

    def _bounded(self, bound: str, timeline: str, comparison: str, time: int) -> str:
        if timeline not in self.layout.timelines:
            return "false"
        return f"{name(f'{bound}_{timeline}')} {comparison} {self.instant.format(whole(time))}"

    def _static(self) -> str:
        return without_time(self.layout) if self.has_static else "false"

    def _read(self, entity: str, timeline: str, components: Sequence[str], condition: str) -> list[StoredChunk]:
        """The entity's chunks that meet the condition, with the columns that the query needs."""
        times_of = [name(f"t_{timeline}")] if timeline in self.layout.timelines else []
        values = [name(f"c_{c}") for c in dict.fromkeys(components) if c in self.layout.components]
        wanted = ["entity", "chunk_id", "row_ids[0] AS first_row_id", "row_ids", *times_of, *values]
        found = self._counted(entity, wanted, condition)
        return stored_chunks(found, self.layout) if self.counted is None else standing_chunks(found, self.layout)

    def _counted(self, entity: str, wanted: list[str], condition: str) -> pa.Table:
        """Columns of the entity's chunks that meet the condition and count."""
        columns = ", ".join(wanted if self.counted is None else [*wanted, "diff", "landing"])
        chunks = qualified(self.table.database, self.table.table)
        found = self.lake.run(f"SELECT {columns} FROM {chunks} WHERE entity = {literal(entity)} AND ({condition})")
        return found.toArrow() if self.counted is None else self.counted(found.toArrow())


def without_time(layout: StoredLayout) -> str:
    """SQL: whether a chunk is on none of the timelines."""
    return " AND ".join(["true", *(f"{name(f'min_{timeline}')} IS NULL" for timeline in layout.timelines)])


def _known(bound: int | None) -> int:
    assert bound is not None, "a further read follows a first one"
    return bound


def _least_end_to_read(found: dict[str, Latest], components: Sequence[str], left: list[int], step: int) -> int | None:
    """The end down to which chunks have to be read yet; None if no chunk that is left can change an answer.

    `left` are the ends of the chunks not read, greatest first. A chunk that ends before a row holds no later one.
    """
    if any(component not in found for component in components):
        return left[min(step, len(left)) - 1] if left else None
    oldest = min((latest.time for latest in found.values() if latest.time is not None), default=None)
    return oldest if oldest is not None and left and left[0] >= oldest else None


def _in_memory(held: Iterable[StoredChunk]) -> ChunkStore:
    return ChunkStore.restore(held, StoreConfig.off())
