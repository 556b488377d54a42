"""Measures of the gate after `land`: the landings of one run against the ledger, and the shape of their chunks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from spark_jobs.gates.measures.query import BITS, WORD, Measurement, Part, listed, measure, violation
from spark_jobs.sources import Source
from spark_jobs.sources.drops import PLACE_BITS
from spark_jobs.storage.schema import Table
from spark_jobs.storage.sql import literal, name, qualified
from spark_jobs.storage.tables import DUPLICATES, FILES, QUARANTINE, chunks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CHUNK = ("chunk_id", "entity", "seq_no", "landing")


def bronze(spark: SparkSession, source: Source, *, landings: Sequence[int]) -> Measurement:
    """What these landings left in bronze: reads their rows of the ledger, chunks, quarantine and duplicates."""
    ours = f"source = {literal(source.name)} AND landing IN {listed(landings)}"
    return measure(spark, [*_ledger(ours), _chunks(source, landings), _row_ids(source, landings)])


def _ledger(ours: str) -> list[Part]:
    def rows_of(table: Table) -> str:
        return f"SELECT * FROM {qualified(table.database, table.table)} WHERE {ours}"

    # what came and what was taken back
    counts = {f"ledger_{what}": f"{what} + coalesce({what}_back, 0)" for what in ("rows", "rejects", "duplicates")}
    return [
        Part(rows_of(FILES), counts, ("seq_no", "path", "rows", "rejects", "duplicates", "landing")),
        Part(rows_of(QUARANTINE), {"quarantine_rows": "1"}, ("seq_no", "file", "line", "rule", "landing")),
        Part(rows_of(DUPLICATES), {"duplicate_rows": "1"}, ("seq_no", "file", "line", "row_id", "landing")),
    ]


def _chunks(source: Source, landings: Sequence[int]) -> Part:
    """One row per chunk: what is wrong with it."""
    table = chunks(source)
    ours = f"FROM {qualified(table.database, table.table)} WHERE landing IN {listed(landings)}"
    arrays = [f"t_{t}" for t in source.timelines] + [f"c_{c}" for c in source.columns]
    uneven = ["size(row_ids) <> rows", "size(event_times) <> rows", "row_ids IS NULL", "event_times IS NULL"]
    # a chunk may leave out an array that holds no value
    uneven += [f"size({name(a)}) <> rows" for a in ["delta_ids", *arrays, "extra"]]
    bounds = [("event_min", "event_max", "event_times")]
    bounds += [(f"min_{t}", f"max_{t}", f"t_{t}") for t in source.timelines]
    loose = [f"NOT ({lo} <=> array_min({a}) AND {hi} <=> array_max({a}))" for lo, hi, a in bounds]
    # sort_array: array_sort compares each pair by an interpreted function, as filter tests each value by one; so
    # what is in order as it is goes by. Not with AND, whose both sides Spark works out where they share a part
    unsorted = [
        f"CASE WHEN NOT sorted_{t} OR t_{t} = sort_array(t_{t}) THEN false"
        f" ELSE {_present(t)} <> sort_array({_present(t)}) END"
        for t in source.timelines
    ]
    foreign = [f"shiftright({end}(row_ids), {PLACE_BITS}) <> seq_no" for end in ("array_min", "array_max")]
    flags = {
        "chunk_rows": "rows",
        "chunks_with_unordered_row_ids": violation("row_ids <> sort_array(array_distinct(row_ids))"),
        "chunks_with_foreign_row_ids": violation(_any(foreign)),
        "chunks_with_uneven_arrays": violation(_any(uneven)),
        "chunks_with_loose_bounds": violation(_any(loose)),
        "chunks_falsely_sorted": violation(_any(unsorted)),
        "chunks_without_entity": violation("entity IS NULL"),
        # nulls come first where they are sorted
        "rows_without_event_time": "IF(get(sort_array(event_times), 0) IS NULL,"
        " size(filter(event_times, t -> t IS NULL)), 0)",
    }
    judged = ", ".join(f"coalesce({flag}, 1) AS {name(measure)}" for measure, flag in flags.items())
    return Part(f"SELECT {', '.join(_CHUNK)}, {judged} {ours}", {m: name(m) for m in flags}, _CHUNK)


def _row_ids(source: Source, landings: Sequence[int]) -> Part:
    """How many row ids of a landing there are beyond the distinct ones, of rows that came and of rows that went: a bit
    for each id, in words of 64, so that no table of all ids is held. Of two landings that are measured
    together, the later one may take back and land again what the earlier one brought."""
    table = chunks(source)
    each = (
        f"SELECT {', '.join(_CHUNK)}, diff, row_id FROM {qualified(table.database, table.table)}"
        f" LATERAL VIEW explode(row_ids) AS row_id WHERE landing IN {listed(landings)}"
    )
    # the columns of the examples are left out of what is counted: a chunk's texts would be copied for each of its rows
    ids = (
        f"SELECT landing, diff, row_id FROM {qualified(table.database, table.table)}"
        f" LATERAL VIEW explode(row_ids) AS row_id WHERE landing IN {listed(landings)}"
    )
    surplus = f"SELECT count(*) - bit_count({BITS}) AS surplus FROM ({ids}) GROUP BY landing, diff, {WORD}"
    shown = ", ".join(f"any_value({column}) AS {column}" for column in _CHUNK)
    repeats = "row_id, count(*) AS times, count(*) - 1 AS surplus"
    by_id = f"SELECT {repeats}, {shown} FROM ({each}) GROUP BY landing, row_id, diff"
    return Part(surplus, {"repeated_row_ids": "surplus"}, ("row_id", "times", *_CHUNK), by_id)


def _present(timeline: str) -> str:
    return f"filter(t_{timeline}, t -> t IS NOT NULL)"


def _any(conditions: Sequence[str]) -> str:
    return " OR ".join(f"coalesce({condition}, false)" for condition in conditions)
