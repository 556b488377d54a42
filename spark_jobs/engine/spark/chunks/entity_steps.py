"""The tasks of the Python workers, one entity at a time: the kernel's store over the entity's chunks of a table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Protocol

import pyarrow as pa

from spark_jobs.engine.chunks.config import StoreConfig
from spark_jobs.engine.chunks.gc import GcOptions
from spark_jobs.engine.chunks.store import ChunkStore
from spark_jobs.engine.chunks.stored import StoredLayout, stored_chunks, stored_table

REPORT = "changed BOOLEAN, dropped BIGINT"
"""The columns that `on_entity` adds. The chunks of an entity are followed by its report: a row without a `chunk_id`,
whose `rows` is the number of the entity's chunks."""

CANDIDATES = (
    "name STRING, first_row_id BIGINT, size_bytes BIGINT, is_static BOOLEAN, is_protected BOOLEAN,"
    " distance DECIMAL(20, 0)"
)
"""The columns of a `Candidate`, as an SQL schema; the distance of two 64-bit times may need 65 bits."""


class EntityStep(Protocol):
    """A change of one entity's store."""

    def __call__(self, store: ChunkStore) -> int:
        """Change the store. Returns the number of rows dropped."""


@dataclass(frozen=True)
class Compact:
    """The step that compacts the store to convergence."""

    config: StoreConfig
    passes: int

    def __call__(self, store: ChunkStore) -> int:
        """Compact; no row is dropped."""
        store.compact(self.config, self.passes)
        return 0


@dataclass(frozen=True)
class DropTimeRange:
    """The step that drops the rows of a time range."""

    timeline: str
    lo: int
    hi: int

    def __call__(self, store: ChunkStore) -> int:
        """Drop the rows. Returns their number."""
        return store.drop_time_range(self.timeline, self.lo, self.hi)


def on_entity(layout: StoredLayout, config: StoreConfig, step: EntityStep) -> Callable[[pa.Table], pa.Table]:
    """A function for `applyInArrow`, from the chunks of an entity to its chunks after a step, and its report.

    The result has unchanged chunks, too, as the caller may have to rewrite all chunks."""

    def run(table: pa.Table) -> pa.Table:  # a function, not a `partial`: Spark looks at its type hints
        return _after_step(table, layout, config, step)

    return run


def _after_step(table: pa.Table, layout: StoredLayout, config: StoreConfig, step: EntityStep) -> pa.Table:
    store = ChunkStore.restore(stored_chunks(table, layout), config)
    before = store.stored()
    dropped = step(store)
    after = store.stored()
    changed = set(map(id, before)) != set(map(id, after))
    chunks = stored_table(after, layout)
    report = {"entity": table["entity"][0].as_py(), "rows": len(after)}
    report_row = {field.name: [report.get(field.name)] for field in chunks.schema}
    rows = pa.concat_tables([chunks, pa.table(report_row, schema=chunks.schema)])
    added = {"changed": pa.scalar(changed), "dropped": pa.scalar(dropped, pa.int64())}
    for name, value in added.items():
        rows = rows.append_column(name, pa.repeat(value, rows.num_rows))
    return rows


def find_candidates(layout: StoredLayout, options: GcOptions) -> Callable[[pa.Table], pa.Table]:
    """A function for `applyInArrow`, from the chunks of an entity to candidates of a collection."""

    def run(table: pa.Table) -> pa.Table:
        return _candidates(table, layout, options)

    return run


def _candidates(table: pa.Table, layout: StoredLayout, options: GcOptions) -> pa.Table:
    store = ChunkStore.restore(stored_chunks(table, layout))
    collectable = store.gc_candidates(options)
    return pa.table(
        {
            "name": pa.array([candidate.name for candidate in collectable], pa.string()),
            "first_row_id": pa.array([candidate.first_row_id for candidate in collectable], pa.int64()),
            "size_bytes": pa.array([candidate.size_bytes for candidate in collectable], pa.int64()),
            "is_static": pa.array([candidate.is_static for candidate in collectable], pa.bool_()),
            "is_protected": pa.array([candidate.is_protected for candidate in collectable], pa.bool_()),
            "distance": pa.array(
                [None if c.distance is None else Decimal(c.distance) for c in collectable], pa.decimal128(20, 0)
            ),
        }
    )
