"""Measures of the gate after `land`: the landings of one run against the ledger, and the shape of their chunks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from spark_jobs.gates.measures.query import Measurement, Part, listed, measure, violation
from spark_jobs.sources import Source
from spark_jobs.sources.drops import FILE_BITS, LINE_BITS
from spark_jobs.storage.schema import Table
from spark_jobs.storage.sql import literal, name, qualified
from spark_jobs.storage.tables import DUPLICATES, FILES, QUARANTINE, chunks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CHUNK = ("chunk_id", "entity", "seq_no", "landing")


def bronze(spark: SparkSession, source: Source, *, landings: Sequence[int]) -> Measurement:
    """What these landings left in bronze: reads their rows of the ledger, chunks, quarantine and duplicates."""
    ours = f"source = {literal(source.name)} AND landing IN {listed(landings)}"
    return measure(spark, [*_ledger(ours), _chunks(source, landings)])


def _ledger(ours: str) -> list[Part]:
    def rows_of(table: Table) -> str:
        return f"SELECT * FROM {qualified(table.database, table.table)} WHERE {ours}"

    counts = {"ledger_rows": "rows", "ledger_rejects": "rejects", "ledger_duplicates": "duplicates"}
    return [
        Part(rows_of(FILES), counts, ("seq_no", "path", "rows", "rejects", "duplicates", "landing")),
        Part(rows_of(QUARANTINE), {"quarantine_rows": "1"}, ("seq_no", "file", "line", "rule", "landing")),
        Part(rows_of(DUPLICATES), {"duplicate_rows": "1"}, ("seq_no", "file", "line", "row_id", "landing")),
    ]


def _chunks(source: Source, landings: Sequence[int]) -> Part:
    """One row per row id of the chunks: how often it stands there, and what is wrong with its chunk."""
    table = chunks(source)
    ours = f"FROM {qualified(table.database, table.table)} WHERE landing IN {listed(landings)}"
    arrays = [f"t_{t}" for t in source.timelines] + [f"c_{c}" for c in source.columns]
    uneven = ["size(row_ids) <> rows", "size(event_times) <> rows", "row_ids IS NULL", "event_times IS NULL"]
    # a chunk may leave out an array that holds no value
    uneven += [f"size({name(a)}) <> rows" for a in ["delta_ids", *arrays, "extra"]]
    bounds = [("event_min", "event_max", "event_times")]
    bounds += [(f"min_{t}", f"max_{t}", f"t_{t}") for t in source.timelines]
    loose = [f"NOT ({lo} <=> array_min({a}) AND {hi} <=> array_max({a}))" for lo, hi, a in bounds]
    unsorted = [f"(sorted_{t} AND {_present(t)} <> array_sort({_present(t)}))" for t in source.timelines]
    flags = {
        "chunk_rows": "rows",
        "chunks_with_unordered_row_ids": violation("row_ids <> array_sort(array_distinct(row_ids))"),
        "chunks_with_foreign_row_ids": violation(
            f"exists(row_ids, r -> shiftright(r, {FILE_BITS + LINE_BITS}) <> seq_no)"
        ),
        "chunks_with_uneven_arrays": violation(_any(uneven)),
        "chunks_with_loose_bounds": violation(_any(loose)),
        "chunks_falsely_sorted": violation(_any(unsorted)),
        "chunks_without_entity": violation("entity IS NULL"),
        "rows_without_event_time": "size(filter(event_times, t -> t IS NULL))",
    }
    judged = ", ".join(f"coalesce({flag}, 1) AS {name(measure)}" for measure, flag in flags.items())
    per_chunk = f"SELECT chunk_id, entity, seq_no, landing, row_ids, {judged} {ours}"
    # what is wrong with a chunk counts at its first row, so that one pass over the rows finds repeated ids as well
    totals = ", ".join(f"sum(IF(coalesce(place, 0) = 0, {name(m)}, 0)) AS {name(m)}" for m in flags)
    shown = ", ".join(f"any_value({column}) AS {column}" for column in _CHUNK)
    relation = (
        f"SELECT row_id, count(*) AS times, {shown}, {totals} FROM ({per_chunk})"
        " LATERAL VIEW OUTER posexplode(row_ids) AS place, row_id GROUP BY row_id"
    )
    adds = {measure: name(measure) for measure in flags} | {"repeated_row_ids": violation("times > 1")}
    return Part(relation, adds, ("row_id", "times", *_CHUNK))


def _present(timeline: str) -> str:
    return f"filter(t_{timeline}, t -> t IS NOT NULL)"


def _any(conditions: Sequence[str]) -> str:
    return " OR ".join(f"coalesce({condition}, false)" for condition in conditions)
