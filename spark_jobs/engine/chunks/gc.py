"""Garbage collection: choosing whole temporal chunks to drop, in an order, until enough bytes are freed.

With `furthest_from`, the chunks on that timeline come first: the chunk whose nearest row is furthest from that time
leads. All other chunks follow by least row id, oldest first. Protected chunks are dropped in neither pass: chunks that
are named, chunks whose range on a timeline meets a protected range, and the holders of the N latest rows of each
(entity, timeline, component). Static chunks are never collected, though they count in the total of a fraction. These
functions change nothing: the result is a plan.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from math import floor
from typing import Any

import numpy as np

from spark_jobs.engine.chunks import checks
from spark_jobs.engine.chunks.index import ChunkCatalog
from spark_jobs.engine.chunks.model import Chunk
from spark_jobs.engine.chunks.query import range_indices
from spark_jobs.engine.columns.shares import as_written
from spark_jobs.errors import ParameterError


@dataclass(frozen=True, slots=True, kw_only=True)
class GcOptions:
    """The options of a garbage collection: the bytes to free, and the chunks to keep.

    Args:
        free_bytes: stop once at least this many bytes are freed; None = everything that is not protected.
        fraction: the bytes to free as a share, 0 to 1, of the bytes of all chunks, static ones too, rounded half up.
            Give `free_bytes` or `fraction`, not both.
        protect_latest: keep the holders of the N latest rows per (entity, timeline, component).
        protected_time_ranges: timeline to `[lo, hi]`, both inclusive; a chunk that meets one stays.
        protected_chunks: ids of chunks that stay. If an inserted chunk has been split or merged, the chunks with its
            rows stay.
        furthest_from: (timeline, time) to collect away from.
    """

    free_bytes: int | None = None
    fraction: float | None = None
    protect_latest: int = 0
    protected_time_ranges: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    protected_chunks: frozenset[str] = frozenset()
    furthest_from: tuple[str, int] | None = None

    def __post_init__(self) -> None:
        """Refuse a fraction outside 0 to 1, two targets at once, and values of a wrong type."""
        if self.free_bytes is not None:
            checks.whole_number(self.free_bytes, "free_bytes")
        if self.fraction is not None and not (_is_number(self.fraction) and 0 <= self.fraction <= 1):
            raise ParameterError(
                expected="a fraction of 0 to 1", found=repr(self.fraction), next_step="give a share of all bytes"
            )
        if self.fraction is not None and self.free_bytes is not None:
            raise ParameterError(
                expected="free_bytes or fraction", found="both", next_step="give one target, or none for everything"
            )
        checks.whole_number(self.protect_latest, "protect_latest", least=0)
        protected = frozenset(checks.names(self.protected_chunks, "protected_chunks"))
        object.__setattr__(self, "protected_chunks", protected)
        checks.check_mapping(self.protected_time_ranges, "protected_time_ranges")
        for timeline, span in self.protected_time_ranges.items():
            checks.time_range(span, "the protected range on {!r}", timeline)
        if self.furthest_from is not None:
            if not isinstance(self.furthest_from, tuple | list) or len(self.furthest_from) != 2:
                raise ParameterError(
                    expected="a timeline and a time in furthest_from",
                    found=repr(self.furthest_from),
                    next_step="give (timeline, time)",
                )
            checks.check_names(timeline=self.furthest_from[0])
            checks.time(self.furthest_from[1], "the time of furthest_from")


@dataclass(frozen=True, slots=True)
class Candidate:
    """The facts about a chunk by which `choose` decides; the chunk may be stored anywhere.

    Args:
        name: the name of the chunk in its store.
        first_row_id: the least row id of the chunk.
        size_bytes: the size of the chunk.
        is_static: True if the chunk has no times. It is never dropped, but its bytes count in the total.
        is_protected: True if an option protects the chunk.
        distance: the distance of its nearest row from the time to collect away from; None without such a time.
    """

    name: Any
    first_row_id: int
    size_bytes: int
    is_static: bool
    is_protected: bool
    distance: int | None


def plan_gc(catalog: ChunkCatalog, options: GcOptions) -> list[int]:
    """Keys of the chunks to drop, in drop order."""
    return [candidate.name for candidate in choose(candidates(catalog, options), options)]


def candidates(catalog: ChunkCatalog, options: GcOptions) -> list[Candidate]:
    """Every chunk with the facts for `choose`, by least row id; entities don't depend on each other."""
    protected = _protected_keys(catalog, options)
    collectable = []
    for key in catalog.by_first_row():
        chunk = catalog.stored[key].chunk
        distance = None
        if options.furthest_from is not None and options.furthest_from[0] in chunk.timelines:
            distance = _distance(chunk, *options.furthest_from)
        collectable.append(
            Candidate(key, chunk.first_row_id, chunk.size_bytes, chunk.is_static, key in protected, distance)
        )
    return collectable


