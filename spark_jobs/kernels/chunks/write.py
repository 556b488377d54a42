"""Putting a checked chunk into a catalog: static slots, splitting, merging on write."""

from __future__ import annotations

from collections.abc import Iterable

from spark_jobs.kernels.chunks.config import StoreConfig
from spark_jobs.kernels.chunks.index import Catalog, StoredChunk
from spark_jobs.kernels.chunks.merge import concat, elect
from spark_jobs.kernels.chunks.model import Chunk
from spark_jobs.kernels.chunks.split import split_chunk


def insert_static(catalog: Catalog, stored: StoredChunk) -> tuple[str, ...]:
    """Put a static chunk and give it the slot of every component for which it holds the greatest row id.

    Returns the sorted ids of the chunks that lost their last slot to it; they are removed. A chunk that wins no slot on
    arrival is kept: it has lost nothing to this insert, and answers no query.
    """
    key = catalog.put(stored)
    slots = catalog.entities[stored.chunk.entity].static
    overtaken = set()
    for component in stored.chunk.components:
        holder = slots.get(component)
        if holder is not None:
            greatest = catalog.stored[holder].chunk.greatest_row_id(component)
            if stored.chunk.greatest_row_id(component) <= greatest:
                continue
            overtaken.add(holder)
        slots[component] = key
    emptied = overtaken - set(slots.values())
    return tuple(sorted(catalog.remove(holder).chunk.id for holder in emptied))


def insert_temporal(catalog: Catalog, stored: StoredChunk, config: StoreConfig) -> None:
    """Put a temporal chunk: in pieces if it exceeds a limit, else merged with the neighbour that `elect` names, if any.

    A piece of a split is put as it is. A merged chunk is named after its older part with a `+`, descends from all ids
    that either side descends from, and is not split again.
    """
    if stored.from_split:
        catalog.put(stored)
        return
    pieces = split_chunk(stored.chunk, config)
    if len(pieces) > 1:
        for piece in pieces:
            catalog.put(StoredChunk(piece, set(stored.sources), from_split=True))
        return
    neighbour = _neighbour(catalog, stored.chunk, config)
    if neighbour is None:
        catalog.put(stored)
        return
    other = catalog.stored[neighbour].chunk
    first, last = sorted((stored.chunk, other), key=lambda chunk: chunk.first_row_id)
    catalog.grow(neighbour, concat(first, last, first.id.removesuffix("+") + "+"), stored.sources)


def reinserted(catalog: Catalog, config: StoreConfig) -> Catalog:
    """A new catalog with every chunk inserted anew, by least row id; pieces of splits may merge again."""
    anew = Catalog()
    for key in catalog.by_first_row():
        held = catalog.stored[key]
        stored = StoredChunk(held.chunk, set(held.sources))
        if stored.chunk.is_static:
            insert_static(anew, stored)
        else:
            insert_temporal(anew, stored, config)
    return anew


def restored(chunks: Iterable[StoredChunk]) -> Catalog:
    """A catalog of chunks that were live in another one, as they were: nothing is split, merged or overtaken."""
    catalog = Catalog()
    for held in sorted(chunks, key=lambda stored: stored.chunk.first_row_id):
        key = catalog.put(held)
        if not held.chunk.is_static:
            continue
        slots = catalog.entities[held.chunk.entity].static
        for component in held.chunk.components:
            holder = slots.get(component)
            greatest = None if holder is None else catalog.stored[holder].chunk.greatest_row_id(component)
            if greatest is None or held.chunk.greatest_row_id(component) > greatest:
                slots[component] = key
    return catalog


def _neighbour(catalog: Catalog, chunk: Chunk, config: StoreConfig) -> int | None:
    entity = catalog.entities.get(chunk.entity)
    return None if entity is None else elect(chunk, entity, catalog.stored, config)
