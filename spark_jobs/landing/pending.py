"""Rows that have landed but are not in the trace yet: those of landings beyond the last one that was appended."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.engine.chunks import chunk_rows as rows_of
from spark_jobs.engine.columns import numbers
from spark_jobs.landing.ledger import pending_landings
from spark_jobs.sources import Source
from spark_jobs.sources.drops import PLACE_BITS
from spark_jobs.storage.delta.data_files import StoredRows
from spark_jobs.storage.descriptions.column_types import arrow_type
from spark_jobs.storage.descriptions.tables import LANDING_OF_ROWS, chunks, row_columns
from spark_jobs.storage.lakes.lake import FrameLake, Lake

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@dataclass(frozen=True)
class ChunkRows:
    """The rows of chunks, read by pyarrow; parts of them may be sent to tasks. `n_rows`: the number of rows."""

    source: Source
    stored: StoredRows
    n_rows: int

    def split(self, most_rows: int) -> list[ChunkRows]:
        """Parts of about `most_rows` rows."""
        rows_a_chunk = -(-self.n_rows // max(self.stored.n_rows, 1)) or 1
        parts = self.stored.split(max(most_rows // rows_a_chunk, 1))
        return [replace(self, stored=part, n_rows=part.n_rows * rows_a_chunk) for part in parts]

    def tables(self) -> Iterator[pa.Table]:
        """The rows, some at a time: the columns of `tables.row_columns`, and `diff`."""
        arrays = self._arrays
        for table in self._read.tables():
            rows = rows_of(table, rows="rows", arrays=arrays, same=("entity", "diff"))
            yield rows.append_column("seq_no", pa.array(numbers(rows["row_id"]) >> PLACE_BITS))

    @property
    def n_bytes(self) -> int:
        """The bytes of the columns that are read; see `StoredRows.n_bytes`."""
        return self._read.n_bytes

    @property
    def _arrays(self) -> dict[str, str]:
        """Columns of rows -> their names in chunks."""
        columns = [c.name for c in row_columns(self.source) if c.name not in ("seq_no", "entity")]
        return {name: PLURAL.get(name, name) for name in columns}

    @property
    def _read(self) -> StoredRows:
        return self.stored.with_columns(["entity", "diff", "rows", *self._arrays.values()])


def row_schema(source: Source) -> pa.Schema:
    """The schema of a source's rows: the columns of `tables.row_columns`."""
    return pa.schema([(column.name, arrow_type(column.type)) for column in row_columns(source)])


PLURAL = {"row_id": "row_ids", "event_time": "event_times", "delta_id": "delta_ids"}
"""Columns of a row -> their names in chunks, where these differ."""


@dataclass(frozen=True, slots=True)
class Pending:
    """Rows to append to the trace (None: nothing landed), and the landings in the ledger that are not in the trace yet,
    oldest first, with their drops.

    `has_repeats`: true if a row may be among the rows more than once, since it came and went.
    """

    rows: ChunkRows | None
    landings: tuple[int, ...]
    drops: tuple[int, ...] = ()
    has_repeats: bool = False


def pending_updates(lake: Lake, source: Source, landed_through: int) -> Pending:
    """The rows of every landing in the ledger beyond `landed_through`."""
    landings = pending_landings(lake, source, landed_through)
    drops = tuple(sorted({n for landing in landings.values() for n in landing.drops}))
    with_rows = [number for number, landing in landings.items() if landing.n_updates]
    if not with_rows:
        return Pending(None, tuple(landings), drops)
    n_rows = sum(landing.n_updates for landing in landings.values())
    repeats = any(landing.counts["rows_back"] for landing in landings.values())
    of_landings = pc.field("landing").isin(pa.array(with_rows, pa.int64()))
    stored = lake.stored(chunks(source), ["entity"], of_landings)
    return Pending(ChunkRows(source, stored, n_rows), tuple(landings), drops, repeats)


def chunk_rows(lake: FrameLake, source: Source) -> DataFrame:
    """The chunks of a source as rows: the columns of `tables.row_columns`, and `diff` and `landing`."""
    return rows_of_chunks(lake.read(chunks(source)), source, landing=F.expr(LANDING_OF_ROWS))


def rows_of_chunks(chunks: DataFrame, source: Source, **more: Column) -> DataFrame:
    """Chunks as rows, in the order of the chunks: the columns of `tables.row_columns`, `diff`, and an element of each
    of the arrays `more`."""
    alone = ("seq_no", "entity")
    in_arrays = [c for c in row_columns(source) if c.name not in alone]
    # a chunk without any value of a column stores no array of it, but zipping needs one
    arrays = [
        F.coalesce(PLURAL.get(c.name, c.name), F.array_repeat(F.lit(None).cast(c.type), F.col("rows"))).alias(c.name)
        for c in in_arrays
    ]
    zipped = chunks.select("diff", "entity", *arrays, *[array.alias(name) for name, array in more.items()])
    names = [*[c.name for c in in_arrays], *more]
    rows = zipped.select("diff", "entity", F.explode(F.arrays_zip(*names)).alias("r"))
    # a merged chunk has rows of several drops
    of_row = {"entity": F.col("entity"), "seq_no": F.shiftright("r.row_id", PLACE_BITS).alias("seq_no")}
    return rows.select(
        *[of_row.get(c.name, F.col(f"r.{c.name}")) for c in row_columns(source)], "diff", *map("r.{}".format, more)
    )
