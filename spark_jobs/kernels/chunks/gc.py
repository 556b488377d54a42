"""Making room: which whole temporal chunks go, in which order, until enough is freed.

Order: with `furthest_from` first the chunks on that timeline, the one whose nearest row is furthest from that time
first; then all others by least row id, oldest first. Guards hold in both passes: chunks named, chunks whose range on
a timeline meets a protected range, and the holders of the N latest rows of each (entity, timeline, component). Static
chunks are never collected, though they count in the total of a fraction. Nothing is changed here: the result is a
plan.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import floor

import numpy as np

from spark_jobs.errors import ParameterError
from spark_jobs.kernels.chunks.index import Catalog
from spark_jobs.kernels.chunks.model import Chunk
from spark_jobs.kernels.chunks.query import range_indices


@dataclass(frozen=True, slots=True, kw_only=True)
class GcOptions:
    """What to free and what to keep.

    Args:
        free_bytes: stop once at least this many bytes are freed; None = everything that is not protected.
        fraction: the same as a share, 0 to 1, of the bytes of all chunks, static ones too, rounded half up.
            At most one of the two.
        protect_latest: keep the holders of the N latest rows per (entity, timeline, component).
        protected_time_ranges: timeline to `[lo, hi]`, both inclusive; a chunk that meets one stays.
        protected_chunks: ids of chunks that stay.
        furthest_from: (timeline, time) to collect away from.
    """

    free_bytes: int | None = None
    fraction: float | None = None
    protect_latest: int = 0
    protected_time_ranges: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    protected_chunks: frozenset[str] = frozenset()
    furthest_from: tuple[str, int] | None = None

    def __post_init__(self) -> None:
        """Refuse a fraction outside 0 to 1 and two targets at once."""
        if self.fraction is not None and not 0 <= self.fraction <= 1:
            raise ParameterError(
                expected="a fraction of 0 to 1", found=str(self.fraction), next_step="give a share of all bytes"
            )
        if self.fraction is not None and self.free_bytes is not None:
            raise ParameterError(
                expected="free_bytes or fraction", found="both", next_step="give one target, or none for everything"
            )


def plan_gc(catalog: Catalog, options: GcOptions) -> list[int]:
    """Keys of the chunks to drop, in drop order."""
    target = _target_bytes(catalog, options)
    protected = _protected_keys(catalog, options)
    plan: dict[int, None] = {}
    freed = 0
    for key in _drop_order(catalog, options):
        if target is not None and freed >= target:
            break
        if key not in protected and key not in plan:
            plan[key] = None
            freed += catalog.stored[key].chunk.size_bytes
    return list(plan)


def _target_bytes(catalog: Catalog, options: GcOptions) -> int | None:
    if options.fraction is None:
        return options.free_bytes
    total = sum(stored.chunk.size_bytes for stored in catalog.stored.values())
    return floor(total * options.fraction + 0.5)


def _drop_order(catalog: Catalog, options: GcOptions) -> Iterator[int]:
    oldest_first = catalog.by_first_row(catalog.temporal_keys())
    if options.furthest_from is not None:
        timeline, at = options.furthest_from
        on_timeline = [key for key in oldest_first if timeline in catalog.stored[key].chunk.timelines]
        yield from sorted(on_timeline, key=lambda key: -_distance(catalog.stored[key].chunk, timeline, at))
    yield from oldest_first


def _distance(chunk: Chunk, timeline: str, at: int) -> int:
    """Distance of the chunk's nearest row; the distance of two int64 times may need 65 bits."""
    column = chunk.timelines[timeline]
    if at <= column.min or at >= column.max:
        return max(column.min - at, at - column.max)
    times = column.times if column.is_sorted else np.sort(column.times)
    position = int(times.searchsorted(at))
    return min(int(times[position]) - at, at - int(times[position - 1]))


def _protected_keys(catalog: Catalog, options: GcOptions) -> set[int]:
    protected = {
        key
        for key, stored in catalog.stored.items()
        if stored.chunk.id in options.protected_chunks or _meets(stored.chunk, options.protected_time_ranges)
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


def _latest_holders(catalog: Catalog, keys: list[int], timeline: str, component: str, count: int) -> set[int]:
    """Keys of the chunks that hold the `count` latest rows by (time, row id)."""
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
