"""A report of a source's trace: its frontiers, its batches, and the retracted data that its files still contain."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.engine.arrangement import ArrangementError, ReadLease, StoredBatch, TraceBatch, UnsealedBatch
from spark_jobs.sources import Source
from spark_jobs.storage.coordination.publication import Publication
from spark_jobs.storage.delta.places import for_spark
from spark_jobs.storage.descriptions.schema import Table
from spark_jobs.storage.descriptions.tables import updates
from spark_jobs.storage.lakes.lake import FrameLake
from spark_jobs.trace.frontiers import NO_HORIZON_US, SourceFrontiers
from spark_jobs.trace.horizon import published_horizon
from spark_jobs.trace.source_plane import SourcePlane, batch_rows, trace_handles

Place = Literal["trace", "unsealed", "replaced", "orphan"]

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class BatchReport:
    """One batch. `place` is `replaced` if another batch has its updates now, and `orphan` if no state ever named it.

    Times are microseconds; a trace batch has an interval `[lower_us, upper_us)` and a level, and `since_us` if it was
    merged. `fault`: a sentence about times, diffs or an order of a trace batch that are not stored as they must be; see
    `check_trace_batch`.
    """

    batch: str
    place: Place
    n_updates: int
    size: int
    least_us: int
    greatest_us: int
    lower_us: int | None = None
    upper_us: int | None = None
    since_us: int | None = None
    level: int | None = None
    fault: str | None = None


@dataclass(frozen=True, slots=True)
class Retracted:
    """The places in the trace where retracted data still is; bronze keeps the rows of the files in any case.

    `in_trace`: the number of retractions in live batches. A retraction and the update that it takes back cancel once
    since has passed `last_us`, the latest time of these retractions, and their batches have merged.
    `replaced_updates`: the number of updates in batches that were replaced or orphaned. `dead_files`, `dead_bytes`:
    files that the table no longer reads and no VACUUM has removed.
    """

    in_trace: int
    last_us: int | None
    replaced_updates: int
    dead_files: int
    dead_bytes: int

    @property
    def gone(self) -> bool:
        """True if the trace's files contain no retracted data any more."""
        return self.in_trace == self.replaced_updates == self.dead_files == 0


@dataclass(frozen=True, slots=True)
class TraceReport:
    """A source's trace at one moment; frontiers in microseconds, `horizon_us` and `rows_from_us` None if retention has
    not moved them."""

    source: str
    seal_us: int
    trace_upper_us: int
    since_us: int
    published_us: int
    reached_us: int
    horizon_us: int | None
    rows_from_us: int | None
    batches: tuple[BatchReport, ...]
    leases: tuple[ReadLease, ...]
    retracted: Retracted

    def to_json(self) -> dict[str, Any]:
        """The report as plain JSON values."""
        fields = asdict(self)
        return {**fields, "retracted": {**fields["retracted"], "gone": self.retracted.gone}}


def inspect(lake: FrameLake, source: Source, frontiers: SourceFrontiers, publication: Publication) -> TraceReport:
    """Read all batches of the source's table of updates and report on them: for people, not for every run."""
    state = frontiers.arrangement
    plane = SourcePlane(lake, source)
    stored = plane.stored()
    named = state.handles()
    replaced = {handle for handle, _ in frontiers.obsolete}
    batches = [_of_trace(batch, stored, _fault(plane, batch)) for batch in state.trace]
    batches += [_of_unsealed(batch, stored) for batch in state.unsealed]
    for handle in sorted(stored.keys() - named):
        batches.append(_dead(stored[handle], "replaced" if handle in replaced else "orphan"))
    horizon_us = published_horizon(source, frontiers, publication)
    return TraceReport(
        source=source.name,
        seal_us=frontiers.seal_us,
        trace_upper_us=state.trace_upper.time or 0,
        since_us=state.since.time or 0,
        published_us=publication.published_us,
        reached_us=frontiers.reached_us,
        horizon_us=None if horizon_us == NO_HORIZON_US else horizon_us,
        rows_from_us=None if frontiers.rows_from_us == NO_HORIZON_US else frontiers.rows_from_us,
        batches=tuple(batches),
        leases=state.leases,
        retracted=_retracted_data(lake, source, frontiers, batches),
    )


def _of_trace(batch: TraceBatch, stored: dict[str, StoredBatch], fault: str | None) -> BatchReport:
    size = stored[batch.handle].size if batch.handle in stored else 0
    bounds = batch.lower.time, batch.upper.time, batch.since.time, batch.level
    return BatchReport(batch.handle, "trace", batch.n_updates, size, batch.least, batch.greatest, *bounds, fault)


def _fault(plane: SourcePlane, batch: TraceBatch) -> str | None:
    try:
        plane.check(batch.handle, batch.description)
    except ArrangementError as error:
        return error.sentence()
    return None


def _of_unsealed(batch: UnsealedBatch, stored: dict[str, StoredBatch]) -> BatchReport:
    size = stored[batch.handle].size if batch.handle in stored else 0
    return BatchReport(batch.handle, "unsealed", batch.n_updates, size, batch.least, batch.greatest)


def _dead(batch: StoredBatch, place: Place) -> BatchReport:
    return BatchReport(batch.handle, place, batch.n_updates, batch.size, batch.least, batch.greatest)


def _files_read(lake: FrameLake, table: Table) -> DataFrame:
    """The paths of the files that have the table's rows, in the column `path`."""
    return lake.read(table).select(F.url_decode("_metadata.file_path").alias("path")).distinct()


def _files_stored(lake: FrameLake, table: Table) -> DataFrame:
    """All data files under the table's folder, also those out of use, as `path` and `length` (bytes)."""
    # lists the folder; the files themselves are not opened
    files = lake.spark.read.format("binaryFile").option("recursiveFileLookup", "true")
    listed = files.option("pathGlobFilter", "*.parquet").load(for_spark(lake.folder.handle(table).uri))
    return listed.select(F.url_decode("path").alias("path"), "length")


def _retracted_data(
    lake: FrameLake, source: Source, frontiers: SourceFrontiers, batches: list[BatchReport]
) -> Retracted:
    table = updates(source)
    live = [*trace_handles(frontiers.arrangement), *(b.handle for b in frontiers.arrangement.unsealed)]
    taken_back = batch_rows(lake, source, live).where(F.col("diff") < 0)
    totals = taken_back.agg(F.count(F.lit(1)).alias("n"), F.max(F.unix_micros("time")).alias("last")).collect()[0]
    read = {row.path for row in _files_read(lake, table).collect()}
    dead = [row for row in _files_stored(lake, table).collect() if row.path not in read]
    return Retracted(
        in_trace=totals.n,
        last_us=totals.last,
        replaced_updates=sum(b.n_updates for b in batches if b.place in ("replaced", "orphan")),
        dead_files=len(dead),
        dead_bytes=sum(row.length for row in dead),
    )
