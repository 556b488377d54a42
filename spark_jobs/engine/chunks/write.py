"""Writes of checked chunks to a catalog: static slots, splitting, merging on write."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from spark_jobs.engine.chunks.config import StoreConfig
from spark_jobs.engine.chunks.index import ChunkCatalog, StoredChunk
from spark_jobs.engine.chunks.merge import concat, elect
from spark_jobs.engine.chunks.model import Chunk
from spark_jobs.engine.chunks.split import split_chunk


def insert_static(catalog: ChunkCatalog, stored: StoredChunk) -> tuple[str, ...]:
    """Add a static chunk and give it the slot of every component for which it has the greatest row id.

    Returns the sorted ids of the chunks that lost their last slot to it; they are removed. A chunk that gets no slot on
    arrival is kept, as it has lost none; it answers no query.
    """
    overtaken = _take_slots(catalog, _put(catalog, stored))
    emptied = overtaken - set(catalog.entities[stored.chunk.entity].static.values())
    return tuple(sorted(catalog.remove(holder).chunk.id for holder in emptied))


def insert_temporal(catalog: ChunkCatalog, stored: StoredChunk, config: StoreConfig) -> None:
    """Add a temporal chunk: in pieces if it exceeds a limit, else merged with the neighbour that `elect` names, if any.

    The first piece of a split keeps the name of the chunk. Pieces are added as they are. A merged chunk has the name of
    its older part with a `+`, descends from all ids of both parts, and is not split again.
    """
    if stored.from_split:
        _put(catalog, stored)
        return
    pieces = split_chunk(stored.chunk, config)
    if len(pieces) > 1:
        for piece in _find_named(catalog, pieces):
            _put(catalog, StoredChunk(piece, set(stored.sources), from_split=True))
        return
    neighbour = _neighbour(catalog, stored.chunk, config)
    if neighbour is None:
        _put(catalog, stored)
        return
    other = catalog.stored[neighbour].chunk
    first, last = sorted((stored.chunk, other), key=lambda chunk: chunk.first_row_id)
    name = catalog.free_name(first.id.removesuffix("+") + "+", neighbour)
    catalog.grow(neighbour, concat(first, last, name), stored.sources)


def cut_out(catalog: ChunkCatalog, key: int, timeline: str, lo: int, hi: int) -> tuple[int, list[StoredChunk]]:
    """Remove a chunk if it has rows with a time in `[lo, hi]` on the timeline.

    Returns the number of those rows, and the chunks of the earlier and the later rows, which the caller adds in its
    place. The first of them keeps the name of the chunk.
    """
    stored = catalog.stored[key]
    times = stored.chunk.timelines[timeline].times
    parts = [stored.chunk.take(mask, stored.chunk.id) for mask in (times < lo, times > hi) if mask.any()]
    hit = stored.chunk.num_rows - sum(part.num_rows for part in parts)
    if not hit:
        return 0, []
    catalog.remove(key)
    return hit, [StoredChunk(part, set(stored.sources), stored.from_split) for part in _find_named(catalog, parts)]


def insert_anew(catalog: ChunkCatalog, config: StoreConfig) -> ChunkCatalog:
    """A new catalog with every chunk inserted anew, by least row id; pieces of splits may merge again."""
    anew = ChunkCatalog()
    for key in catalog.by_first_row():
        entry = catalog.stored[key]
        stored = StoredChunk(entry.chunk, set(entry.sources))
        if stored.chunk.is_static:
            insert_static(anew, stored)
        else:
            insert_temporal(anew, stored, config)
    return anew


def catalog_of(chunks: Iterable[StoredChunk]) -> ChunkCatalog:
    """A catalog of the live chunks of another one, unchanged: no chunk is split, merged or removed."""
    catalog = ChunkCatalog()
    for entry in sorted(chunks, key=lambda stored: stored.chunk.first_row_id):
        key = catalog.put(entry)
        if entry.chunk.is_static:
            _take_slots(catalog, key)
    return catalog


def _find_named(catalog: ChunkCatalog, parts: list[Chunk]) -> list[Chunk]:
    """The parts of a chunk under names of their own.

    The first part keeps the name of the chunk; the names of the others contain their least row id."""
    others = [replace(part, id=catalog.free_name(f"{part.id}~{part.first_row_id}")) for part in parts[1:]]
    return [*parts[:1], *others]


def _put(catalog: ChunkCatalog, stored: StoredChunk) -> int:
    """Add a chunk under its name. A part or a merged chunk of the same name is renamed.

    That is safe, because callers use only the names under which chunks were inserted."""
    for key in catalog.keys_named(stored.chunk.id):
        catalog.rename(key, catalog.free_name(f"{stored.chunk.id}~"))
    return catalog.put(stored)


def _take_slots(catalog: ChunkCatalog, key: int) -> set[int]:
    """Give a static chunk the slot of every component for which it has the greatest row id.

    Returns the keys of the chunks that had the slots before."""
    chunk = catalog.stored[key].chunk
    slots = catalog.entities[chunk.entity].static
    overtaken = set()
    for component in chunk.components:
        holder = slots.get(component)
        if holder is not None:
            if chunk.greatest_row_id(component) <= catalog.stored[holder].chunk.greatest_row_id(component):
                continue
            overtaken.add(holder)
        catalog.take_slot(component, key)
    return overtaken


def _neighbour(catalog: ChunkCatalog, chunk: Chunk, config: StoreConfig) -> int | None:
    entity = catalog.entities.get(chunk.entity)
    return None if entity is None else elect(chunk, entity, catalog.stored, config)
