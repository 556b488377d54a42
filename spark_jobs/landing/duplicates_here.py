"""Duplicates of a small landing, found in this process: the same rows that `counting` finds by a Spark job."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.kernels.chunks.merging import chunk_rows
from spark_jobs.kernels.identities import BloomFilter, Hashes, hashes_of
from spark_jobs.kernels.plain import Flags, Ints, numbers
from spark_jobs.kernels.records.spec import COLUMN_PREFIX
from spark_jobs.landing.blocks import Blocks
from spark_jobs.landing.ledger import rows_by_landing
from spark_jobs.landing.pending import PLURAL
from spark_jobs.landing.places import Places
from spark_jobs.landing.row_text import row_texts
from spark_jobs.sources import Source
from spark_jobs.sources.drops import PLACE_BITS
from spark_jobs.storage.delta.data_files import StoredRows
from spark_jobs.storage.descriptions.tables import LANDINGS, chunks, row_columns
from spark_jobs.storage.lakes.lake import TableReader

NOBODY = np.iinfo(np.int64).max
"""Greater than every row id."""


@dataclass(frozen=True)
class ContestHere:
    """The new rows whose delta_ids several rows carry, among new rows and rows that count already.

    Args:
        row_ids: the ids of these new rows.
        counted: for each of them, the least id of all rows with its delta_id.
        standing: for each of them, the id of the row with its delta_id that counts now; NOBODY if there is none.
        delta: for each of them, a number that is equal for equal delta_ids.
    """

    row_ids: Ints
    counted: Ints
    standing: Ints
    delta: Ints

    def totals(self) -> tuple[int, int]:
        """The number of contested delta_ids, and the number of those in which a new row goes before the standing
        one."""
        displacing = (self.row_ids == self.counted) & (self.standing != NOBODY)
        return len(np.unique(self.delta)), len(np.unique(self.delta[displacing]))


def contest_here(lake: TableReader, source: Source, blocks: Blocks, suspected: Hashes) -> ContestHere:
    """Compare the rows whose delta_ids have the hashes `suspected`: the new rows with each other and with those that
    count."""
    wanted = BloomFilter.of(suspected)
    new, standing = blocks.identities_here(wanted), _standing(lake, source, wanted)
    both = pa.concat_tables([new.select(["delta_id"]), standing.select(["delta_id"])])
    delta_ids = both["delta_id"].combine_chunks().dictionary_encode()
    codes, ids = delta_ids.indices.to_numpy(), numbers(new["row_id"])
    of_new, of_standing = codes[: new.num_rows], codes[new.num_rows :]
    least_new, least_standing = (np.full(len(delta_ids.dictionary), NOBODY) for _ in "12")
    np.minimum.at(least_new, of_new, ids)
    np.minimum.at(least_standing, of_standing, numbers(standing["row_id"]))
    several = np.bincount(of_new, minlength=least_new.size) > 1
    contested = (several | (least_standing != NOBODY))[of_new]
    delta = of_new[contested]
    counted = np.minimum(least_new, least_standing)[delta]
    return ContestHere(ids[contested], counted, least_standing[delta], delta)


def duplicates_here(
    lake: TableReader, source: Source, blocks: Blocks, contested: ContestHere, places: Places
) -> pa.Table:
    """The new rows that do not count, since another row with their delta_id does: `standing.DUPLICATE` as columns."""
    hidden = contested.row_ids != contested.counted
    row_ids, counted = contested.row_ids[hidden], contested.counted[hidden]
    new = blocks.rows_here(source, np.concatenate((row_ids, counted)))
    stood = _rows(lake, source, np.setdiff1d(counted, numbers(new["row_id"])))
    rows = pa.concat_tables([new, stood])
    ids = numbers(rows["row_id"])
    order = np.argsort(ids, kind="stable")
    own, theirs = (rows.take(pa.array(order[np.searchsorted(ids[order], wanted)])) for wanted in (row_ids, counted))
    values = [c for c in row_columns(source) if c.name.startswith(COLUMN_PREFIX)]
    differ = [one != other for one, other in zip(row_texts(own, values), row_texts(theirs, values), strict=True)]
    files = places.files(row_ids)
    return pa.table(
        {
            "seq_no": own["seq_no"],
            "file": pa.array([places.paths[file] for file in files.tolist()], pa.string()),
            "line": pa.array(row_ids - places.firsts[files] + 1),
            "row_id": pa.array(row_ids),
            "delta_id": own["delta_id"],
            "counted_row_id": pa.array(counted),
            "conflict": pa.array(differ, pa.bool_()),
            "row": pa.array(row_texts(own, row_columns(source)), pa.string()),
        }
    )


def _standing(lake: TableReader, source: Source, wanted: BloomFilter) -> pa.Table:
    """`row_id` and `delta_id` of the rows in chunks that count and whose delta_ids pass the filter."""
    rows = []
    for table in _landed(lake, source, ["delta_ids"], pc.is_valid(pc.field("delta_ids"))).tables():
        flat = _flat(table, {"delta_id": "delta_ids"})
        flat = flat.filter(pc.is_valid(flat["delta_id"]))
        rows.append(flat.filter(pa.array(wanted.passing(hashes_of(flat["delta_id"])))))
    none = pa.schema([(name, pa.int64()) for name in ("landing", "diff", "row_id")]).append(
        pa.field("delta_id", pa.string())
    )
    whole = pa.concat_tables([none.empty_table(), *(table.select(none.names).cast(none) for table in rows)])
    return whole.filter(pa.array(_stands(whole)))


def _rows(lake: TableReader, source: Source, row_ids: Ints) -> pa.Table:
    """These rows, of those in chunks that count, with the columns of `tables.row_columns`."""
    columns = [c.name for c in row_columns(source) if c.name not in ("seq_no", "entity")]
    arrays = {name: PLURAL.get(name, name) for name in columns}
    stored = _landed(lake, source, ["entity", *arrays.values()], None if row_ids.size else pc.scalar(False))
    wanted = pa.array(row_ids)
    rows = [stored.none(), *stored.tables()]
    flat = [_flat(table, arrays, ["entity"]) for table in rows]
    whole = pa.concat_tables([table.filter(pc.is_in(table["row_id"], value_set=wanted)) for table in flat])
    whole = whole.append_column("seq_no", pa.array(numbers(whole["row_id"]) >> PLACE_BITS))
    return whole.filter(pa.array(_stands(whole))).select([c.name for c in row_columns(source)])


def _landed(lake: TableReader, source: Source, columns: list[str], where: pc.Expression | None) -> StoredRows:
    """Columns of the chunks of all landings that count."""
    counted = pc.field("landing").isin(pa.array([*rows_by_landing(lake, source)], pa.int64()))
    read = dict.fromkeys(["rows", "landing", "diff", "row_ids", LANDINGS.name, *columns])
    return lake.stored(chunks(source), [*read], counted if where is None else counted & where)


def _flat(table: pa.Table, arrays: dict[str, str], same: list[str] | None = None) -> pa.Table:
    """The rows of chunks, with `row_id`, the `landing` of each row, and `diff`."""
    named = {"row_id": "row_ids", "of_row": LANDINGS.name, **arrays}
    rows = chunk_rows(table, rows="rows", arrays=named, same=["landing", "diff", *(same or [])])
    # rows of one landing are stored without it, as `LANDING_OF_ROWS` has it
    landing = pc.coalesce(rows["of_row"], rows["landing"])
    return rows.drop_columns(["of_row", "landing"]).append_column("landing", landing)


def _stands(rows: pa.Table) -> Flags:
    """Flags of the rows that came and that no later landing took back. A landing that changes a row takes back the old
    one, and brings the new one with the same id."""
    row_ids, landing, diff = (numbers(rows[name]) for name in ("row_id", "landing", "diff"))
    known, code = np.unique(row_ids, return_inverse=True)
    gone = np.full(known.size, np.iinfo(np.int64).min)
    np.maximum.at(gone, code[diff < 0], landing[diff < 0])
    return (diff > 0) & (landing >= gone[code])
