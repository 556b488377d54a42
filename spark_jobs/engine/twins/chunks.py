"""The slow, obvious twin of the batcher and the store: plain lists of rows, all of which each answer reads.

The oracle of the tests. It has no columns, no index and no plan. It scans where the kernel searches, and computes
slots and lineage anew at every call, where the kernel keeps them in maps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from spark_jobs.engine.chunks.config import BatcherConfig, StoreConfig
from spark_jobs.engine.chunks.rows import Row


def naive_is_sorted(rows: Sequence[Row]) -> bool:
    """True if, on every timeline, the times never decrease in the order of the rows."""
    return all(
        before.times[timeline] <= after.times[timeline] for before, after in pairwise(rows) for timeline in before.times
    )


def naive_cut(rows: Sequence[Row], config: BatcherConfig) -> list[list[Row]]:
    """The pieces of one flush of one entity whose components have one datatype each, with `keep_sparse_rows`."""
    pieces: list[list[Row]] = []
    open_piece: dict[frozenset[str], list[Row]] = {}
    for row in sorted(rows, key=lambda row: row.row_id):
        piece = open_piece.get(frozenset(row.times))
        if piece is not None and len(piece) >= config.max_rows_if_unsorted:
            tested = [*piece, row] if config.split_before_unsorting else piece
            if not naive_is_sorted(tested):
                piece = None
        if piece is None:
            piece = open_piece[frozenset(row.times)] = []
            pieces.append(piece)
        piece.append(row)
    return pieces


def naive_split(rows: list[Row], config: StoreConfig) -> list[list[Row]]:
    """The pieces of one temporal chunk's rows."""
    size_bytes = sum(row.size_bytes for row in rows)
    if len(rows) <= 1 or not rows[0].times:
        return [rows]
    if config.max_rows_if_unsorted and len(rows) > config.max_rows_if_unsorted and not naive_is_sorted(rows):
        target = config.max_rows_if_unsorted
    elif config.max_rows and len(rows) > config.max_rows:
        target = config.max_rows
    elif config.max_bytes and size_bytes > config.max_bytes:
        target = max(1, config.max_bytes // max(1, size_bytes // len(rows)))
    else:
        return [rows]
    pieces = [rows[start : start + target] for start in range(0, len(rows), target)]
    if len(pieces) == 1:
        return pieces
    return [part for piece in pieces for part in naive_split(piece, config)]


@dataclass(slots=True, eq=False)
class NaiveChunk:
    """The rows of one chunk of an entity, by ascending id, and the ids under which they were inserted."""

    id: str
    entity: str
    rows: list[Row]
    sources: set[str] = field(default_factory=set)
    from_split: bool = False

    @property
    def is_static(self) -> bool:
        """True if the rows have no times."""
        return not self.rows[0].times

    @property
    def size_bytes(self) -> int:
        """Sum of the rows' sizes."""
        return sum(row.size_bytes for row in self.rows)

    def datatypes(self) -> dict[str, str]:
        """Datatype per component with a value."""
        return {name: datatype for row in self.rows for name, datatype in row.datatypes().items()}

    def holders(self, component: str) -> list[Row]:
        """Rows with a value of the component."""
        return [row for row in self.rows if row.data.get(component) is not None]

    def starts(self, timeline: str, component: str) -> int:
        """Least time of a row with a value of the component."""
        return min(row.times[timeline] for row in self.holders(component))


class NaiveStore:
    """The store's rules over a list of chunks, in order of arrival."""

    def __init__(self, config: StoreConfig) -> None:
        self.config = config
        self.chunks: list[NaiveChunk] = []

    def insert(self, chunk_id: str, entity: str, rows: Sequence[Row]) -> tuple[bool, list[str]]:
        """Insert well-formed rows of ascending id: (changed, ids of static chunks that lost their last component)."""
        chunk = NaiveChunk(chunk_id, entity, list(rows), {chunk_id})
        earlier = [other for other in self.chunks if chunk_id in other.sources]
        if not rows or not chunk.datatypes() or any(not other.from_split for other in earlier):
            return False, []
        self.chunks = [other for other in self.chunks if other not in earlier]
        return True, self._insert(chunk)

    def slots(self, entity: str) -> dict[str, NaiveChunk]:
        """Per component, the static chunk with the greatest row id with a value; on a tie, the first to arrive."""
        slots: dict[str, NaiveChunk] = {}
        for chunk in self.chunks:
            if chunk.entity == entity and chunk.is_static:
                for name in chunk.datatypes():
                    if name not in slots or chunk.holders(name)[-1].row_id > slots[name].holders(name)[-1].row_id:
                        slots[name] = chunk
        return slots

    def range(
        self, entity: str, timeline: str, lo: int, hi: int, component: str, *, extended: bool = False
    ) -> list[tuple[Any, int]]:
        """(time, row id) of the rows with a value in `[lo, hi]`; ("static", row id) alone if there is a static
        value."""
        holder = self.slots(entity).get(component)
        if holder is not None:
            return [("static", holder.holders(component)[-1].row_id)]
        rows = sorted(
            (row.times[timeline], row.row_id)
            for chunk in self.chunks
            if chunk.entity == entity
            for row in chunk.holders(component)
            if timeline in row.times
        )
        if lo > hi:
            return []
        before, after = [row for row in rows if row[0] < lo], [row for row in rows if row[0] > hi]
        inside = [row for row in rows if lo <= row[0] <= hi]
        return [*before[-1:], *inside, *after[:1]] if extended else inside

    def latest_at(self, entity: str, timeline: str, at: int, component: str) -> tuple[Any, int] | None:
        """(time, row id) of the latest row at or before `at`, ("static", row id), or None."""
        rows = self.range(entity, timeline, -(2**70), at, component)
        return rows[-1] if rows else None

    def times(self, timeline: str) -> list[int]:
        """All times on a timeline, ascending."""
        return sorted(row.times[timeline] for chunk in self.chunks for row in chunk.rows if timeline in row.times)

    def entity_min_time(self, entity: str, timeline: str) -> int | None:
        """Least time of an entity's rows on a timeline."""
        rows = [row for chunk in self.chunks if chunk.entity == entity for row in chunk.rows]
        return min((row.times[timeline] for row in rows if timeline in row.times), default=None)

    def drop_time_range(self, timeline: str, lo: int, hi: int) -> int:
        """Drop the rows in `[lo, hi]`; their number."""
        cut = [
            chunk
            for chunk in sorted(self.chunks, key=lambda chunk: chunk.rows[0].row_id)
            if any(lo <= row.times.get(timeline, hi + 1) <= hi for row in chunk.rows)
        ]
        self.chunks = [chunk for chunk in self.chunks if chunk not in cut]
        dropped = sum(len(chunk.rows) for chunk in cut)
        for chunk in cut:
            for kept in (
                [row for row in chunk.rows if row.times[timeline] < lo],
                [row for row in chunk.rows if row.times[timeline] > hi],
            ):
                dropped -= len(kept)
                if kept:
                    self._insert(replace(chunk, rows=kept))
        return dropped

    def drop_entity(self, entity: str) -> list[str]:
        """Drop an entity's chunks; their ids, static first, then by least row id."""
        dropped = [chunk for chunk in self.chunks if chunk.entity == entity]
        self.chunks = [chunk for chunk in self.chunks if chunk.entity != entity]
        return [chunk.id for chunk in sorted(dropped, key=lambda c: (not c.is_static, c.rows[0].row_id))]

    def latest_holders(self, count: int) -> list[NaiveChunk]:
        """The chunks with one of the `count` latest rows of some (entity, timeline, component)."""
        columns = {
            (chunk.entity, timeline, name)
            for chunk in self.chunks
            for timeline in chunk.rows[0].times
            for name in chunk.datatypes()
        }
        holders = []
        for entity, timeline, name in columns:
            rows = [
                (row.times[timeline], row.row_id, position)
                for position, chunk in enumerate(self.chunks)
                if chunk.entity == entity
                for row in chunk.holders(name)
                if timeline in row.times
            ]
            holders += [self.chunks[position] for _, _, position in sorted(rows)[-count:]] if count else []
        return holders

    def gc(self, target: int | None, protect_latest: int, furthest_from: tuple[str, int] | None) -> list[str]:
        """Drop whole temporal chunks until `target` bytes are freed (None: all that may go); ids in drop order."""
        protected = self.latest_holders(protect_latest)
        oldest = sorted((c for c in self.chunks if not c.is_static), key=lambda c: c.rows[0].row_id)
        order = list(oldest)
        if furthest_from is not None:
            timeline, at = furthest_from
            near = [chunk for chunk in oldest if timeline in chunk.rows[0].times]
            near.sort(key=lambda chunk: -min(abs(row.times[timeline] - at) for row in chunk.rows))
            order = [*near, *(chunk for chunk in oldest if chunk not in near)]
        dropped: list[NaiveChunk] = []
        for chunk in order:
            if target is not None and sum(gone.size_bytes for gone in dropped) >= target:
                break
            if chunk not in protected:
                dropped.append(chunk)
        self.chunks = [chunk for chunk in self.chunks if chunk not in dropped]
        return [chunk.id for chunk in dropped]

    def _insert(self, chunk: NaiveChunk) -> list[str]:
        if chunk.is_static:
            before = set(self.slots(chunk.entity).values())
            self.chunks.append(chunk)
            emptied = before - set(self.slots(chunk.entity).values())
            self.chunks = [other for other in self.chunks if other not in emptied]
            return sorted(other.id for other in emptied)
        pieces = [chunk.rows] if chunk.from_split else naive_split(chunk.rows, self.config)
        if len(pieces) > 1:
            self.chunks += [replace(chunk, rows=piece, from_split=True) for piece in pieces]
            return []
        neighbour = None if chunk.from_split else self._elect(chunk)
        if neighbour is not None:
            self.chunks.remove(neighbour)
            rows = sorted([*chunk.rows, *neighbour.rows], key=lambda row: row.row_id)
            chunk = NaiveChunk(chunk.id, chunk.entity, rows, chunk.sources | neighbour.sources)
        self.chunks.append(chunk)
        return []

    def _elect(self, chunk: NaiveChunk) -> NaiveChunk | None:
        if not self.config.within(len(chunk.rows), chunk.size_bytes, naive_is_sorted(chunk.rows)):
            return None
        points = {other: 0 for other in self.chunks if self._may_merge(chunk, other)}
        for timeline in chunk.rows[0].times:
            for name in chunk.datatypes():
                for other, weight in self._neighbours(chunk, timeline, name):
                    if other in points:
                        points[other] += weight * len(other.rows)
        best = sorted(points, key=lambda other: (-points[other], other.rows[0].row_id))
        return best[0] if best and points[best[0]] else None

    def _neighbours(self, chunk: NaiveChunk, timeline: str, name: str) -> list[tuple[NaiveChunk, int]]:
        column = [
            other
            for other in self.chunks
            if other.entity == chunk.entity and timeline in other.rows[0].times and name in other.datatypes()
        ]
        times = [row.times[timeline] for row in chunk.holders(name)]
        starts = [other.starts(timeline, name) for other in column]
        before = max((start for start in starts if start < min(times)), default=None)
        after = min((start for start in starts if start > max(times)), default=None)
        weights = {before: 1, after: 1, min(times): 2}
        return [(other, weights.get(start, 0)) for other, start in zip(column, starts, strict=True)]

    def _may_merge(self, chunk: NaiveChunk, other: NaiveChunk) -> bool:
        if other.from_split or other.entity != chunk.entity or other.rows[0].times.keys() != chunk.rows[0].times.keys():
            return False
        mine, theirs = chunk.datatypes(), other.datatypes()
        if any(mine[name] != theirs[name] for name in mine.keys() & theirs.keys()):
            return False
        rows, size_bytes = len(chunk.rows) + len(other.rows), chunk.size_bytes + other.size_bytes
        if not self.config.within(rows, size_bytes, naive_is_sorted(other.rows)):
            return False
        merged = sorted([*chunk.rows, *other.rows], key=lambda row: row.row_id)
        return not self.config.recheck_merged or len(naive_split(merged, self.config)) == 1
