"""Queries of one entity on a table of chunks: the table's statistics leave out files and chunks, the kernel decides
rows.

A range takes one read. Latest-at takes a read of the entity's bounds, then reads chunks from the newest on until no
chunk that is left can hold a later row: two reads, unless a component was last seen long ago.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.kernels.chunks.config import StoreConfig
from spark_jobs.kernels.chunks.index import StoredChunk
from spark_jobs.kernels.chunks.reads import Latest
from spark_jobs.kernels.chunks.store import ChunkStore
from spark_jobs.kernels.chunks.stored import StoredLayout, standing_chunks, stored_chunks

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

FIRST_CHUNKS = 8
"""Chunks that the second read of a latest-at takes in; every further one takes twice as many, so that the number of
reads grows with the logarithm of how far back the answer lies."""


@dataclass(frozen=True)
class ChunkReader:
    """Reads the chunks of a frame.

    Args:
        frame: the chunks that count, with `entity`, `chunk_id`, `first_row_id`, `row_ids` and, of the layout's
            timelines and components, `t_T`, `min_T`, `max_T` and `c_C`.
        layout: its timelines and components.
        instant: a time of a timeline, as the frame's bounds have it.
        has_static: whether chunks without any time may be there.
        has_history: whether the frame says, in `diff` and `landing`, which rows came and which went.
    """

    frame: DataFrame
    layout: StoredLayout
    instant: Callable[[int], Column] = F.lit
    has_static: bool = False
    has_history: bool = False

    def range_query(self, entity: str, timeline: str, lo: int, hi: int, components: Sequence[str]) -> pa.Table:
        """`ChunkStore.range_query` over the frame's chunks."""
        found = self._read(entity, timeline, components, self._meeting(timeline, lo, hi) | self._static())
        return _in_memory(found).range_query(entity, timeline, lo, hi, components)

    def latest_at(self, entity: str, timeline: str, at: int, components: Sequence[str]) -> dict[str, Latest]:
        """`ChunkStore.latest_at` over the frame's chunks."""
        ends, newest_start = self._bounds(entity, timeline, at)
        begun = self._starting(timeline, at)
        held = self._read(entity, timeline, components, self._ending(begun, timeline, newest_start) | self._static())
        above, step = newest_start, FIRST_CHUNKS
        while True:
            found = _in_memory(held).latest_at(entity, timeline, at, components)
            left = [end for end in ends if above is not None and end < above]
            needed = _least_end_to_read(found, components, left, step)
            if needed is None:
                return found
            between = self._ending(begun, timeline, needed) & (F.col(f"max_{timeline}") < self.instant(_known(above)))
            held += self._read(entity, timeline, components, between)
            above, step = needed, step * 2

    def _bounds(self, entity: str, timeline: str, at: int) -> tuple[list[int], int | None]:
        """Ends, greatest first, and the greatest start of the chunks that start at or before `at`."""
        if timeline not in self.layout.timelines:
            return [], None
        bounds = self.frame.where((F.col("entity") == entity) & self._starting(timeline, at))
        found = bounds.select(f"min_{timeline}", f"max_{timeline}").toArrow()
        starts, ends = (column.cast(pa.int64()).to_pylist() for column in found.columns)
        return sorted(ends, reverse=True), max(starts, default=None)

    def _starting(self, timeline: str, at: int) -> Column:
        return F.col(f"min_{timeline}") <= self.instant(at) if timeline in self.layout.timelines else F.lit(False)

    def _ending(self, begun: Column, timeline: str, bound: int | None) -> Column:
        return F.lit(False) if bound is None else begun & (F.col(f"max_{timeline}") >= self.instant(bound))

    def _meeting(self, timeline: str, lo: int, hi: int) -> Column:
        return self._ending(self._starting(timeline, hi), timeline, lo if timeline in self.layout.timelines else None)

    def _static(self) -> Column:
        if not self.has_static:
            return F.lit(False)
        condition = F.lit(True)
        for timeline in self.layout.timelines:
            condition &= F.col(f"min_{timeline}").isNull()
        return condition

    def _read(self, entity: str, timeline: str, components: Sequence[str], condition: Column) -> list[StoredChunk]:
        """The entity's chunks that meet the condition, with the columns that the query needs."""
        times = [f"t_{timeline}"] if timeline in self.layout.timelines else []
        values = [f"c_{name}" for name in dict.fromkeys(components) if name in self.layout.components]
        rows = self.frame.where((F.col("entity") == entity) & condition)
        history = ["diff", "landing"] if self.has_history else []
        found = rows.select("entity", "chunk_id", "first_row_id", "row_ids", *times, *values, *history).toArrow()
        return standing_chunks(found, self.layout) if self.has_history else stored_chunks(found, self.layout)


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
