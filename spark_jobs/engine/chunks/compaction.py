"""Compaction to convergence: it makes fewer chunks of the same rows, and a second run changes nothing.

A pass inserts every chunk anew, by least row id. Its result is used only if it has fewer chunks, or if a chunk before
the pass exceeded a limit and had to be split. Otherwise the chunks stay exactly as they were. So the number of chunks
falls from pass to pass, and after a pass without gain no later pass has any.

Time locality: a pass merges neighbours only, as a write does, and never above the limits. So a chunk is not built from
rows that are far apart in time.
"""

from __future__ import annotations

from spark_jobs.engine.chunks.config import StoreConfig
from spark_jobs.engine.chunks.index import ChunkCatalog
from spark_jobs.engine.chunks.split import split_chunk
from spark_jobs.engine.chunks.write import insert_anew


def compact_catalog(catalog: ChunkCatalog, config: StoreConfig, passes: int) -> ChunkCatalog:
    """The catalog after a first pass and at most `passes` further ones; the argument itself if no pass has a gain."""
    for number in range(passes + 1):
        anew = insert_anew(catalog, config)
        fewer = len(anew.stored) < len(catalog.stored)
        if not fewer and not _exceeds_a_limit(catalog, config):
            return catalog
        catalog = anew
        if not fewer and number > 0:
            break
    return catalog


def _exceeds_a_limit(catalog: ChunkCatalog, config: StoreConfig) -> bool:
    return any(len(split_chunk(stored.chunk, config)) > 1 for stored in catalog.stored.values())
