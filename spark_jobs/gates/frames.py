"""The tables that checks are about: landed rows, and windows and states as a run would publish them.

They are read from the data files, with the columns that checks name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.engine.chunks import chunk_rows, not_taken_back
from spark_jobs.engine.columns import numbers
from spark_jobs.engine.restatement import CLOSING, LIVE, key_codes
from spark_jobs.gates.measures.parts import of_landings
from spark_jobs.sources import LATE_BY, Source
from spark_jobs.sources.drops import PLACE_BITS
from spark_jobs.storage.coordination.publication import Publication, visible_rows
from spark_jobs.storage.delta.data_files import StoredRows
from spark_jobs.storage.descriptions.schema import Table
from spark_jobs.storage.descriptions.tables import LANDINGS, STATE, chunks
from spark_jobs.storage.lakes.lake import TableReader

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import SparkSession

OF_ROW = ("row_id", "entity", "event_time")
"""The columns by which people identify a landed row, beside the source's own columns."""


def landed_rows(lake: TableReader, source: Source, landings: Sequence[int], columns: Sequence[str] | None) -> pa.Table:
    """The rows that these landings brought and did not take back.

    The table has the columns `OF_ROW`, `seq_no`, `late_by` (microseconds) and those in `columns` (None: all of the
    source's)."""
    return _counted_rows(lake, source, of_landings(landings), columns)


def rows_of_drops(
    lake: TableReader, source: Source, drops: Sequence[int], landings: Sequence[int], columns: Sequence[str] | None
) -> pa.Table:
    """The rows that these drops have when all `landings` count, with the columns of `landed_rows`."""
    # a merged chunk has rows of many drops, and the number of its last row's drop
    single, merged = pc.field("seq_no") <= max(drops), pc.is_valid(pc.field(LANDINGS.name))
    near = (pc.field("seq_no") >= min(drops)) & (single | merged) & of_landings(landings)
    return _counted_rows(lake, source, near, columns, drops)


def _counted_rows(
    lake: TableReader,
    source: Source,
    where: pc.Expression,
    columns: Sequence[str] | None,
    drops: Sequence[int] | None = None,
) -> pa.Table:
    wanted = [c for c in source.columns if columns is None or c in columns]
    arrays = {"row_id": "row_ids", "event_time": "event_times", "of_row": LANDINGS.name}
    arrays |= {c: f"c_{c}" for c in wanted}
    same = ["entity", "landing", "diff"]
    stored = lake.stored(chunks(source), ["rows", *same, *arrays.values()], where)
    tables = [chunk_rows(table, rows="rows", arrays=arrays, same=same) for table in (stored.none(), *stored.tables())]
    rows = pa.concat_tables(tables)
    seq_no = pa.array(numbers(rows["row_id"]) >> PLACE_BITS)
    rows = rows.append_column("seq_no", seq_no)
    if drops is not None:
        rows = rows.filter(pc.is_in(seq_no, value_set=pa.array(drops, pa.int64())))
    landing = pc.coalesce(rows["of_row"], rows["landing"])
    rows = rows.set_column(rows.schema.get_field_index("landing"), "landing", landing)
    counts = not_taken_back(*(numbers(rows[name]) for name in ("row_id", "landing", "diff")))
    rows = rows.filter(pa.array(counts))
    lo_us = pa.array(source.drops.starts(numbers(rows["seq_no"])))
    late_by = pc.subtract(lo_us, rows["event_time"].cast(pa.int64()))
    return rows.append_column(LATE_BY, late_by).select([*OF_ROW, "seq_no", LATE_BY, *wanted])


def published_rows(
    lake: TableReader,
    table: Table,
    identity: Sequence[str],
    columns: Sequence[str],
    publication: Publication,
    token: int,
    partitions: Mapping[str, Sequence[str]],
) -> tuple[pa.Table, pa.Table]:
    """The rows that a history table would show once attempt `token` is published, and those of them that the attempt
    wrote. A row that a `closing` row ends is not shown."""
    read = list(dict.fromkeys([*columns, *identity, "known_from", "era", "token"]))
    rows: StoredRows = lake.stored(
        table, read, visible_rows(publication, token), {**partitions, "era": [LIVE, CLOSING]}
    )
    whole = rows.whole()
    live, closing = (whole.filter(pc.equal(whole["era"], era)) for era in (LIVE, CLOSING))
    # nulls are equal here, as in the views; in a join they would not be
    codes, ended = key_codes([live, closing], (*identity, "known_from"))
    published = live.filter(pa.array(~np.isin(codes, ended)))
    return published, published.filter(pc.equal(published["token"], token))


def states(
    lake: TableReader, source: Source, columns: Sequence[str], publication: Publication, token: int
) -> tuple[pa.Table, pa.Table]:
    """`published_rows` of the source's states, with a column for each component."""
    assert source.state is not None, "callers look whether the source has state"
    vector = "ints" if source.state.datatype == "int64" else "floats"
    read = ["entity", "timestamp", "delta_count", vector]
    of_source = {"source": [source.name]}
    both = published_rows(lake, STATE, ["entity"], read, publication, token, of_source)
    return (_components(both[0], source, vector), _components(both[1], source, vector))


def _components(rows: pa.Table, source: Source, vector: str) -> pa.Table:
    assert source.state is not None, "callers look whether the source has state"
    named = {source.entity: rows["entity"], "timestamp": rows["timestamp"], "delta_count": rows["delta_count"]}
    lists = rows[vector].combine_chunks()
    for place, component in enumerate(source.state.components):
        named[component] = pc.list_element(lists, place)
    return pa.table(named)


def with_conditions(spark: SparkSession, rows: pa.Table, conditions: Mapping[str, str]) -> pa.Table:
    """The rows with a column for each condition: True if its SQL is true of the row, False if it is false or null."""
    numbered = rows.append_column("_place", pa.array(np.arange(rows.num_rows), pa.int64()))
    frame = spark.createDataFrame(numbered)
    columns = [F.coalesce(F.expr(sql), F.lit(False)).alias(name) for name, sql in conditions.items()]
    judged = frame.select("_place", *columns)
    answers = judged.toArrow().sort_by("_place")
    for name in conditions:
        rows = rows.append_column(name, answers[name])
    return rows


def as_pandas(rows: pa.Table) -> pd.DataFrame:
    """The rows as a frame for Great Expectations: whole numbers stay whole in columns with missing values."""
    import pandas as pd

    types = {pa.int64(): pd.Int64Dtype(), pa.int32(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype()}
    types |= {pa.string(): pd.StringDtype("pyarrow"), pa.large_string(): pd.StringDtype("pyarrow")}
    return rows.to_pandas(types_mapper=types.get)
