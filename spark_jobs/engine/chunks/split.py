"""Splitting one temporal chunk that is too large into consecutive pieces.

A chunk is too large when rows > max_rows, or bytes > max_bytes, or it is unsorted and rows > max_rows_if_unsorted
(limits inclusive, 0 = off). It is cut every `target` rows: the unsorted limit if that one is exceeded, else max_rows,
else `max_bytes div (bytes div rows)`, at least 1. Pieces are checked again until nothing changes, as a piece may
exceed another limit than the whole chunk did. A single row is never cut. Because of the integer division, a piece may
stay above max_bytes.
"""

from __future__ import annotations

from spark_jobs.engine.chunks.config import StoreConfig
from spark_jobs.engine.chunks.model import Chunk


def split_chunk(chunk: Chunk, config: StoreConfig) -> list[Chunk]:
    """The pieces of a chunk, in row order; `[chunk]` itself if no limit is exceeded or it is static.

    All pieces have the id of the chunk; the caller that stores them gives them names.
    """
    if chunk.is_static:
        return [chunk]
    pieces = _cut(chunk, config)
    while len(pieces) > 1:
        again = [part for piece in pieces for part in _cut(piece, config)]
        if len(again) == len(pieces):
            break
        pieces = again
    return pieces


def _cut(chunk: Chunk, config: StoreConfig) -> list[Chunk]:
    target = _target_rows(chunk, config)
    if target is None or target >= chunk.num_rows:
        return [chunk]
    return [chunk.take(slice(start, start + target), chunk.id) for start in range(0, chunk.num_rows, target)]


def _target_rows(chunk: Chunk, config: StoreConfig) -> int | None:
    """The number of rows per piece, or None if no limit is exceeded."""
    rows, size_bytes = chunk.num_rows, chunk.size_bytes
    if rows <= 1:
        return None
    if rows > config.max_rows_if_unsorted > 0 and not chunk.is_sorted:
        return config.max_rows_if_unsorted
    if rows > config.max_rows > 0:
        return config.max_rows
    if size_bytes > config.max_bytes > 0:
        return max(config.max_bytes // max(size_bytes // rows, 1), 1)
    return None
