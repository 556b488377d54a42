"""Queries of one entity on chunks that are stored elsewhere and read in parts: bounds choose the parts, the kernel
selects rows.

A part is the chunks of the entity that one read takes in, such as those in a row group of a file. A range query reads
the parts that overlap the range. A latest-at query reads parts from the newest on, until no unread part can have a
later row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.engine.chunks import checks
from spark_jobs.engine.chunks.checks import INT64_MAX, INT64_MIN
from spark_jobs.engine.chunks.config import StoreConfig
from spark_jobs.engine.chunks.newest_first import latest_newest_first
from spark_jobs.engine.chunks.reads import Latest
from spark_jobs.engine.chunks.sequenced import with_places
from spark_jobs.engine.chunks.store import ChunkStore
from spark_jobs.engine.chunks.stored import StoredLayout, standing_chunks, stored_chunks
from spark_jobs.engine.columns.plain import Ints

ALL_TIMES = (INT64_MIN, INT64_MAX)
"""The bounds of a part whose chunks are on no timeline: queries of all times read it."""


def check_query_names(timeline: object, components: object) -> list[str]:
    """The names of the components asked for.

    Raises:
        ParameterError: the timeline is no string, or the components are no list of strings.
    """
    checks.check_names(timeline=timeline)
    return checks.names(components, "components")


class EntityParts(Protocol):
    """The chunks of one entity in one version of a table, in parts."""

    @property
    def least(self) -> Ints:
        """The least time of each part on the timeline asked for."""

    @property
    def greatest(self) -> Ints:
        """The greatest time of each part, included."""

    def read(self, numbers: Ints, columns: Sequence[str]) -> pa.Table:
        """The chunks in the parts of these numbers, with these columns of the table."""


@dataclass(frozen=True)
class PartReader:
    """A reader of a table of chunks with the columns `entity`, `chunk_id` and `row_ids`.

    For the timelines and components of the layout the table also has `t_T` and `c_C`.

    Args:
        parts_of: the entity's parts on a timeline that may have times from the third to the last argument, included.
        layout: the timelines and components of the table.
        has_history: True if the table has `diff`, `landing` and `landings`: rows of some chunks were taken back. Such a
            table has no chunk without times; a part may have chunks that are on other timelines alone.
        sequence: the components of the layout that order rows of the same time; row ids decide between equal ones.
    """

    parts_of: Callable[[str, str, int, int], EntityParts]
    layout: StoredLayout
    has_history: bool = False
    sequence: Sequence[str] = ()

    def range_query(self, entity: str, timeline: str, lo: int, hi: int, components: Sequence[str]) -> pa.Table:
        """`ChunkStore.range_query` over the table's chunks."""
        checks.check_names(entity=entity, timeline=timeline)
        lo, hi = checks.time_range((lo, hi), "an end of the range")
        components = checks.names(components, "components")
        parts = self.parts_of(entity, timeline, lo, hi)
        numbers = np.flatnonzero((parts.least <= hi) & (parts.greatest >= lo))
        store, ids = self._in_memory(parts.read(numbers, self._columns(timeline, components)), timeline)
        answer = store.range_query(entity, timeline, lo, hi, components)
        return answer if ids is None else answer.set_column(0, "row_id", pa.array(ids[answer["row_id"].to_numpy()]))

    def latest_at(self, entity: str, timeline: str, at: int, components: Sequence[str]) -> dict[str, Latest]:
        """`ChunkStore.latest_at` over the table's chunks."""
        checks.check_names(entity=entity, timeline=timeline)
        at, components = checks.time(at, "the time asked for"), checks.names(components, "components")
        parts = self.parts_of(entity, timeline, INT64_MIN, at)
        columns = self._columns(timeline, components)
        starts_in_time = parts.least <= at

        def read(least: int | None, below: int | None) -> pa.Table:
            if least is None:
                return parts.read(np.zeros(0, np.int64), columns)
            wanted = starts_in_time & (parts.greatest >= least)
            return parts.read(np.flatnonzero(wanted if below is None else wanted & (parts.greatest < below)), columns)

        def answer(chunks: pa.Table) -> dict[str, Latest]:
            store, ids = self._in_memory(chunks, timeline)
            latest = store.latest_at(entity, timeline, at, components)
            if ids is None:
                return latest
            return {c: replace(row, row_id=int(ids[row.row_id])) for c, row in latest.items()}

        ends = np.sort(parts.greatest[starts_in_time])[::-1].tolist()
        newest_start = int(parts.least[starts_in_time].max()) if starts_in_time.any() else None
        return latest_newest_first(ends, newest_start, components, read=read, answer=answer)

    def _columns(self, timeline: str, components: Sequence[str]) -> list[str]:
        """The columns that a query needs."""
        times_of = [f"t_{timeline}"] if timeline in self.layout.timelines else []
        values = [f"c_{c}" for c in dict.fromkeys([*components, *self.sequence]) if c in self.layout.components]
        history = ["diff", "landing", "landings"] if self.has_history else []
        return ["entity", "chunk_id", "row_ids", *times_of, *values, *history]

    def _in_memory(self, chunks: pa.Table, timeline: str) -> tuple[ChunkStore, npt.NDArray[np.int64] | None]:
        """A store of all chunks read for a query, and the row id of each place in it.

        It needs all chunks, as those of a later read may take back rows of an earlier one. With a sequence, the row ids
        in the store are places; otherwise the second result is None."""
        ids = None
        if self.has_history and timeline in self.layout.timelines:
            chunks = chunks.filter(pc.is_valid(chunks[f"t_{timeline}"]))
        chunks = chunks.append_column("first_row_id", pc.list_element(chunks["row_ids"], 0))
        if self.sequence:
            chunks, ids = with_places(chunks, self.sequence)
        stored = (standing_chunks if self.has_history else stored_chunks)(chunks, self.layout)
        if ids is not None:
            stored = [replace(of, chunk=of.chunk.take(np.argsort(of.chunk.row_ids), of.chunk.id)) for of in stored]
        return ChunkStore.restore(stored, StoreConfig.off()), ids
