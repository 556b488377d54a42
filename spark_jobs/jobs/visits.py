"""Work on a source between two stages, under its lease: sweep what a crash left in its trace, merge its chunks, hold
and release reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from spark_jobs.config import Settings
from spark_jobs.definitions.catalog import check_tables
from spark_jobs.jobs.in_force import in_force
from spark_jobs.jobs.tokens import follow_lake
from spark_jobs.kernels.arrangement import Lease, StoredBatch
from spark_jobs.landing.erasures import check_finished
from spark_jobs.landing.merging import Merged, merge_all
from spark_jobs.sources import Source
from spark_jobs.storage import fence
from spark_jobs.storage.lake import Lake
from spark_jobs.storage.settle import sweep_given_up
from spark_jobs.storage.source_changes import check_unchanging
from spark_jobs.storage.tables import chunks, updates
from spark_jobs.trace import Arrangement, frontiers
from spark_jobs.trace.delta_plane import DeltaPlane
from spark_jobs.trace.frontiers import SourceFrontiers
from spark_jobs.trace.source_journal import SourceJournal
from spark_jobs.trace.source_plane import SourcePlane

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WAIT_S = 600.0
"""How long a visit waits for a stage that is at work: longer than any stage of the sample takes."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """What a sweep removed: batches that no state names, and per history table the rows of given-up attempts."""

    source: str
    batches: tuple[StoredBatch, ...]
    history: dict[str, int]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        batches = [{"batch": b.handle, "n_updates": b.n_updates, "size": b.size} for b in self.batches]
        return {"source": self.source, "batches": batches, "history": self.history}


def sweep(settings: Settings, source: Source, spark: SparkSession, *, vacuum: bool = True) -> Sweep:
    """Remove what attempts left that never came to count: batches that no state names, rows that no publication names.

    Safe while a run is on: it waits for the stage at work, leaves what the run has staged, and holds the next stage up
    until it is done. Replaced batches stay as long as a run would leave them. `vacuum` then removes files that have
    been out of use for `TIDEMARK_FILE_RETENTION_HOURS`.

    Raises:
        SourceBusy: a stage was at work for longer than `WAIT_S`.
        PublicationLost: what is published can't be told from what is not.
    """
    lake = Lake(spark)
    with visit_source(settings, source, lake) as lease:
        swept = sweep_under(lease, lake, source)
        if vacuum:
            lake.vacuum(updates(source), settings.file_retention)
    return swept


def sweep_under(lease: fence.Lease, lake: Lake, source: Source) -> Sweep:
    """`sweep`, for who holds the source."""
    standing, current = in_force(lake, source, near=lease.fence.token)
    # under the lease nobody else stores a batch: nothing of the frontiers needs to be recorded
    journal = SourceJournal(lake, source, lease.fence, "sweep", standing, published_token=current.token)
    batches = journal.arrangement(DeltaPlane(lake, updates(source))).sweep()
    return Sweep(source.name, batches, sweep_given_up(lake, source, current, lease.staged.values()))


def merge(settings: Settings, source: Source, spark: SparkSession, *, vacuum: bool = True) -> Merged:
    """Merge the chunks that the published landings of a source brought, as one commit; what is asked answers as before.

    Safe while a run is on: it waits for the stage at work and holds the next one up. What has landed and is not
    published stays as it is. `vacuum` then removes files that have been out of use for `TIDEMARK_FILE_RETENTION_HOURS`.

    Raises:
        SourceBusy: a stage was at work for longer than `WAIT_S`.
        LakeOlder: the source's tables are those of an older version.
    """
    lake = Lake(spark)
    with visit_source(settings, source, lake) as lease:
        check_tables(lake, source)
        _, shown = in_force(lake, source, near=lease.fence.token)
        through = frontiers.published_frontiers(lake, source, shown).landed_through
        done = merge_all(lake, source, lease.fence.token, through)
        if vacuum:
            lake.vacuum(chunks(source), settings.file_retention)
    return done


def hold(settings: Settings, source: Source, spark: SparkSession, lease: Lease) -> SourceFrontiers:
    """Keep `lease.at` readable until the lease expires or is released; it takes the place of one of its name.

    Raises:
        ReadBelowSince: its time is no longer readable.
    """
    step = partial(Arrangement.hold, name=lease.name, at=lease.at, expires_at=lease.expires_at)
    return _stepped(settings, source, Lake(spark), f"hold {lease.name}", step)


def release(settings: Settings, source: Source, spark: SparkSession, name: str) -> SourceFrontiers:
    """End the held read of this name; since itself moves with the next run. Nothing if there is none."""
    return _stepped(settings, source, Lake(spark), f"release {name}", partial(Arrangement.release, name=name))


def _stepped(
    settings: Settings, source: Source, lake: Lake, run_id: str, step: Callable[[Arrangement[Any]], None]
) -> SourceFrontiers:
    """The frontiers once `step` is done and recorded."""
    with visit_source(settings, source, lake) as visit:
        standing = frontiers.load(lake, source, near=visit.fence.token)
        journal = SourceJournal(lake, source, visit.fence, run_id, standing)
        step(journal.arrangement(SourcePlane(lake, source)))
        return journal.record()


@contextmanager
def visit_source(settings: Settings, source: Source, lake: Lake, *, erases: bool = False) -> Iterator[fence.Lease]:
    """Hold the source between two stages, with a token that follows those of the lake.

    Raises:
        SourceChangeUnfinished: the source is being renamed, dropped or reset.
        ErasureUnfinished: one was interrupted, and this visit does not go on with it (`erases`).
    """
    with fence.visit(settings.home / "leases", source=source.name, wait_s=WAIT_S) as lease:
        follow_lake(lake, source, lease)
        check_unchanging(lake, source.name)
        if not erases:
            check_finished(lake, source)
        yield lease
