"""An in-memory chunk store: insert, split, merge on write, query, collect, drop, compact.

The insert of a chunk has these steps:

1. Nothing happens if the chunk has no rows or no component, or if its id is known: rows that were inserted under the
   id are live, in a chunk of their own or merged into another.
2. Row ids must ascend.
3. If a chunk with the id was split before, the old pieces are removed.
4. A static chunk takes the slot of every component for which it has the greatest row id; chunks that lose their last
   slot to it are removed. A temporal chunk is split if it exceeds a limit, else merged with at most one neighbour.

A refusal changes nothing. Cost of an insert: O(log n) look-ups per (timeline, component), no Python work per row.
Row ids are unique over the whole store; that is the caller's promise.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from spark_jobs.engine.chunks import checks, reads, summary
from spark_jobs.engine.chunks.compaction import compact_catalog
from spark_jobs.engine.chunks.config import StoreConfig
from spark_jobs.engine.chunks.errors import UnsortedRows
from spark_jobs.engine.chunks.gc import Candidate, GcOptions, candidates, plan_gc
from spark_jobs.engine.chunks.index import ChunkCatalog, StoredChunk
from spark_jobs.engine.chunks.model import Chunk
from spark_jobs.engine.chunks.reads import Latest, RangeAnswer
from spark_jobs.engine.chunks.summary import StoreStats
from spark_jobs.engine.chunks.write import catalog_of, cut_out, insert_static, insert_temporal


@dataclass(frozen=True, slots=True)
class InsertReport:
    """The result of an insert: `changed` is True if it changed the store, `deleted` are ids of static chunks.

    The insert took the last component from each deleted chunk. The ids are sorted."""

    changed: bool
    deleted: tuple[str, ...] = ()


class ChunkStore:
    """A store of chunks in memory, for tests and small data; `DeltaChunkStore` uses a Delta table.

    Args:
        config: limits of splitting and merging.
    """

    def __init__(self, config: StoreConfig | None = None) -> None:
        self.config = StoreConfig() if config is None else config
        self._catalog = ChunkCatalog()

    @classmethod
    def restore(cls, stored: Iterable[StoredChunk], config: StoreConfig | None = None) -> ChunkStore:
        """A store with the chunks of another store (its `stored()`), unchanged."""
        store = cls(config)
        store._catalog = catalog_of(stored)
        return store

    def stored(self) -> list[StoredChunk]:
        """The live chunks with their descent, by least row id."""
        return [self._catalog.stored[key] for key in self._catalog.by_first_row()]

    def insert(self, chunk: Chunk) -> InsertReport:
        """Insert a chunk; see the module for the steps of an insert.

        Raises:
            UnsortedRows: the chunk's row ids do not ascend.
            ParameterError: the argument is no chunk.
        """
        checks.check_kind(chunk, Chunk, "what is inserted")
        if self._has_nothing_new(chunk):
            return InsertReport(changed=False)
        _check_ascending(chunk)
        stored = StoredChunk(chunk, {chunk.id})
        with self._catalog.all_or_nothing():
            for key in self._catalog.keys_from(chunk.id):
                self._catalog.remove(key)
            if chunk.is_static:
                return InsertReport(changed=True, deleted=insert_static(self._catalog, stored))
            insert_temporal(self._catalog, stored, self.config)
        return InsertReport(changed=True)

    def insert_all(self, chunks: Iterable[Chunk]) -> list[InsertReport]:
        """Insert chunks one after another, all or none.

        Raises:
            UnsortedRows: row ids of a chunk that is not known when its turn comes do not ascend.
        """
        with self._catalog.all_or_nothing():
            return [self.insert(chunk) for chunk in chunks]

    def chunks(self) -> list[Chunk]:
        """The live chunks, by least row id."""
        return [self._catalog.stored[key].chunk for key in self._catalog.by_first_row()]

    def stats(self) -> StoreStats:
        """Numbers of chunks, rows and non-null cells."""
        return summary.stats(self._catalog)

    def num_events(self, entity: str, timeline: str, component: str) -> int:
        """Non-null cells of the component in temporal rows on that timeline; 0 if unknown."""
        return summary.num_events(self._catalog, entity, timeline, component)

    def all_components(self, entity: str, timeline: str) -> list[str] | None:
        """Components with a static value or a value on that timeline, sorted; None if there are none."""
        return summary.all_components(self._catalog, entity, timeline)

    def entity_min_time(self, entity: str, timeline: str) -> int | None:
        """The least time of a temporal row, with a value or without, or None."""
        return summary.entity_min_time(self._catalog, entity, timeline)

    def time_range(self, timeline: str) -> tuple[int, int] | None:
        """Least and greatest time over all entities, or None."""
        return summary.time_range(self._catalog, timeline)

    def next_time(self, timeline: str, time: int) -> int | None:
        """The least time strictly after `time`, over all entities, or None."""
        return summary.next_time(self._catalog, timeline, time)

    def prev_time(self, timeline: str, time: int) -> int | None:
        """The greatest time strictly before `time`, over all entities, or None."""
        return summary.prev_time(self._catalog, timeline, time)

    def latest(self, entity: str, timeline: str, at: int, component: str) -> Latest | None:
        """The latest value of a component at `at`.

        The static value if there is one, whatever `at` is. Otherwise the value of the row with the greatest (time, row
        id) at or before `at` that has one; None if there is no such row.
        """
        return reads.latest(self._catalog, entity, timeline, at, component)

    def range(
        self, entity: str, timeline: str, lo: int, hi: int, component: str, *, extended: bool = False
    ) -> RangeAnswer:
        """Rows with a value and a time in `[lo, hi]`, both inclusive, by (time, row id).

        If there is a static value, its row is the only one, whatever the range is. An inverted range is empty.
        `extended` adds one row before `lo` and one after `hi`, also from other chunks.
        """
        return reads.range_rows(self._catalog, entity, timeline, lo, hi, component, extended=extended)

    def latest_at(self, entity: str, timeline: str, at: int, components: Sequence[str]) -> dict[str, Latest]:
        """`latest` for several components; a component without an answer is left out."""
        asked = checks.names(components, "components")
        answers = {component: self.latest(entity, timeline, at, component) for component in asked}
        return {component: answer for component, answer in answers.items() if answer is not None}

    def range_query(self, entity: str, timeline: str, lo: int, hi: int, components: Sequence[str]) -> pa.Table:
        """The outer join, on the row, of `range` for several components.

        Columns: `row_id`, `time` (int64; null for a static row) and one per component. Static rows come first, then
        temporal ones by (time, row id).

        Raises:
            DifferentDatatypes: a component changes its datatype within the range.
        """
        return reads.range_table(self._catalog, entity, timeline, lo, hi, components)

    def relevant_latest_at(self, entity: str, timeline: str, at: int) -> list[str]:
        """Sorted ids of the temporal chunks that a latest-at over all components may have to visit."""
        return summary.relevant_latest_at(self._catalog, entity, timeline, at)

    def relevant_range(self, entity: str, timeline: str, lo: int, hi: int) -> list[str]:
        """Sorted ids of the temporal chunks whose `[min, max]` on the timeline meets `[lo, hi]`."""
        return summary.relevant_range(self._catalog, entity, timeline, lo, hi)

    def gc(self, options: GcOptions) -> list[str]:
        """Drop whole temporal chunks until the target is met; their ids in drop order."""
        checks.check_kind(options, GcOptions, "what to collect")
        return self._remove(plan_gc(self._catalog, options))

    def gc_candidates(self, options: GcOptions) -> list[Candidate]:
        """The chunks with the facts by which a collection chooses, by least row id and named by their ids.

        For a store whose entities are in several places."""
        collectable = candidates(self._catalog, options)
        return [replace(candidate, name=self._catalog.stored[candidate.name].chunk.id) for candidate in collectable]

    def drop_time_range(self, timeline: str, lo: int, hi: int) -> int:
        """Drop every temporal row with a time in `[lo, hi]`, both inclusive, from all its timelines; their number.

        The earlier and the later rows of a chunk that is cut become two chunks, so that ranges stay tight. These merge
        with neighbours as new chunks do. The chunk of the later rows gets a name of its own.
        """
        with self._catalog.all_or_nothing():
            cuts = [
                cut_out(self._catalog, key, timeline, lo, hi)
                for key in summary.keys_meeting(self._catalog, timeline, lo, hi)
            ]
            for remainder in (remainder for _, remainders in cuts for remainder in remainders):
                insert_temporal(self._catalog, remainder, self.config)
        return sum(dropped for dropped, _ in cuts)

    def drop_entity(self, entity: str) -> list[str]:
        """Drop all chunks of exactly this entity; their ids, static ones first, then by least row id."""
        checks.check_names(entity=entity)
        if entity not in self._catalog.entities:
            return []
        keys = self._catalog.by_first_row(self._catalog.entities[entity].keys)
        return self._remove(sorted(keys, key=lambda key: not self._catalog.stored[key].chunk.is_static))

    def compact(self, config: StoreConfig, passes: int = 50) -> int:
        """Insert all chunks anew under `config` until their number stops falling; that number.

        The store then neither merges nor splits. At most `passes` further passes follow the first one.
        """
        checks.check_kind(config, StoreConfig, "the limits")
        self._catalog = compact_catalog(self._catalog, config, checks.whole_number(passes, "passes", least=0))
        self.config = StoreConfig.off()
        return len(self._catalog.stored)

    def snapshot(self) -> Any:
        """All state on which a later answer can depend, as a value to compare; immutable chunks are not copied."""
        return self.config, *self._catalog.snapshot()

    def _remove(self, keys: Iterable[int]) -> list[str]:
        with self._catalog.all_or_nothing():
            return [self._catalog.remove(key).chunk.id for key in keys]

    def _has_nothing_new(self, chunk: Chunk) -> bool:
        if chunk.num_rows == 0 or not chunk.components:
            return True
        return any(not self._catalog.stored[key].from_split for key in self._catalog.keys_from(chunk.id))


def _check_ascending(chunk: Chunk) -> None:
    if not chunk.has_ascending_rows:
        raise UnsortedRows(
            expected=f"ascending row ids in chunk {chunk.id!r}",
            found="a row id that is not greater than the one before it",
            next_step="sort the rows by row id",
        )
