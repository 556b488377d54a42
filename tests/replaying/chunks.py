"""The ops of kind `chunks`, each a thin call of `spark_jobs.engine.spark.chunks` or `spark_jobs.engine.chunks`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict

from spark_jobs.engine.chunks import BatcherConfig, Chunk, ChunkBatcher, ChunkStore, GcOptions, Row, StoreConfig
from spark_jobs.engine.chunks.merge import concat
from spark_jobs.engine.chunks.query import chunk_latest_at, chunk_range, dedupe_latest
from spark_jobs.engine.chunks.split import split_chunk
from tests.replaying.protocol import Json, UnknownOp


class Player:
    """One in-memory store and, independent of it, one batcher."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._store = ChunkStore()
        self._batcher = ChunkBatcher()

    def play(self, op: str, args: Mapping[str, Json]) -> Json:
        handler = getattr(self, f"op_{op}", None)
        if handler is None:
            raise UnknownOp(op)
        return handler(**args)

    def state(self) -> object:
        return self._store.snapshot(), self._batcher.snapshot()

    # -- the store -----------------------------------------------------------------------------------------------------

    def op_new(self, config: Json = None) -> None:
        self._store = ChunkStore(_store_config(config))

    def op_insert(self, chunk: Json) -> Json:
        report = self._store.insert(_chunk(**chunk))
        return {"changed": report.changed, "deleted": list(report.deleted)}

    def op_chunks(self) -> Json:
        return sorted(chunk.row_ids.tolist() for chunk in self._store.chunks())

    def op_chunk_count(self) -> int:
        return len(self._store.chunks())

    def op_all_rows(self) -> Json:
        return sorted(row_id for chunk in self._store.chunks() for row_id in chunk.row_ids.tolist())

    def op_stats(self) -> Json:
        return asdict(self._store.stats())

    def op_num_events(self, entity: str, timeline: str, component: str) -> int:
        return self._store.num_events(entity, timeline, component)

    def op_all_components(self, entity: str, timeline: str) -> Json:
        return self._store.all_components(entity, timeline)

    def op_entity_min_time(self, entity: str, timeline: str) -> int | None:
        return self._store.entity_min_time(entity, timeline)

    def op_time_range(self, timeline: str) -> Json:
        bounds = self._store.time_range(timeline)
        return None if bounds is None else list(bounds)

    def op_next_time(self, timeline: str, time: int) -> int | None:
        return self._store.next_time(timeline, time)

    def op_prev_time(self, timeline: str, time: int) -> int | None:
        return self._store.prev_time(timeline, time)

    def op_latest_at(self, entity: str, timeline: str, at: int, component: str) -> Json:
        latest = self._store.latest(entity, timeline, at, component)
        if latest is None:
            return None
        return {"row": latest.row_id, "time": "static" if latest.time is None else latest.time}

    def op_range(self, entity: str, timeline: str, lo: int, hi: int, component: str, extended: bool = False) -> Json:
        answer = self._store.range(entity, timeline, lo, hi, component, extended=extended)
        times = ["static"] * len(answer) if answer.times is None else answer.times.tolist()
        return [list(row) for row in zip(times, answer.row_ids.tolist(), strict=True)]

    def op_relevant_latest_at(self, entity: str, timeline: str, at: int) -> Json:
        return self._store.relevant_latest_at(entity, timeline, at)

    def op_relevant_range(self, entity: str, timeline: str, lo: int, hi: int) -> Json:
        return self._store.relevant_range(entity, timeline, lo, hi)

    def op_gc(
        self,
        target: Json,
        protect_latest: int = 0,
        protected_time_ranges: Json = None,
        protected_chunks: Json = (),
        furthest_from: Json = None,
    ) -> Json:
        amount = {} if target == "everything" else {_GC_TARGETS[name]: value for name, value in target.items()}
        options = GcOptions(
            **amount,
            protect_latest=protect_latest,
            protected_time_ranges=protected_time_ranges or {},
            protected_chunks=protected_chunks,
            furthest_from=furthest_from,
        )
        return self._store.gc(options)

    def op_drop_time_range(self, timeline: str, lo: int, hi: int) -> int:
        return self._store.drop_time_range(timeline, lo, hi)

    def op_drop_entity(self, entity: str) -> Json:
        return self._store.drop_entity(entity)

    def op_compact_all(self, config: Json = None, passes: int = 50) -> int:
        return self._store.compact(_store_config(config), passes)

    # -- without state -------------------------------------------------------------------------------------------------

    def op_chunk_latest_at(self, rows: Json, timeline: str, at: int, component: str) -> int | None:
        return chunk_latest_at(_rows_chunk(rows), timeline, at, component)

    def op_chunk_range(
        self, rows: Json, timeline: str, lo: int, hi: int, component: str, extended: bool = False
    ) -> Json:
        return chunk_range(_rows_chunk(rows), timeline, lo, hi, component, extended=extended)

    def op_dedupe_latest(self, rows: Json, timeline: str) -> Json:
        return dedupe_latest(_rows_chunk(rows), timeline)

    def op_split(self, rows: Json, config: Json) -> Json:
        limits = StoreConfig(**{**asdict(StoreConfig.off()), **config})
        return [piece.row_ids.tolist() for piece in split_chunk(_rows_chunk(rows), limits)]

    def op_concat(self, left: Json, right: Json) -> Json:
        merged = concat(_chunk(**left), _chunk(**right), chunk_id="merged")
        return {"rows": merged.row_ids.tolist(), "sorted": _sorted_flags(merged)}

    # -- the batcher ---------------------------------------------------------------------------------------------------

    def op_batcher_new(self, config: Json = None) -> None:
        self._batcher = ChunkBatcher(BatcherConfig(**(config or {})))

    def op_update_config(self, config: Json) -> None:
        self._batcher.update_config(**config)

    def op_push(self, entity: str, row: Json) -> Json:
        return _batched(self._batcher.push(entity, _row(row)))

    def op_push_many(self, rows: Json) -> Json:
        return [chunk for entity, row in rows for chunk in self.op_push(entity, row)]

    def op_tick(self) -> Json:
        return _batched(self._batcher.tick())

    def op_flush(self) -> Json:
        return _batched(self._batcher.flush())

    def op_shutdown(self) -> Json:
        return _batched(self._batcher.shutdown())


_GC_TARGETS = {"bytes": "free_bytes", "fraction": "fraction"}


def _store_config(config: Json) -> StoreConfig:
    return StoreConfig.off() if config == "off" else StoreConfig(**(config or {}))


def _row(row: Mapping[str, Json]) -> Row:
    return Row(row["row"], row["times"], row["data"], row.get("types") or {}, row.get("bytes", 1))


def _chunk(id: str, entity: str, rows: Iterable[Mapping[str, Json]]) -> Chunk:
    return Chunk.from_rows(id, entity, [_row(row) for row in rows])


def _rows_chunk(rows: Json) -> Chunk:
    return _chunk("rows", "rows", rows)


def _sorted_flags(chunk: Chunk) -> dict[str, bool]:
    return {timeline: column.is_sorted for timeline, column in chunk.timelines.items()}


def _batched(chunks: Iterable[Chunk]) -> Json:
    return [
        {"entity": chunk.entity, "rows": chunk.row_ids.tolist(), "sorted": _sorted_flags(chunk)} for chunk in chunks
    ]
