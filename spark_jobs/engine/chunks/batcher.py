"""Batching rows into chunks.

The rows of an entity wait until a limit of rows or bytes is reached, or until a tick, a flush or a shutdown flushes all
entities. The limits are tested with the new row, so a flush may exceed them. Flushed rows are sorted by ascending row
id, grouped by their set of timelines, then by datatypes, then cut:

- before a row, when the piece has `max_rows_if_unsorted` rows or more and is already unsorted on some timeline. A
  sorted piece grows without limit, and the row that breaks its order still joins it, unless
- `split_before_unsorting`: then also before a row that would unsort such a piece.

A flush by a limit, or by hand, suppresses the next tick for all entities. There is no clock here: the caller ticks.

Every call is all or nothing: rows wait until the chunks of all of them have been made. A row that no chunk could store
is refused when it is pushed, so that it does not block a later flush.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from spark_jobs.engine.chunks import checks
from spark_jobs.engine.chunks.config import BatcherConfig
from spark_jobs.engine.chunks.errors import DuplicateRow
from spark_jobs.engine.chunks.model import Chunk
from spark_jobs.engine.chunks.rows import Row
from spark_jobs.errors import ParameterError


def chunk_name(entity: str, rows: list[Row]) -> str:
    """The id of a batched chunk: the same rows always get the same id, and chunks without a common row differ in it."""
    return f"{entity}#{rows[0].row_id}-{rows[-1].row_id}/{len(rows)}"


class ChunkBatcher:
    """Collects rows per entity and returns them as chunks.

    Args:
        config: limits; see `BatcherConfig`.
        name_chunk: returns the id of a chunk from its entity and rows.
    """

    def __init__(
        self, config: BatcherConfig | None = None, *, name_chunk: Callable[[str, list[Row]], str] = chunk_name
    ) -> None:
        self.config = BatcherConfig() if config is None else config
        self._name_chunk = name_chunk
        self._pending: dict[str, _Pending] = {}
        self._skip_next_tick = False

    def update_config(self, **changes: Any) -> None:
        """Change these settings only. Pending rows stay; the new limits are tested at the next push.

        Raises:
            ParameterError: there is no such setting, or it can't have this value.
        """
        unknown = sorted(changes.keys() - {setting.name for setting in fields(self.config)})
        if unknown:
            raise ParameterError(
                expected="settings of a batcher",
                found=", ".join(unknown),
                next_step=f"use one of {', '.join(setting.name for setting in fields(self.config))}",
            )
        self.config = replace(self.config, **changes)

    def push(self, entity: str, row: Row) -> list[Chunk]:
        """Add a row. Returns the chunks of the entity if that reaches a limit, else an empty list.

        Raises:
            DuplicateRow: a row of this id waits already for this entity.
            ParameterError: the entity is no string or the row no row.
        """
        checks.check_names(entity=entity)
        checks.check_kind(row, Row, "what is pushed")
        pending = self._pending.get(entity) or _Pending()
        if row.row_id in pending.rows:
            raise DuplicateRow(
                expected=f"a row id that no other row of {entity!r} has",
                found=f"{row.row_id} again",
                next_step="leave the row out, or give it an id of its own",
                row=int(row.row_id),
            )
        full = _is_reached(len(pending.rows) + 1, self.config.flush_num_rows)
        if full or _is_reached(pending.size_bytes + row.size_bytes, self.config.flush_num_bytes):
            chunks = _by_first_row(self._chunks(entity, [*pending.rows.values(), row]))
            self._pending.pop(entity, None)
            self._skip_next_tick = True
            return chunks
        pending.rows[row.row_id] = row
        pending.size_bytes += row.size_bytes
        self._pending[entity] = pending
        return []

    def tick(self) -> list[Chunk]:
        """Flush all entities, unless a flush since the last tick suppresses this one."""
        if self._skip_next_tick:
            self._skip_next_tick = False
            return []
        return self.shutdown()

    def flush(self) -> list[Chunk]:
        """Flush all entities by hand; the next tick does nothing."""
        chunks = self.shutdown()
        self._skip_next_tick = True
        return chunks

    def shutdown(self) -> list[Chunk]:
        """Flush all entities for the last time, by first row id."""
        chunks = _by_first_row(
            chunk for entity, pending in self._pending.items() for chunk in self._chunks(entity, pending.rows.values())
        )
        self._pending = {}
        return chunks

    def snapshot(self) -> Any:
        """All state on which a later answer can depend, as plain comparable values."""
        pending = {entity: list(pending.rows.values()) for entity, pending in self._pending.items()}
        return self.config, pending, self._skip_next_tick

    def _chunks(self, entity: str, rows: Iterable[Row]) -> Iterator[Chunk]:
        for piece in cut_rows(rows, self.config):
            chunk = Chunk.from_rows(self._name_chunk(entity, piece), entity, piece)
            if chunk.components or self.config.keep_sparse_rows:
                yield chunk


@dataclass(slots=True)
class _Pending:
    """The waiting rows of one entity, by id in the order in which they came, and their size in bytes."""

    rows: dict[int, Row] = field(default_factory=dict)
    size_bytes: int = 0


def cut_rows(rows: Iterable[Row], config: BatcherConfig) -> list[list[Row]]:
    """The rows of one flush of one entity, as the pieces that become chunks; each piece by ascending row id."""
    ordered = sorted(rows, key=lambda row: row.row_id)
    return [
        piece
        for same_timelines in _group(ordered, lambda row: frozenset(row.times))
        for group in _datatype_groups(same_timelines, config)
        for piece in _cut(group, config)
    ]


def _group(rows: list[Row], group_of: Callable[[Row], Any]) -> list[list[Row]]:
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        groups.setdefault(group_of(row), []).append(row)
    return list(groups.values())


def _datatype_groups(rows: list[Row], config: BatcherConfig) -> list[list[Row]]:
    if not config.keep_sparse_rows:
        return _group(rows, lambda row: frozenset(row.datatypes().items()))
    groups: list[tuple[dict[str, str], list[Row]]] = []
    for row in rows:
        datatypes = row.datatypes()
        for group_datatypes, group in groups:
            if all(group_datatypes.get(name, datatype) == datatype for name, datatype in datatypes.items()):
                group_datatypes.update(datatypes)
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


def _is_reached(amount: int, limit: int | None) -> bool:
    return limit is not None and amount >= limit


def _by_first_row(chunks: Iterable[Chunk]) -> list[Chunk]:
    return sorted(chunks, key=lambda chunk: chunk.first_row_id)
