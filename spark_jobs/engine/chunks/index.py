"""The catalog of the chunks of a store, with indexes to find them.

Every temporal chunk is indexed per (entity, timeline, component) by the time range of the rows *that have a value of
this component*: a sparse component's range is narrower than its chunk's, and an index by the chunk's range would give
wrong answers. It is also indexed per (entity, timeline) by the chunk's whole range, for drops and listings. Static
values live in one slot per (entity, component).

Keys are integers of the catalog itself; the `id` of a chunk is only its name. Several live chunks may descend from the
same inserted id; each has a name of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from spark_jobs.engine.chunks.interval_index import IntervalIndex
from spark_jobs.engine.chunks.model import Chunk


@dataclass(frozen=True, slots=True, eq=False)
class StoredChunk:
    """A live chunk and its descent.

    Args:
        chunk: the chunk.
        sources: ids under which its rows were inserted; no other chunk shares the set.
        from_split: True if it is a piece of a chunk that was split on insert; such a piece never merges.
    """

    chunk: Chunk
    sources: set[str]
    from_split: bool = False


@dataclass(slots=True)
class EntityIndex:
    """The indexes of the chunks of one entity."""

    by_component: dict[str, dict[str, IntervalIndex]] = field(default_factory=dict)
    by_timeline: dict[str, IntervalIndex] = field(default_factory=dict)
    static: dict[str, int] = field(default_factory=dict)
    keys: set[int] = field(default_factory=set)

    def intervals(self, timeline: str, component: str) -> IntervalIndex | None:
        """The index of one (timeline, component), or None."""
        return self.by_component.get(timeline, {}).get(component)

    def add(self, key: int, chunk: Chunk) -> None:
        """Index a chunk under a new key; a static chunk gets its slots elsewhere."""
        self.keys.add(key)
        for timeline, column in chunk.timelines.items():
            _index(self.by_timeline, timeline).add(column.min, column.max, key)
            for component in chunk.components:
                lo, hi = chunk.time_range(timeline, component)
                _index(self.by_component.setdefault(timeline, {}), component).add(lo, hi, key)

    def remove(self, key: int, chunk: Chunk) -> None:
        """Remove a chunk from all indexes and static slots; an index that becomes empty is removed."""
        self.keys.remove(key)
        for timeline, column in chunk.timelines.items():
            _remove(self.by_timeline, timeline, column.min, key)
            for component in chunk.components:
                _remove(self.by_component[timeline], component, chunk.time_range(timeline, component)[0], key)
                if not self.by_component[timeline]:
                    del self.by_component[timeline]
        for component in [name for name, holder in self.static.items() if holder == key]:
            del self.static[component]


class ChunkCatalog:
    """The live chunks of a store by key, entity, name and inserted id. It applies the changes that callers decide."""

    def __init__(self) -> None:
        self.stored: dict[int, StoredChunk] = {}
        self.entities: dict[str, EntityIndex] = {}
        self._keys_of_source: dict[str, set[int]] = {}
        self._keys_of_name: dict[str, set[int]] = {}
        self._next_key = 0
        self._undo: list[Callable[[], None]] | None = None

    @contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        """If an error leaves the block, every change made in it is undone. Blocks may nest: the outermost counts.

        The cost is that of the changes, whatever the size of the catalog.
        """
        if self._undo is not None:
            yield
            return
        undo = self._undo = []
        try:
            yield
        except BaseException:
            self._undo = None
            for take_back in reversed(undo):
                take_back()
            raise
        finally:
            self._undo = None

    def put(self, stored: StoredChunk) -> int:
        """Add a chunk and return its key."""
        key, self._next_key = self._next_key, self._next_key + 1
        self._add(key, stored)
        self._undo_by(lambda: self._forget(key))
        return key

    def grow(self, key: int, merged: Chunk, sources: Iterable[str]) -> None:
        """Replace a chunk by `merged`, which also has rows inserted under `sources`. The key stays.

        The cost depends on the number of new sources, not on the number of sources that the chunk has already.
        """
        before = self.stored[key]
        gained = set(sources) - before.sources
        before.sources.update(gained)
        self._exchange(key, before.chunk, StoredChunk(merged, before.sources))
        for source in gained:
            self._keys_of_source.setdefault(source, set()).add(key)

        def shrink() -> None:
            self._exchange(key, merged, before)
            before.sources.difference_update(gained)
            for source in gained:
                _discard(self._keys_of_source, source, key)

        self._undo_by(shrink)

    def rename(self, key: int, name: str) -> None:
        """Give a chunk another name."""
        before = self.stored[key]
        self._set(key, replace(before, chunk=replace(before.chunk, id=name)))
        self._undo_by(lambda: self._set(key, before))

    def remove(self, key: int) -> StoredChunk:
        """Remove a chunk and return it."""
        stored = self.stored[key]
        slots = [name for name, holder in self.entities[stored.chunk.entity].static.items() if holder == key]
        self._forget(key)

        def add_again() -> None:
            self._add(key, stored)
            self.entities[stored.chunk.entity].static.update(dict.fromkeys(slots, key))

        self._undo_by(add_again)
        return stored

    def take_slot(self, component: str, key: int) -> None:
        """Make a static chunk the one that gives the value of a component."""
        entity = self.stored[key].chunk.entity
        before = self.entities[entity].static.get(component)
        self.entities[entity].static[component] = key

        def give_back() -> None:
            slots = self.entities[entity].static
            if before is None:
                del slots[component]
            else:
                slots[component] = before

        self._undo_by(give_back)

    def keys_from(self, source: str) -> list[int]:
        """Keys of the live chunks with rows that were inserted under this id."""
        return sorted(self._keys_of_source.get(source, ()))

    def keys_named(self, name: str) -> list[int]:
        """Keys of the live chunks of this name; several only in a catalog of chunks that had the same name before."""
        return sorted(self._keys_of_name.get(name, ()))

    def free_name(self, name: str, holder: int | None = None) -> str:
        """This name, or the next one after it that no chunk other than `holder` has."""
        while self._keys_of_name.get(name, set()) - {holder}:
            name += "~"
        return name

    def by_first_row(self, keys: Iterable[int] | None = None) -> list[int]:
        """These keys (all if left out) in ascending order of the chunks' least row id."""
        chosen = self.stored if keys is None else keys
        return sorted(chosen, key=lambda key: (self.stored[key].chunk.first_row_id, key))

    def snapshot(self) -> tuple[dict[int, StoredChunk], dict[str, dict[str, int]]]:
        """The chunks by key and the static slots by entity, as they are now."""
        return dict(self.stored), {entity: dict(index.static) for entity, index in self.entities.items()}

    def _undo_by(self, take_back: Callable[[], None]) -> None:
        if self._undo is not None:
            self._undo.append(take_back)

    def _add(self, key: int, stored: StoredChunk) -> None:
        self.stored[key] = stored
        self.entities.setdefault(stored.chunk.entity, EntityIndex()).add(key, stored.chunk)
        self._keys_of_name.setdefault(stored.chunk.id, set()).add(key)
        for source in stored.sources:
            self._keys_of_source.setdefault(source, set()).add(key)

    def _forget(self, key: int) -> None:
        stored = self.stored.pop(key)
        entity = self.entities[stored.chunk.entity]
        entity.remove(key, stored.chunk)
        if not entity.keys:
            del self.entities[stored.chunk.entity]
        _discard(self._keys_of_name, stored.chunk.id, key)
        for source in stored.sources:
            _discard(self._keys_of_source, source, key)

    def _exchange(self, key: int, before: Chunk, after: StoredChunk) -> None:
        entity = self.entities[before.entity]
        entity.remove(key, before)
        entity.add(key, after.chunk)
        self._set(key, after)

    def _set(self, key: int, stored: StoredChunk) -> None:
        _discard(self._keys_of_name, self.stored[key].chunk.id, key)
        self._keys_of_name.setdefault(stored.chunk.id, set()).add(key)
        self.stored[key] = stored


def _discard(keys: dict[str, set[int]], name: str, key: int) -> None:
    keys[name].discard(key)
    if not keys[name]:
        del keys[name]


def _index(indexes: dict[str, IntervalIndex], name: str) -> IntervalIndex:
    index = indexes.get(name)
    if index is None:
        index = indexes[name] = IntervalIndex()
    return index


def _remove(indexes: dict[str, IntervalIndex], name: str, start: int, key: int) -> None:
    indexes[name].remove(start, key)
    if not len(indexes[name]):
        del indexes[name]
