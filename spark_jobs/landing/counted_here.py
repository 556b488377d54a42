"""The rows of a source that count in bronze now, read from chunks in this process; `counted` has Spark read them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.engine.chunks import chunk_rows, not_taken_back
from spark_jobs.engine.columns import Flags, Ints, numbers
from spark_jobs.engine.hashes import BloomFilter, hashes_of
from spark_jobs.landing.ledger import counted_landings
from spark_jobs.landing.pending import PLURAL, row_schema
from spark_jobs.sources import Source
from spark_jobs.sources.drops import PLACE_BITS
from spark_jobs.storage.delta.data_files import StoredRows
from spark_jobs.storage.delta.file_summaries import UNPACKED, logged_files
from spark_jobs.storage.descriptions.schema import Table
from spark_jobs.storage.descriptions.tables import LANDINGS, chunks
from spark_jobs.storage.lakes.lake import TableReader

_IDENTITY = pa.schema(
    [("row_id", pa.int64()), ("delta_id", pa.string()), ("landing", pa.int64()), ("diff", pa.int64())]
)


def chunk_bytes(lake: TableReader, source: Source) -> int:
    """The approximate bytes of a source's chunks in memory. Delta's log tells them, none is read."""
    return UNPACKED * sum(file.size for file in logged_files(lake.folder.handle(chunks(source)), "landing"))


def counted_identities(lake: TableReader, source: Source, wanted: BloomFilter) -> pa.Table:
    """`row_id` and `delta_id` of the rows that count and whose delta_ids pass the filter."""
    parts = [_IDENTITY.empty_table()]
    for table in _landed_chunks(lake, source, ["delta_ids"], pc.is_valid(pc.field("delta_ids"))).tables():
        rows = _flat(table, {"delta_id": "delta_ids"})
        rows = rows.filter(pc.is_valid(rows["delta_id"]))
        passing = pa.array(wanted.may_contain(hashes_of(rows["delta_id"])))
        parts.append(rows.filter(passing).select(_IDENTITY.names).cast(_IDENTITY))
    whole = pa.concat_tables(parts)
    return whole.filter(pa.array(_is_counting(whole))).select(["row_id", "delta_id"])


def counted_rows(lake: TableReader, source: Source, row_ids: Ints) -> pa.Table:
    """These rows, of those that count, with the columns of `tables.row_columns`."""
    return _rows(lake, source, np.unique(row_ids >> PLACE_BITS).tolist(), row_ids)


def counted_rows_of_drops(lake: TableReader, source: Source, drops: Sequence[int]) -> pa.Table:
    """The rows of these drops that count, with the columns of `tables.row_columns`."""
    return _rows(lake, source, drops, None)


def _rows(lake: TableReader, source: Source, drops: Sequence[int], only: Ints | None) -> pa.Table:
    """The rows that count in the chunks that may have rows of these drops; `only`: ids of the wanted rows."""
    schema = row_schema(source)
    arrays = {name: PLURAL.get(name, name) for name in schema.names if name not in ("seq_no", "entity")}
    # a merged chunk has rows of many drops
    near = pc.field("seq_no").isin(pa.array(drops, pa.int64())) | pc.is_valid(pc.field(LANDINGS.name))
    marked = schema.append(pa.field("landing", pa.int64())).append(pa.field("diff", pa.int64()))
    parts, of_drops = [marked.empty_table()], np.array(drops, np.int64)
    for table in _landed_chunks(
        lake, source, ["entity", *arrays.values()], near if drops else pc.scalar(False)
    ).tables():
        rows = _flat(table, arrays, ["entity"])
        seq_no = numbers(rows["row_id"]) >> PLACE_BITS
        rows = rows.append_column("seq_no", pa.array(seq_no))
        wanted = np.isin(seq_no, of_drops) if only is None else np.isin(numbers(rows["row_id"]), only)
        rows = rows.filter(pa.array(wanted))
        parts.append(rows.select(marked.names).cast(marked))
    whole = pa.concat_tables(parts)
    return whole.filter(pa.array(_is_counting(whole))).select(schema.names)


def _landed_chunks(lake: TableReader, source: Source, columns: list[str], where: pc.Expression | None) -> StoredRows:
    """Columns of the chunks of all landings that count."""
    counted = pc.field("landing").isin(pa.array(counted_landings(lake, source), pa.int64()))
    read = dict.fromkeys(["rows", "landing", "diff", "row_ids", LANDINGS.name, *columns])
    return lake.stored(chunks(source), [*read], counted if where is None else counted & where)


def _flat(table: pa.Table, arrays: dict[str, str], same: list[str] | None = None) -> pa.Table:
    """The rows of chunks, with `row_id`, the `landing` of each row, and `diff`."""
    named = {"row_id": "row_ids", "of_row": LANDINGS.name, **arrays}
    rows = chunk_rows(table, rows="rows", arrays=named, same=["landing", "diff", *(same or [])])
    # rows of one landing are stored without it, as `LANDING_OF_ROWS` has it
    landing = pc.coalesce(rows["of_row"], rows["landing"])
    return rows.drop_columns(["of_row", "landing"]).append_column("landing", landing)


def _is_counting(rows: pa.Table) -> Flags:
    return not_taken_back(*(numbers(rows[name]) for name in ("row_id", "landing", "diff")))


def open_rows(
    lake: TableReader, source: Source, table: Table, identity: Sequence[str], where: pc.Expression | None = None
) -> pa.Table:
    """The rows of quarantine or duplicates that count now, of those that meet `where`, with the columns `identity`.
    Such a row came by a landing that is in the ledger, and no such landing took it back."""
    counted = pc.field("landing").isin(pa.array(counted_landings(lake, source), pa.int64()))
    condition = counted if where is None else counted & where
    rows = lake.stored(table, [*identity, "diff"], condition, {"source": [source.name]}).whole()
    summed = rows.group_by(list(identity)).aggregate([("diff", "sum")])
    return summed.filter(pc.greater(summed["diff_sum"], 0)).select(identity)
