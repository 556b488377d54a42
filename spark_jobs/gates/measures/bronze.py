"""The measures of the gate after `land`: a run's landings compared with the ledger, and the shape of their chunks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.engine.columns import numbers
from spark_jobs.engine.measures import CHUNK, Adds, judge_chunks, judge_repeated_rows, repeated_row_ids
from spark_jobs.gates.measures.parts import (
    AnyPart,
    EachRow,
    Ground,
    Measurement,
    OfShare,
    Together,
    measure,
    of_landings,
)
from spark_jobs.sources import Source
from spark_jobs.sources.drops import PLACE_BITS
from spark_jobs.storage.delta.records import arrow_records
from spark_jobs.storage.descriptions.schema import Table
from spark_jobs.storage.descriptions.tables import DUPLICATES, FILES, QUARANTINE, chunks
from spark_jobs.storage.lakes.lake import Lake

_LISTED = {QUARANTINE: "quarantine_rows", DUPLICATES: "duplicate_rows"}
_SHOWN = {
    QUARANTINE: ("seq_no", "file", "line", "rule", "landing"),
    DUPLICATES: ("seq_no", "file", "line", "row_id", "landing"),
}


def bronze(lake: Lake, source: Source, *, landings: Sequence[int]) -> Measurement:
    """The measures of these landings: reads their rows of the ledger, of chunks, of quarantine and of duplicates."""
    parts = [_ledger(lake, source, landings), *(_listed_rows(lake, table, source, landings) for table in _LISTED)]
    by_drop = Ground("seq_no", "drop", source.drops.label)
    return measure(lake.spark, [*parts, *_chunks(lake, source, landings)], ground=by_drop)


def _ledger(lake: Lake, source: Source, landings: Sequence[int]) -> EachRow:
    ours = (pc.field("source") == source.name) & of_landings(landings)
    examples = ("seq_no", "path", "rows", "rejects", "duplicates", "landing")
    return EachRow(arrow_records(FILES, lake.records(FILES, ours)), _came_and_went, examples)


def _came_and_went(ledger: pa.Table) -> Adds:
    return {
        f"ledger_{what}": numbers(ledger[what]) + numbers(ledger[f"{what}_back"])
        for what in ("rows", "rejects", "duplicates")
    }


def _listed_rows(lake: Lake, table: Table, source: Source, landings: Sequence[int]) -> EachRow:
    columns = ["records"] if table is QUARANTINE else ["landing"]
    rows = lake.stored(table, columns, of_landings(landings), {"source": [source.name]})
    return EachRow(rows, partial(_each, measure=_LISTED[table]), _SHOWN[table])


def _each(rows: pa.Table, *, measure: str) -> Adds:
    """The number of records that each row stands for, as addends of `measure`."""
    if "records" in rows.column_names:
        return {measure: numbers(rows["records"], null=1)}
    return {measure: np.ones(rows.num_rows, np.int64)}


def _chunks(lake: Lake, source: Source, landings: Sequence[int]) -> list[AnyPart]:
    timelines = [f"{what}_{t}" for t in source.timelines for what in ("t", "min", "max", "sorted")]
    arrays = ["delta_ids", *(f"t_{t}" for t in source.timelines), *(f"c_{c}" for c in source.columns), "extra"]
    columns = ["rows", "row_ids", "event_times", "event_min", "event_max", "seq_no", "entity"]
    written = lake.stored(chunks(source), [*columns, *timelines, *arrays], of_landings(landings))
    judge = partial(judge_chunks, timelines=list(source.timelines), arrays=arrays, place_bits=PLACE_BITS)
    ids = written.with_columns([*CHUNK, "diff", "row_ids"])
    return [EachRow(written, judge, CHUNK), Together([OfShare(ids, "seq_no")], repeated_row_ids, judge_repeated_rows)]