def choose(collectable: Iterable[Candidate], options: GcOptions) -> list[Candidate]:
    """The chunks to drop, in drop order; `collectable` are all chunks of the store."""
    oldest_first = sorted(collectable, key=lambda candidate: candidate.first_row_id)
    target = _target_bytes(oldest_first, options)
    plan: dict[tuple[int, Any], Candidate] = {}
    freed = 0
    for candidate in _drop_order([c for c in oldest_first if not c.is_static]):
        if target is not None and freed >= target:
            break
        key = (candidate.first_row_id, candidate.name)
        if not candidate.is_protected and key not in plan:
            plan[key] = candidate
            freed += candidate.size_bytes
    return list(plan.values())


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def _target_bytes(collectable: list[Candidate], options: GcOptions) -> int | None:
    if options.fraction is None:
        return options.free_bytes
    return floor(sum(candidate.size_bytes for candidate in collectable) * as_written(options.fraction) + Fraction(1, 2))


def _drop_order(oldest_first: list[Candidate]) -> Iterator[Candidate]:
    on_timeline = [(-c.distance, c) for c in oldest_first if c.distance is not None]
    yield from (candidate for _, candidate in sorted(on_timeline, key=lambda pair: pair[0]))
    yield from oldest_first


def _distance(chunk: Chunk, timeline: str, at: int) -> int:
    """The distance of the chunk's nearest row from `at`; the distance of two int64 times may need 65 bits."""
    column = chunk.timelines[timeline]
    if at <= column.min or at >= column.max:
        return max(column.min - at, at - column.max)
    times = column.times if column.is_sorted else np.sort(column.times)
    position = int(times.searchsorted(at))
    return min(int(times[position]) - at, at - int(times[position - 1]))


def _protected_keys(catalog: ChunkCatalog, options: GcOptions) -> set[int]:
    protected = {
        key
        for key, stored in catalog.stored.items()
        if not options.protected_chunks.isdisjoint((stored.chunk.id, *stored.sources))
        or _meets(stored.chunk, options.protected_time_ranges)
    }
    if options.protect_latest > 0:
        for entity in catalog.entities.values():
            for timeline, components in entity.by_component.items():
                for component, index in components.items():
                    protected |= _latest_holders(catalog, index.all_keys(), timeline, component, options.protect_latest)
    return protected


def _meets(chunk: Chunk, ranges: Mapping[str, tuple[int, int]]) -> bool:
    return any(
        lo <= hi and chunk.timelines[timeline].min <= hi and chunk.timelines[timeline].max >= lo
        for timeline, (lo, hi) in ranges.items()
        if timeline in chunk.timelines
    )


def _latest_holders(catalog: ChunkCatalog, keys: list[int], timeline: str, component: str, count: int) -> set[int]:
    """Keys of the chunks that have the `count` latest rows by (time, row id)."""
    ends = sorted(((catalog.stored[key].chunk.time_range(timeline, component)[1], key) for key in keys), reverse=True)
    latest: list[tuple[int, int, int]] = []
    for end, key in ends:
        if len(latest) == count and end < latest[0][0]:
            break
        chunk = catalog.stored[key].chunk
        column = chunk.timelines[timeline]
        for index in range_indices(chunk, timeline, column.min, column.max, component)[-count:]:
            row = (int(column.times[index]), int(chunk.row_ids[index]), key)
            if len(latest) < count:
                heapq.heappush(latest, row)
            else:
                heapq.heappushpop(latest, row)
    return {key for _, _, key in latest}
