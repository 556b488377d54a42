"""What has landed but is not in the trace yet: the rows of landings beyond the last one that was appended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.landing.ledger import pending_landings
from spark_jobs.sources import Source
from spark_jobs.sources.drops import PLACE_BITS
from spark_jobs.storage.lake import Lake
from spark_jobs.storage.tables import LANDING_OF_ROWS, chunks, row_columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@dataclass(frozen=True, slots=True)
class Pending:
    """Updates to append, with the columns of `tables.updates` but batch, time and token (None: nothing landed), and the
    landings of the ledger that are not in the trace yet, oldest first, with the number of their updates and the drops
    that they are about.

    `is_settled`: no two of the updates are of the same row, and the rows lie by entity: in so many partitions that each
    has `ROWS_A_TASK` at most, all rows of an entity in one, in the order of entities.
    """

    rows: DataFrame | None
    landings: tuple[int, ...]
    n_rows: int = 0
    drops: tuple[int, ...] = ()
    is_settled: bool = False


ROWS_A_TASK = 250_000
"""Updates that one task takes out of chunks and writes."""


def pending_updates(lake: Lake, source: Source, landed_through: int) -> Pending:
    """The updates of every landing of the ledger beyond `landed_through`."""
    found = pending_landings(lake, source, landed_through)
    drops = tuple(sorted({n for landing in found.values() for n in landing.drops}))
    with_rows = [number for number, landing in found.items() if landing.n_updates]
    if not with_rows:
        return Pending(None, tuple(found), 0, drops)
    n_rows = sum(landing.n_updates for landing in found.values())
    settled = not any(landing.counts["rows_back"] for landing in found.values())
    held = lake.read(chunks(source)).where(F.col("landing").isin(with_rows))
    if settled:
        # a chunk is moved and sorted for all of its rows
        held = held.repartition(max(-(-n_rows // ROWS_A_TASK), 1), "entity").sortWithinPartitions("entity")
    rows = rows_of_chunks(held, source)
    return Pending(rows, tuple(found), n_rows, drops, settled)


def chunk_rows(lake: Lake, source: Source) -> DataFrame:
    """The chunks of a source as rows: the columns of `tables.row_columns`, and `diff` and `landing`."""
    return rows_of_chunks(lake.read(chunks(source)), source, landing=F.expr(LANDING_OF_ROWS))


def rows_of_chunks(held: DataFrame, source: Source, **more: Column) -> DataFrame:
    """Chunks as rows, in the order of the chunks: the columns of `tables.row_columns`, `diff`, and what `more` arrays
    say of each row."""
    plural = {"row_id": "row_ids", "event_time": "event_times", "delta_id": "delta_ids"}
    alone = ("seq_no", "entity")
    in_arrays = [c for c in row_columns(source) if c.name not in alone]
    # a chunk none of whose rows has a value holds no array: zipping needs one all the same
    arrays = [
        F.coalesce(plural.get(c.name, c.name), F.array_repeat(F.lit(None).cast(c.type), F.col("rows"))).alias(c.name)
        for c in in_arrays
    ]
    zipped = held.select("diff", "entity", *arrays, *[array.alias(name) for name, array in more.items()])
    names = [*[c.name for c in in_arrays], *more]
    rows = zipped.select("diff", "entity", F.explode(F.arrays_zip(*names)).alias("r"))
    # a merged chunk has rows of several drops
    of_row = {"entity": F.col("entity"), "seq_no": F.shiftright("r.row_id", PLACE_BITS).alias("seq_no")}
    return rows.select(
        *[of_row.get(c.name, F.col(f"r.{c.name}")) for c in row_columns(source)], "diff", *map("r.{}".format, more)
    )
