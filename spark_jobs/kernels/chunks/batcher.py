"""Batching rows into chunks.

Per entity, rows wait until a limit is reached (rows, else bytes, both tested after the row is added, so a flush may
exceed them), or until a tick, a flush or a shutdown flushes all entities. Flushed rows are put into ascending row id,
grouped by their set of timelines, then by datatypes, then cut:

- before a row, when the piece has `max_rows_if_unsorted` rows or more and is already unsorted on some timeline. A
  sorted piece grows without limit, and the row that breaks its order still joins it, unless
- `split_before_unsorting`: then also before a row that would unsort such a piece.

A flush by a limit, or by hand, suppresses the next tick for all entities. There is no clock here: the caller ticks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from spark_jobs.kernels.chunks.config import BatcherConfig
from spark_jobs.kernels.chunks.model import Chunk, Row


def chunk_name(entity: str, rows: list[Row]) -> str:
    """The id of a batched chunk: the same rows always get the same id, and chunks that share no row never share one."""
    return f"{entity}#{rows[0].row_id}-{rows[-1].row_id}/{len(rows)}"


class ChunkBatcher:
    """Collects rows per entity and gives them back as chunks.

    Args:
        config: limits; see `BatcherConfig`.
        name_chunk: gives the id of a chunk from its entity and rows.
    """

    def __init__(
        self, config: BatcherConfig | None = None, *, name_chunk: Callable[[str, list[Row]], str] = chunk_name
    ) -> None:
        self.config = BatcherConfig() if config is None else config
        self._name_chunk = name_chunk
        self._pending: dict[str, list[Row]] = {}
        self._pending_bytes: dict[str, int] = {}
        self._skip_next_tick = False

    def update_config(self, **changes: Any) -> None:
        """Change these settings only; pending rows stay and the limits are looked at again at the next push."""
        self.config = replace(self.config, **changes)

    def push(self, entity: str, row: Row) -> list[Chunk]:
        """Add a row; the entity's chunks if that reaches a limit, else nothing."""
        rows = self._pending.setdefault(entity, [])
        rows.append(row)
        self._pending_bytes[entity] = self._pending_bytes.get(entity, 0) + row.size_bytes
        full = _reached(len(rows), self.config.flush_num_rows)
        if not full and not _reached(self._pending_bytes[entity], self.config.flush_num_bytes):
            return []
        self._skip_next_tick = True
        return _by_first_row(self._flush_entity(entity))

    def tick(self) -> list[Chunk]:
        """Flush all entities, unless a flush since the last tick suppresses this one."""
        if self._skip_next_tick:
            self._skip_next_tick = False
            return []
        return self.shutdown()

    def flush(self) -> list[Chunk]:
        """Flush all entities by hand; the next tick does nothing."""
        self._skip_next_tick = True
        return self.shutdown()

    def shutdown(self) -> list[Chunk]:
        """Flush all entities for the last time, by first row id."""
        return _by_first_row(chunk for entity in list(self._pending) for chunk in self._flush_entity(entity))

    def snapshot(self) -> Any:
        """Everything that a later answer can depend on, as plain comparable values."""
        return self.config, {entity: list(rows) for entity, rows in self._pending.items()}, self._skip_next_tick

    def _flush_entity(self, entity: str) -> Iterator[Chunk]:
        rows = self._pending.pop(entity)
        del self._pending_bytes[entity]
        for piece in cut_rows(rows, self.config):
            chunk = Chunk.from_rows(self._name_chunk(entity, piece), entity, piece)
            if chunk.components or self.config.keep_sparse_rows:
                yield chunk


def cut_rows(rows: Iterable[Row], config: BatcherConfig) -> list[list[Row]]:
    """The rows of one flush of one entity, as the pieces that become chunks; each piece by ascending row id."""
    ordered = sorted(rows, key=lambda row: row.row_id)
    return [
        piece
        for same_timelines in _grouped(ordered, lambda row: frozenset(row.times))
        for group in _datatype_groups(same_timelines, config)
        for piece in _cut(group, config)
    ]


def _grouped(rows: list[Row], group_of: Callable[[Row], Any]) -> list[list[Row]]:
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        groups.setdefault(group_of(row), []).append(row)
    return list(groups.values())


def _datatype_groups(rows: list[Row], config: BatcherConfig) -> list[list[Row]]:
    if not config.keep_sparse_rows:
        return _grouped(rows, lambda row: frozenset(row.datatypes().items()))
    groups: list[tuple[dict[str, str], list[Row]]] = []
    for row in rows:
        datatypes = row.datatypes()
        for known, group in groups:
            if all(known.get(name, datatype) == datatype for name, datatype in datatypes.items()):
                known.update(datatypes)
                group.append(row)
                break
        else:
            groups.append((datatypes, [row]))
    return [group for _, group in groups]


def _cut(rows: list[Row], config: BatcherConfig) -> Iterator[list[Row]]:
    piece: list[Row] = []
    unsorted = False
    for row in rows:
        breaks_order = bool(piece) and _decreases(piece[-1].times, row.times)
        closed = unsorted or (config.split_before_unsorting and breaks_order)
        if closed and len(piece) >= config.max_rows_if_unsorted:
            yield piece
            piece, unsorted, breaks_order = [], False, False
        piece.append(row)
        unsorted = unsorted or breaks_order
    if piece:
        yield piece


def _decreases(before: Mapping[str, int], after: Mapping[str, int]) -> bool:
    return any(after[timeline] < time for timeline, time in before.items())


def _reached(amount: int, limit: int | None) -> bool:
    return limit is not None and amount >= limit


def _by_first_row(chunks: Iterable[Chunk]) -> list[Chunk]:
    return sorted(chunks, key=lambda chunk: chunk.first_row_id)
