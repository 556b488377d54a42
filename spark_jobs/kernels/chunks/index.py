"""The chunks that a store holds, and where to find them.

Every temporal chunk is indexed per (entity, timeline, component) by the time range of the rows *that have a value of
this component*: a sparse component's range is narrower than its chunk's, and an index by the chunk's range would give
wrong answers. It is also indexed per (entity, timeline) by the chunk's whole range, for drops and listings. Static
values live in one slot per (entity, component).

Keys are the catalog's own integers; a chunk's `id` is only its name. Several live chunks may stem from one inserted id.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from spark_jobs.kernels.chunks.interval_index import IntervalIndex
from spark_jobs.kernels.chunks.model import Chunk


@dataclass(frozen=True, slots=True, eq=False)
class StoredChunk:
    """A live chunk and its descent.

    Args:
        chunk: the chunk.
        sources: ids under which its rows were inserted; the set belongs to this chunk alone.
        from_split: whether it is a piece of a chunk that was split on insert; such a piece never merges.
    """

    chunk: Chunk
    sources: set[str]
    from_split: bool = False


@dataclass(slots=True)
class EntityIndex:
    """Where one entity's chunks are."""

    by_component: dict[str, dict[str, IntervalIndex]] = field(default_factory=dict)
    by_timeline: dict[str, IntervalIndex] = field(default_factory=dict)
    static: dict[str, int] = field(default_factory=dict)
    keys: set[int] = field(default_factory=set)

    def intervals(self, timeline: str, component: str) -> IntervalIndex | None:
        """The index of one (timeline, component), or None."""
        return self.by_component.get(timeline, {}).get(component)

    def add(self, key: int, chunk: Chunk) -> None:
        """Index a chunk under a new key; a static one gets no slot here."""
        self.keys.add(key)
        for timeline, column in chunk.timelines.items():
            _index(self.by_timeline, timeline).add(column.min, column.max, key)
            for component in chunk.components:
                lo, hi = chunk.time_range(timeline, component)
                _index(self.by_component.setdefault(timeline, {}), component).add(lo, hi, key)

    def remove(self, key: int, chunk: Chunk) -> None:
        """Forget a chunk, its static slots too; an index that becomes empty goes."""
        self.keys.remove(key)
        for timeline, column in chunk.timelines.items():
            _remove(self.by_timeline, timeline, column.min, key)
            for component in chunk.components:
                _remove(self.by_component[timeline], component, chunk.time_range(timeline, component)[0], key)
                if not self.by_component[timeline]:
                    del self.by_component[timeline]
        for component in [name for name, holder in self.static.items() if holder == key]:
            del self.static[component]


class Catalog:
    """The live chunks of a store by key, entity and inserted id. It applies changes; it decides nothing."""

    def __init__(self) -> None:
        self.stored: dict[int, StoredChunk] = {}
        self.entities: dict[str, EntityIndex] = {}
        self._keys_of_source: dict[str, set[int]] = {}
        self._next_key = 0

    def put(self, stored: StoredChunk) -> int:
        """Add a chunk and return its key."""
        key, self._next_key = self._next_key, self._next_key + 1
        self.stored[key] = stored
        self.entities.setdefault(stored.chunk.entity, EntityIndex()).add(key, stored.chunk)
        for source in stored.sources:
            self._keys_of_source.setdefault(source, set()).add(key)
        return key

    def grow(self, key: int, merged: Chunk, sources: Iterable[str]) -> None:
        """Replace a chunk by one that holds its rows and others, inserted under `sources`; it keeps its key.

        Cost follows the new sources, not those that the chunk has gathered before.
        """
        stored = self.stored[key]
        entity = self.entities[stored.chunk.entity]
        entity.remove(key, stored.chunk)
        entity.add(key, merged)
        for source in sources:
            self._keys_of_source.setdefault(source, set()).add(key)
        stored.sources.update(sources)
        self.stored[key] = StoredChunk(merged, stored.sources)

    def remove(self, key: int) -> StoredChunk:
        """Remove a chunk and return it."""
        stored = self.stored.pop(key)
        entity = self.entities[stored.chunk.entity]
        entity.remove(key, stored.chunk)
        if not entity.keys:
            del self.entities[stored.chunk.entity]
        for source in stored.sources:
            keys = self._keys_of_source[source]
            keys.discard(key)
            if not keys:
                del self._keys_of_source[source]
        return stored

    def keys_from(self, source: str) -> list[int]:
        """Keys of the live chunks that hold rows inserted under this id."""
        return sorted(self._keys_of_source.get(source, ()))

    def by_first_row(self, keys: Iterable[int] | None = None) -> list[int]:
        """These keys (all if left out) in ascending order of the chunks' least row id."""
        chosen = self.stored if keys is None else keys
        return sorted(chosen, key=lambda key: (self.stored[key].chunk.first_row_id, key))

    def snapshot(self) -> tuple[dict[int, StoredChunk], dict[str, dict[str, int]]]:
        """The chunks by key and the static slots by entity, as they are now."""
        return dict(self.stored), {entity: dict(index.static) for entity, index in self.entities.items()}

    def temporal_keys(self) -> Iterator[int]:
        """Keys of the chunks that have times, in no promised order."""
        return (key for key, stored in self.stored.items() if not stored.chunk.is_static)


def _index(indexes: dict[str, IntervalIndex], name: str) -> IntervalIndex:
    index = indexes.get(name)
    if index is None:
        index = indexes[name] = IntervalIndex()
    return index


def _remove(indexes: dict[str, IntervalIndex], name: str, start: int, key: int) -> None:
    indexes[name].remove(start, key)
    if not len(indexes[name]):
        del indexes[name]
