"""What a source's chains hold, and the bytes that they take beside the deltas that they are made of."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.kernels.comparison import LIVE, without_closed
from spark_jobs.reads.point import ReadPoint
from spark_jobs.reads.state_reads import check_keeps_chains
from spark_jobs.restatement.published import published_files
from spark_jobs.sources import Source
from spark_jobs.storage.chain_tables import CHAINS, COMPACTION, SEGMENT
from spark_jobs.storage.data_files import StoredRows
from spark_jobs.storage.lake import Lake
from spark_jobs.storage.publication import Publication, visible_rows
from spark_jobs.storage.tables import updates
from spark_jobs.storage.times import instant
from spark_jobs.trace.source_plane import trace_handles

_BEGINNING = -(2**63)
_COUNTED = ("at_delta", "deltas", "refusals", "known_until", "encoding", "saved_bytes")


@dataclass(frozen=True, slots=True)
class ChainMetrics:
    """`chains`: entities. `pending`: deltas after the newest checkpoint of each, `longest`: of one. `saved_bytes`: per
    encoding what it takes less than the other would, in memory. Bytes of the files: of the trace's updates, and of the
    live segments; a file that holds closed segments too counts whole until folding rewrites it. `merged`, `dropped`,
    `bytes_before` and `bytes_after`: of all compactions so far, as `gold.compactions` tells them one by one.
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


def chain_metrics(lake: Lake, source: Source) -> ChainMetrics:
    """Counted now, over what is published; reads the files' plain columns and their names, without a Spark job.

    Raises:
        ParameterError: the source keeps no chains.
    """
    check_keeps_chains(source)
    point = ReadPoint.open(lake, source)
    current = point.publication
    of_source = pc.field("source") == source.name
    columns = list(dict.fromkeys([*SEGMENT, "end_time", "known_from", "era", *_COUNTED]))
    shown = published_files(lake, CHAINS, current, columns, of_source).whole()
    for column in ("start_time", "start_row"):  # null where a chain begins, and Arrow joins no nulls
        place = shown.column_names.index(column)
        shown = shown.set_column(place, column, shown.column(column).fill_null(_BEGINNING))
    segments = without_closed(shown, SEGMENT)
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
        refused=sum(_refused(row["refusals"], row["known_until"]) for row in _with_refusals(segments)),
        **_compactions(lake, source, current),
        saved_bytes=dict(saved),
        bytes_of_updates=_bytes(trace),
        bytes_of_chains=_bytes(live),
    )


def _with_refusals(segments: pa.Table) -> list[dict[str, list[int | None]]]:
    lists = segments.select(["refusals", "known_until"])
    return lists.filter(pc.greater(pc.list_value_length(lists.column("refusals")), 0)).to_pylist()


def _refused(refusals: list[int | None], until: list[int | None]) -> int:
    """Deltas of a segment that stand and that the chain skips: what was taken back is kept for reads of the past."""
    stands = [time is None for time in until] or [True] * len(refusals)
    return sum(bool(refusal) and standing for refusal, standing in zip(refusals, stands, strict=True))


def _compactions(lake: Lake, source: Source, current: Publication) -> dict[str, int]:
    names = ("merged", "dropped", "bytes_before", "bytes_after")
    shown = visible_rows(current) & (pc.field("known_from") < instant(current.published_us))
    rows = lake.stored(CHAINS, names, shown, {"source": [source.name], "era": [COMPACTION]}).whole()
    return {name: pc.sum(rows.column(name)).as_py() or 0 for name in names}


def _bytes(rows: StoredRows) -> int:
    """Of the files that hold the rows."""
    paths = {fragment.path: fragment.filesystem for fragment in rows.fragments}
    return sum(system.get_file_info(path).size for path, system in paths.items())
