"""Metrics of a source's chains: how many deltas and checkpoints they have, and their bytes beside the trace's."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.engine.restatement import LIVE, without_closed
from spark_jobs.reads.point import ReadPoint
from spark_jobs.reads.state_reads import check_keeps_chains
from spark_jobs.restatement.published import published_files
from spark_jobs.sources import Source
from spark_jobs.storage.coordination.publication import Publication, visible_rows
from spark_jobs.storage.delta.data_files import StoredRows
from spark_jobs.storage.descriptions.chain_tables import CHAINS, COMPACTION, SEGMENT
from spark_jobs.storage.descriptions.tables import updates
from spark_jobs.storage.descriptions.times import instant
from spark_jobs.storage.lakes.lake import TableReader
from spark_jobs.trace.source_plane import trace_handles

_BEGINNING = -(2**63)
_COUNTED = ("at_delta", "deltas", "refusals", "known_until", "encoding", "saved_bytes")


@dataclass(frozen=True, slots=True)
class ChainMetrics:
    """The metrics of a source's published chains.

    `chains`: entities that have one. `pending`: deltas after the newest checkpoint, of all chains; `longest`: the most
    of one chain. `saved_bytes`: by encoding, the bytes of memory that it saves compared with the other encoding.
    `bytes_of_updates`, `bytes_of_chains`: sizes of the files with the trace's updates, and of those with live segments;
    a file that also contains closed segments counts whole until folding rewrites it. `merged`, `dropped`,
    `bytes_before`, `bytes_after`: sums over all compactions so far; `gold.compactions` lists them one by one.
    """

    chains: int
    checkpoints: int
    deltas: int
    pending: int
    longest: int
    refused: int
    saved_bytes: dict[str, int]
    bytes_of_updates: int
    bytes_of_chains: int
    merged: int
    dropped: int
    bytes_before: int
    bytes_after: int


def chain_metrics(lake: TableReader, source: Source) -> ChainMetrics:
    """Count the metrics of the chains as published now; reads some columns and the sizes of files, without a Spark job.

    Raises:
        ParameterError: the source keeps no chains.
    """
    check_keeps_chains(source)
    point = ReadPoint.open(lake, source)
    current = point.publication
    of_source = pc.field("source") == source.name
    columns = list(dict.fromkeys([*SEGMENT, "end_time", "known_from", "era", *_COUNTED]))
    rows = published_files(lake, CHAINS, current, columns, of_source).whole()
    for column in ("start_time", "start_row"):  # null where a chain begins, and Arrow joins no nulls
        place = rows.column_names.index(column)
        rows = rows.set_column(place, column, rows.column(column).fill_null(_BEGINNING))
    segments = without_closed(rows, SEGMENT)
    ends = segments.filter(segments.column("end_time").is_null()).column("deltas")
    live = lake.stored(CHAINS, ["encoding", "saved_bytes"], None, {"source": [source.name], "era": [LIVE]})
    saved: Counter[str] = Counter()
    for row in live.whole().group_by("encoding").aggregate([("saved_bytes", "sum")]).to_pylist():
        saved[row["encoding"]] = row["saved_bytes_sum"]
    trace = lake.stored(updates(source), ["batch"], None, {"batch": trace_handles(point.frontiers.arrangement)})
    return ChainMetrics(
        chains=len(ends),
        checkpoints=len(segments) - segments.column("at_delta").null_count,
        deltas=pc.sum(segments.column("deltas")).as_py() or 0,
        pending=pc.sum(ends).as_py() or 0,
        longest=pc.max(ends).as_py() or 0,
        refused=sum(_count_refused(row["refusals"], row["known_until"]) for row in _with_refusals(segments)),
        **_compactions(lake, source, current),
        saved_bytes=dict(saved),
        bytes_of_updates=_bytes(trace),
        bytes_of_chains=_bytes(live),
    )


def _with_refusals(segments: pa.Table) -> list[dict[str, list[int | None]]]:
    lists = segments.select(["refusals", "known_until"])
    return lists.filter(pc.greater(pc.list_value_length(lists.column("refusals")), 0)).to_pylist()


def _count_refused(refusals: list[int | None], until: list[int | None]) -> int:
    """The number of deltas of a segment that count now and that the chain refuses.

    `until` is not null for a delta that was taken back; such a delta is kept for reads of the past only.
    """
    counting = [time is None for time in until] or [True] * len(refusals)
    return sum(bool(refusal) and counts for refusal, counts in zip(refusals, counting, strict=True))


def _compactions(lake: TableReader, source: Source, current: Publication) -> dict[str, int]:
    names = ("merged", "dropped", "bytes_before", "bytes_after")
    visible = visible_rows(current) & (pc.field("known_from") < instant(current.published_us))
    rows = lake.stored(CHAINS, names, visible, {"source": [source.name], "era": [COMPACTION]}).whole()
    return {name: pc.sum(rows.column(name)).as_py() or 0 for name in names}


def _bytes(rows: StoredRows) -> int:
    """The size in bytes of the files that contain the rows."""
    paths = {fragment.path: fragment.filesystem for fragment in rows.fragments}
    return sum(system.get_file_info(path).size for path, system in paths.items())
