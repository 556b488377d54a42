"""Work on a source between two stages, under its lease: sweep the remains of a crash, merge its chunks, hold and
release reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from spark_jobs.config import Settings
from spark_jobs.definitions.catalog import check_tables
from spark_jobs.engine.arrangement import ReadLease, StoredBatch
from spark_jobs.jobs.in_force import in_force
from spark_jobs.jobs.tokens import follow_lake
from spark_jobs.landing.erasures import check_finished
from spark_jobs.landing.indexing import index_chunks
from spark_jobs.landing.merging import ChunkMerges, merge_all
from spark_jobs.sources import Source
from spark_jobs.storage.coordination import leases
from spark_jobs.storage.coordination.settle import sweep_given_up
from spark_jobs.storage.coordination.source_changes import check_unchanging
from spark_jobs.storage.delta.file_upkeep import remove_unused
from spark_jobs.storage.descriptions.tables import chunks, updates
from spark_jobs.storage.lakes.lake import Lake
from spark_jobs.storage.lakes.spark_lake import SparkLake
from spark_jobs.trace import Arrangement, frontiers
from spark_jobs.trace.expiry import first_whole_drop
from spark_jobs.trace.frontiers import SourceFrontiers
from spark_jobs.trace.source_journal import SourceJournal
from spark_jobs.trace.source_plane import SourcePlane, SweepingPlane

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WAIT_S = 600.0
"""The seconds that a visit waits for a stage that is at work: longer than any stage of the sample takes."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """The result of a sweep: the removed batches that no state names, and the removed rows of given-up attempts.

    `history`: the number of such rows by history table.
    """

    source: str
    batches: tuple[StoredBatch, ...]
    history: dict[str, int]

    def to_json(self) -> dict[str, Any]:
        """The sweep as plain JSON values."""
        batches = [{"batch": b.handle, "n_updates": b.n_updates, "size": b.size} for b in self.batches]
        return {"source": self.source, "batches": batches, "history": self.history}


def sweep(settings: Settings, source: Source, spark: SparkSession, *, vacuum: bool = True) -> Sweep:
    """Remove the remains of attempts that do not count: batches that no state names, rows that no publication names.

    It is safe during a run: it waits for the stage at work, leaves the rows that the run has staged, and makes the next
    stage wait until it is done. Replaced batches stay as long as a run would leave them. `vacuum` then removes files
    that have been out of use for `TIDEMARK_FILE_RETENTION_HOURS`.

    Raises:
        SourceBusy: a stage was at work for longer than `WAIT_S`.
        PublicationLost: published rows can't be told from others.
    """
    lake = SparkLake(spark)
    with visit_source(settings, source, lake) as lease:
        swept = sweep_under(lease, lake, source)
        if vacuum:
            remove_unused(lake.folder.handle(updates(source)), settings.file_retention)
    return swept


def sweep_under(lease: leases.Lease, lake: SparkLake, source: Source) -> Sweep:
    """Sweep the source as `sweep` does, for a caller that has its lease."""
    current_frontiers, current = in_force(lake, source, near=lease.fence.token)
    # under the lease no other process stores a batch, so the frontiers need not be recorded
    journal = SourceJournal(lake, source, lease.fence, "sweep", current_frontiers, published_token=current.token)
    batches = journal.arrangement(SweepingPlane(lake, source)).sweep()
    return Sweep(source.name, batches, sweep_given_up(lake, source, current, lease.staged.values()))


def merge(settings: Settings, source: Source, spark: SparkSession, *, vacuum: bool = True) -> ChunkMerges:
    """Merge the chunks of a source's published landings, in one commit; no answer changes.

    It is safe during a run: it waits for the stage at work and makes the next one wait. Landed rows that are not
    published stay as they are. `vacuum` then removes files that have been out of use for
    `TIDEMARK_FILE_RETENTION_HOURS`.

    Raises:
        SourceBusy: a stage was at work for longer than `WAIT_S`.
        LakeOlder: an older version of Tidemark made the source's tables.
    """
    lake = SparkLake(spark)
    with visit_source(settings, source, lake) as lease:
        check_tables(lake, source)
        current, current_publication = in_force(lake, source, near=lease.fence.token)
        through = frontiers.published_frontiers(lake, source, current_publication).landed_through
        first_whole = first_whole_drop(source, current.rows_from_us)
        merges = merge_all(lake, source, lease.fence.token, through, first_whole)
        index_chunks(lake, source)
        if vacuum:
            remove_unused(lake.folder.handle(chunks(source)), settings.file_retention)
    return merges


def hold(settings: Settings, source: Source, spark: SparkSession, lease: ReadLease) -> SourceFrontiers:
    """Keep the time `lease.at` readable until the lease expires or is released; it replaces a lease of the same name.

    Raises:
        ReadBelowSince: the time is no longer readable.
    """
    step = partial(Arrangement.hold, name=lease.name, at=lease.at, expires_at=lease.expires_at)
    return _do_step(settings, source, SparkLake(spark), f"hold {lease.name}", step)


def release(settings: Settings, source: Source, spark: SparkSession, name: str) -> SourceFrontiers:
    """End the held read of this name, if there is one; since itself moves with the next run."""
    return _do_step(settings, source, SparkLake(spark), f"release {name}", partial(Arrangement.release, name=name))


def _do_step(
    settings: Settings, source: Source, lake: SparkLake, run_id: str, step: Callable[[Arrangement[Any]], None]
) -> SourceFrontiers:
    """Do `step` on the source's arrangement and record it; returns the frontiers afterwards."""
    with visit_source(settings, source, lake) as visit:
        current_frontiers = frontiers.load(lake, source, near=visit.fence.token)
        journal = SourceJournal(lake, source, visit.fence, run_id, current_frontiers)
        step(journal.arrangement(SourcePlane(lake, source)))
        return journal.record()


@contextmanager
def visit_source(settings: Settings, source: Source, lake: Lake, *, erases: bool = False) -> Iterator[leases.Lease]:
    """Hold the source between two stages, with a token greater than those in the lake.

    Raises:
        SourceChangeUnfinished: the source is being renamed, dropped or reset.
        ErasureUnfinished: an erasure was interrupted, and this visit is not there to go on with it (`erases`).
    """
    with leases.visit(settings.home / "leases", source=source.name, wait_s=WAIT_S) as lease:
        follow_lake(lake, source, lease)
        check_unchanging(lake, source.name)
        if not erases:
            check_finished(lake, source)
        yield lease
