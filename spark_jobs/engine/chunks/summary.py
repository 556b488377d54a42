"""Counts, names, times and listings over many chunks. These functions change no chunk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from spark_jobs.engine.chunks import checks
from spark_jobs.engine.chunks.checks import INT64_MAX, INT64_MIN
from spark_jobs.engine.chunks.index import ChunkCatalog
from spark_jobs.engine.chunks.interval_index import IntervalIndex
from spark_jobs.engine.chunks.model import Chunk, TimeColumn


@dataclass(frozen=True, slots=True)
class ChunkStats:
    """Numbers of chunks, of their rows, and of their non-null cells (events)."""

    chunks: int
    rows: int
    events: int


@dataclass(frozen=True, slots=True)
class StoreStats:
    """Statistics of static and of temporal chunks."""

    static: ChunkStats
    temporal: ChunkStats


def stats(catalog: ChunkCatalog) -> StoreStats:
    """See `ChunkStore.stats`."""
    chunks = [stored.chunk for stored in catalog.stored.values()]
    return StoreStats(
        static=_stats_of(chunk for chunk in chunks if chunk.is_static),
        temporal=_stats_of(chunk for chunk in chunks if not chunk.is_static),
    )


def num_events(catalog: ChunkCatalog, entity: str, timeline: str, component: str) -> int:
    """See `ChunkStore.num_events`."""
    checks.check_names(entity=entity, timeline=timeline, component=component)
    index = catalog.entities.get(entity)
    intervals = None if index is None else index.intervals(timeline, component)
    if intervals is None:
        return 0
    return sum(catalog.stored[key].chunk.num_events(component) for key in intervals.all_keys())


def all_components(catalog: ChunkCatalog, entity: str, timeline: str) -> list[str] | None:
    """See `ChunkStore.all_components`."""
    checks.check_names(entity=entity, timeline=timeline)
    index = catalog.entities.get(entity)
    if index is None:
        return None
    return sorted({*index.static, *index.by_component.get(timeline, ())}) or None


def entity_min_time(catalog: ChunkCatalog, entity: str, timeline: str) -> int | None:
    """See `ChunkStore.entity_min_time`."""
    checks.check_names(entity=entity, timeline=timeline)
    index = catalog.entities.get(entity)
    span = index.by_timeline[timeline].span() if index is not None and timeline in index.by_timeline else None
    return None if span is None else span[0]


def time_range(catalog: ChunkCatalog, timeline: str) -> tuple[int, int] | None:
    """See `ChunkStore.time_range`."""
    checks.check_names(timeline=timeline)
    spans = [index.by_timeline[timeline].span() for index in catalog.entities.values() if timeline in index.by_timeline]
    spans_with_rows = [span for span in spans if span is not None]
    return (min(lo for lo, _ in spans_with_rows), max(hi for _, hi in spans_with_rows)) if spans_with_rows else None


def next_time(catalog: ChunkCatalog, timeline: str, time: int) -> int | None:
    """See `ChunkStore.next_time`."""
    checks.check_names(timeline=timeline)
    time = checks.time(time, "the time asked for")
    times = [
        int(later.min())
        for intervals in _timeline_indexes(catalog, timeline)
        for column in _columns_around(catalog, timeline, intervals, time + 1, intervals.start_after(time))
        if len(later := column.times[column.times > time])
    ]
    return min(times, default=None)


def prev_time(catalog: ChunkCatalog, timeline: str, time: int) -> int | None:
    """See `ChunkStore.prev_time`."""
    checks.check_names(timeline=timeline)
    time = checks.time(time, "the time asked for")
    times = [
        int(earlier.max())
        for intervals in _timeline_indexes(catalog, timeline)
        for column in _columns_around(catalog, timeline, intervals, intervals.start_before(time), time - 1)
        if len(earlier := column.times[column.times < time])
    ]
    return max(times, default=None)


def keys_meeting(catalog: ChunkCatalog, timeline: str, lo: int, hi: int) -> list[int]:
    """Keys of the temporal chunks of all entities whose `[min, max]` on the timeline meets `[lo, hi]`.

    Ordered by least row id."""
    checks.check_names(timeline=timeline)
    lo, hi = checks.time_range((lo, hi), "an end of the range")
    keys = [key for intervals in _timeline_indexes(catalog, timeline) for key in intervals.overlapping_keys(lo, hi)]
    return catalog.by_first_row(keys)


def relevant_range(catalog: ChunkCatalog, entity: str, timeline: str, lo: int, hi: int) -> list[str]:
    """See `ChunkStore.relevant_range`."""
    checks.check_names(entity=entity, timeline=timeline)
    lo, hi = checks.time_range((lo, hi), "an end of the range")
    index = catalog.entities.get(entity)
    if index is None or timeline not in index.by_timeline:
        return []
    return sorted(catalog.stored[key].chunk.id for key in index.by_timeline[timeline].overlapping_keys(lo, hi))


def relevant_latest_at(catalog: ChunkCatalog, entity: str, timeline: str, at: int) -> list[str]:
    """See `ChunkStore.relevant_latest_at`.

    The bound is that of the reference: starts in `[s - l, at]`, where `s` is the greatest start at or before `at` and
    `l` is the length of the entity's longest chunk on the timeline.
    """
    checks.check_names(entity=entity, timeline=timeline)
    at = checks.time(at, "the time asked for")
    index = catalog.entities.get(entity)
    if index is None or timeline not in index.by_timeline:
        return []
    start = index.by_timeline[timeline].start_before(at + 1)
    if start is None:
        return []
    chunks = [catalog.stored[key].chunk for key in index.by_timeline[timeline].all_keys()]
    longest = max(chunk.timelines[timeline].max - chunk.timelines[timeline].min for chunk in chunks)
    return sorted(chunk.id for chunk in chunks if start - longest <= chunk.timelines[timeline].min <= at)


def _timeline_indexes(catalog: ChunkCatalog, timeline: str) -> list[IntervalIndex]:
    return [index.by_timeline[timeline] for index in catalog.entities.values() if timeline in index.by_timeline]


def _columns_around(
    catalog: ChunkCatalog, timeline: str, intervals: IntervalIndex, lo: int | None, hi: int | None
) -> Iterator[TimeColumn]:
    """The time columns of the chunks that meet `[lo, hi]`; None is no bound.

    A bound that is the start of a chunk has a row itself, so no chunk beyond it can be nearer.
    """
    for key in intervals.overlapping_keys(INT64_MIN if lo is None else lo, INT64_MAX if hi is None else hi):
        yield catalog.stored[key].chunk.timelines[timeline]


def _stats_of(chunks: Iterable[Chunk]) -> ChunkStats:
    listed = list(chunks)
    events = sum(chunk.num_events(component) for chunk in listed for component in chunk.components)
    return ChunkStats(chunks=len(listed), rows=sum(chunk.num_rows for chunk in listed), events=events)
