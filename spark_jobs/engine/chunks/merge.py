"""Merging a new chunk with one neighbour on write.

For each (timeline, component) of the new chunk, `elect` looks at its neighbours in that index: the chunks with the
nearest earlier start, those with the nearest start beyond its max, and those with the same start, which count double. A
neighbour that may merge earns as many points as it has rows. The chunk with the most points wins; ties go to the least
row id. So a write touches one neighbour, costs O(log n) look-ups, and prefers to fill up the chunk that is nearest on
most columns.

A merged chunk is put into row-id order; its times may become unsorted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import numpy as np

from spark_jobs.engine.chunks.config import StoreConfig
from spark_jobs.engine.chunks.errors import DifferentDatatypes, DifferentEntity, DifferentTimelines
from spark_jobs.engine.chunks.index import EntityIndex, StoredChunk
from spark_jobs.engine.chunks.model import Chunk, ComponentColumn, concat_values
from spark_jobs.engine.chunks.split import split_chunk


def concat(left: Chunk, right: Chunk, chunk_id: str) -> Chunk:
    """One chunk of both chunks' rows, in row-id order; a component that one side lacks is null there.

    Raises:
        DifferentEntity, DifferentTimelines, DifferentDatatypes: the two can't be one chunk.
    """
    _check_same_shape(left, right)
    row_ids = np.concatenate([left.row_ids, right.row_ids])
    order = np.argsort(row_ids, kind="stable")
    return Chunk.from_columns(
        chunk_id,
        left.entity,
        row_ids=row_ids[order],
        times={
            name: np.concatenate([column.times, right.timelines[name].times])[order]
            for name, column in left.timelines.items()
        },
        components={
            name: _concat_component(left, right, name).take(order)
            for name in dict.fromkeys([*left.components, *right.components])
        },
        row_bytes=np.concatenate([left.row_bytes, right.row_bytes])[order],
    )


def elect(chunk: Chunk, entity: EntityIndex, stored: Mapping[int, StoredChunk], config: StoreConfig) -> int | None:
    """Key of the stored chunk with which the new, temporal chunk is to be merged, or None."""
    if not config.within(chunk.num_rows, chunk.size_bytes, chunk.is_sorted):
        return None
    points: Counter[int] = Counter()
    worth: dict[int, int] = {}
    for key in _neighbours(chunk, entity):
        if key not in worth:
            worth[key] = stored[key].chunk.num_rows if _may_merge(chunk, stored[key], config) else 0
        points[key] += worth[key]
    candidates = [key for key, earned in points.items() if earned > 0]
    return min(candidates, key=lambda key: (-points[key], stored[key].chunk.first_row_id), default=None)


def _neighbours(chunk: Chunk, entity: EntityIndex) -> Iterable[int]:
    """Keys of the neighbours on each (timeline, component); a key is repeated if it counts several times."""
    for timeline in chunk.timelines:
        for component in chunk.components:
            index = entity.intervals(timeline, component)
            if index is None:
                continue
            lo, hi = chunk.time_range(timeline, component)
            before, after, same = index.start_before(lo), index.start_after(hi), index.starting_at(lo)
            if before is not None:
                yield from index.starting_at(before)
            if after is not None:
                yield from index.starting_at(after)
            yield from same
            yield from same


def _may_merge(chunk: Chunk, candidate: StoredChunk, config: StoreConfig) -> bool:
    other = candidate.chunk
    if candidate.from_split or not _same_shape(chunk, other):
        return False
    rows, size_bytes = chunk.num_rows + other.num_rows, chunk.size_bytes + other.size_bytes
    if not config.within(rows, size_bytes, other.is_sorted):
        return False
    return not config.recheck_merged or len(split_chunk(concat(chunk, other, chunk.id), config)) == 1


def _same_shape(left: Chunk, right: Chunk) -> bool:
    return (
        left.entity == right.entity
        and left.timelines.keys() == right.timelines.keys()
        and _first_datatype_conflict(left, right) is None
    )


def _first_datatype_conflict(left: Chunk, right: Chunk) -> str | None:
    for name, column in left.components.items():
        if name in right.components and right.components[name].datatype != column.datatype:
            return name
    return None


def _check_same_shape(left: Chunk, right: Chunk) -> None:
    if left.entity != right.entity:
        raise DifferentEntity(
            expected=f"two chunks of entity {left.entity!r}",
            found=f"one of {right.entity!r}",
            next_step="concatenate chunks of one entity",
        )
    if left.timelines.keys() != right.timelines.keys():
        raise DifferentTimelines(
            expected=f"timelines {sorted(left.timelines)} in both chunks",
            found=f"{sorted(right.timelines)} in {right.id!r}",
            next_step="concatenate chunks with the same timelines",
        )
    component = _first_datatype_conflict(left, right)
    if component is not None:
        raise DifferentDatatypes(
            expected=f"{left.components[component].datatype} for {component!r} in both chunks",
            found=f"{right.components[component].datatype} in {right.id!r}",
            next_step="keep the two chunks apart, or cast the component first",
        )


def _concat_component(left: Chunk, right: Chunk, name: str) -> ComponentColumn:
    present = [chunk.components[name] for chunk in (left, right) if name in chunk.components]
    columns = [chunk.components.get(name) or _no_values(chunk.num_rows, present[0]) for chunk in (left, right)]
    values = concat_values([column.values for column in columns])
    if all(column.all_valid for column in columns):
        return ComponentColumn.of(present[0].datatype, values)
    return ComponentColumn.of(present[0].datatype, values, np.concatenate([column.valid for column in columns]))


def _no_values(num_rows: int, like: ComponentColumn) -> ComponentColumn:
    values = np.zeros(num_rows, dtype=like.values.dtype)
    if values.dtype == object:
        values[:] = None
    return ComponentColumn.of(like.datatype, values, np.zeros(num_rows, dtype=bool))
