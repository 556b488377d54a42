"""What a source's chains hold, and the bytes that they take beside the deltas that they are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.kernels.comparison import LIVE
from spark_jobs.reads.point import ReadPoint
from spark_jobs.reads.state_reads import check_keeps_chains
from spark_jobs.restatement.chains import published_chains
from spark_jobs.sources import Source
from spark_jobs.storage.chain_tables import CHAINS, COMPACTION
from spark_jobs.storage.lake import Lake
from spark_jobs.storage.publication import Publication, visible
from spark_jobs.storage.tables import updates
from spark_jobs.trace.source_plane import trace_handles

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


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
    """Counted now, over what is published; reads the chains' plain columns and the names of files.

    Raises:
        ParameterError: the source keeps no chains.
    """
    check_keeps_chains(source)
    point = ReadPoint.open(lake, source)
    current = point.publication
    held = published_chains(lake, source, current).segments
    ends = F.col("end_time").isNull()
    standing = F.expr("IF(size(known_until) = 0, size(event_times), size(filter(known_until, t -> t IS NULL)))")
    # of deltas that stand: what was taken back is kept for reads of the past
    refused = F.expr(
        "IF(size(known_until) = 0, size(filter(refusals, r -> r > 0)), size(filter("
        "arrays_zip(refusals, known_until), d -> d.refusals > 0 AND d.known_until IS NULL)))"
    )
    counts = {
        "chains": F.count_if(ends), "checkpoints": F.count_if(F.col("at_delta").isNotNull()),
        "deltas": F.sum(standing), "pending": F.sum(F.when(ends, standing)), "longest": F.max(F.when(ends, standing)),
        "refused": F.sum(refused),
    }  # fmt: skip
    told = held.agg(*[F.coalesce(count, F.lit(0)).alias(name) for name, count in counts.items()]).collect()[0]
    live = lake.read_with_files(CHAINS).where((F.col("source") == source.name) & (F.col("era") == LIVE))
    saved = live.groupBy("encoding").agg(F.sum("saved_bytes").alias("saved")).collect()
    handles = trace_handles(point.frontiers.arrangement)
    rows = lake.read_with_files(updates(source)).where(F.col("batch").isin(handles))
    return ChainMetrics(
        **told.asDict(),
        **_compactions(lake, source, current),
        saved_bytes={row.encoding: int(row.saved) for row in saved},
        bytes_of_updates=_bytes(rows),
        bytes_of_chains=_bytes(live),
    )


def _compactions(lake: Lake, source: Source, current: Publication) -> dict[str, int]:
    rows = lake.read(CHAINS)
    names = ("merged", "dropped", "bytes_before", "bytes_after")
    published = (F.unix_micros("known_from") < current.published_us) & visible(current)
    told = rows.where((F.col("source") == source.name) & (F.col("era") == COMPACTION) & published)
    sums = told.agg(*[F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in names]).collect()[0]
    return {name: int(sums[name]) for name in names}


def _bytes(rows: DataFrame) -> int:
    files = rows.select("file", "file_size").distinct().agg(F.sum("file_size")).collect()
    return int(files[0][0] or 0)
