"""Advance a source's trace by what has landed: append, seal and drain as one data write and one commit.

The arrangement's transitions are made on its metadata, which checks every invariant; what they move is written once,
each update straight into the batch where it ends up, consolidated: the trace's new one, or that of the bucket in which
it waits (see `kernels.arrangement.future`), so that a run opens no batch that is not close to being due and rewrites an
update that waits long only as its time comes closer. A crash in between leaves rows of a batch that no
state names. The batches that are replaced stay until a publication has been made over it (see `trace.maintenance`);
those for which that was so before go in the same commit that writes the new ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.kernels.arrangement import ArrangementState, Buckets, StoredBatch, UnsealedBatch
from spark_jobs.kernels.arrangement.future import LEVELS
from spark_jobs.sources import Source
from spark_jobs.storage.fence import Fence
from spark_jobs.storage.lake import Lake
from spark_jobs.storage.publication import Publication
from spark_jobs.storage.tables import BELOW_HORIZON, COUNTS, updates
from spark_jobs.trace.delta_plane import DeltaPlane
from spark_jobs.trace.frontiers import SourceFrontiers, commit
from spark_jobs.trace.horizon import passed_by_horizon
from spark_jobs.trace.plane import Slice

if TYPE_CHECKING:
    from pyspark.sql import Column


ORDER = ("entity", "event_time", "row_id")
"""The key of an update: how a batch's updates are sorted first."""


@dataclass(frozen=True, slots=True)
class Advance:
    """What one advance did: frontiers before and after, updates appended, drained and still unsealed, and how many
    of those that it wrote lie below the horizon."""

    before: SourceFrontiers
    after: SourceFrontiers
    appended: int
    drained: int
    below_horizon: int = 0

    @property
    def moved(self) -> bool:
        """Whether anything changed."""
        return self.before != self.after


def next_seal(frontiers: SourceFrontiers, hi_us: int, *, published_us: int, adds: bool, changes: bool) -> int:
    """The seal of a run that ends at `hi_us`: `hi_us`, if that is beyond the current seal.

    Else one tick beyond the current seal, if the run adds updates, or if it `changes` what is shown of those that are
    there and the current seal is published already. Else the current seal.
    """
    if hi_us > frontiers.seal_us:
        return hi_us
    needs_time = adds or (changes and frontiers.seal_us == published_us)
    return frontiers.seal_us + 1 if needs_time else frontiers.seal_us


def visible_time(source: Source, seal_us: int) -> Column:
    """When a landed row becomes visible: the greatest of its event time, its arrival (its drop's start if it declares
    none or the row has none) and the seal when it landed."""
    drop_lo = F.timestamp_micros(F.lit(source.drops.start_us) + F.col("seq_no") * F.lit(source.drops.every_us))
    arrival = F.coalesce(F.col(f"t_{source.arrival}"), drop_lo) if source.arrival else drop_lo
    return F.greatest(F.col("event_time"), arrival, F.timestamp_micros(F.lit(seal_us)))


def source_plane(lake: Lake, source: Source, fence: Fence | None = None) -> DeltaPlane:
    """The batches of a source; to write them takes the attempt's fence."""
    return DeltaPlane(lake, updates(source), order=ORDER, fence=fence)


def batch_rows(lake: Lake, source: Source, handles: list[str]) -> DataFrame:
    """The updates of some batches."""
    return lake.read(updates(source)).where(F.col("batch").isin(handles))


def counting_rows(lake: Lake, source: Source, state: ArrangementState) -> DataFrame:
    """The updates of the trace that bear on what is published."""
    return batch_rows(lake, source, trace_handles(state)).where(COUNTS)


def advance(
    lake: Lake,
    source: Source,
    fence: Fence,
    run_id: str,
    *,
    frontiers: SourceFrontiers,
    drops: Sequence[range],
    hi_us: int,
    landed: DataFrame | None,
    landed_through: int,
    unpublished: bool,
    publication: Publication,
    n_landed: int = 0,
    is_settled: bool = False,
) -> Advance:
    """Append `landed` (columns of `updates` but batch, time, below_horizon, token; null if nothing landed), seal and
    drain.

    `drops` have landed then, in the order of time. `unpublished` says that `publication` does not show what the
    frontiers and the source file ask for. `n_landed` is about how many rows `landed` has; `is_settled`: no two of them
    are of the same row, and they lie as a batch has them, see `DeltaPlane.store`.
    """
    after = replace(
        reduce(SourceFrontiers.with_landed, drops, frontiers),
        reached_us=max(frontiers.reached_us, hi_us),
        landed_through=landed_through,
    )
    changes = unpublished or after.landed != frontiers.landed
    published_us = publication.published_us
    seal_us = next_seal(frontiers, hi_us, published_us=published_us, adds=landed is not None, changes=changes)
    if seal_us == frontiers.seal_us and landed is None and after == frontiers:
        return Advance(frontiers, frontiers, 0, 0)
    moving = buckets(source).rewritten(frontiers.arrangement.unsealed, seal_us)
    moved = _Moved.none()
    if landed is not None or moving:
        fresh = None if landed is None else landed.withColumn("time", visible_time(source, frontiers.seal_us))
        removed = frontiers.removable(publication.token)
        passed = passed_by_horizon(source, frontiers, drops[0].start if drops else 0)
        settled = is_settled and not moving
        moved = _write(lake, source, fence, moving, fresh, passed, seal_us, n_landed, removed, settled)
        after = after.without_replaced(removed)
    state = _transitions(frontiers.arrangement, seal_us, moving, moved)
    after = replace(after.replacing(state, fence.token), published_us=published_us)
    commit(lake, source, fence, run_id, after)
    return Advance(frontiers, after, moved.n_appended, moved.n_sealed, moved.n_below)


def buckets(source: Source) -> Buckets:
    """Where a source's future-dated updates wait, in units of a drop."""
    return Buckets(source.drops.start_us, source.drops.every_us)


@dataclass(frozen=True, slots=True)
class _Moved:
    """What was written. `rests`: the updates at or beyond the seal, one batch per bucket."""

    n_appended: int
    n_sealed: int
    n_below: int
    drained: StoredBatch | None
    rests: tuple[StoredBatch, ...]

    @classmethod
    def none(cls) -> _Moved:
        return cls(0, 0, 0, None, ())


def _write(
    lake: Lake,
    source: Source,
    fence: Fence,
    moving: tuple[UnsealedBatch, ...],
    landed: DataFrame | None,
    passed: Column,
    seal_us: int,
    n_landed: int,
    removed: list[str],
    settled: bool,
) -> _Moved:
    plane, below = source_plane(lake, source, fence), BELOW_HORIZON.name
    parts = []
    if landed is not None:
        parts.append(landed.withColumns({"landed": F.lit(True), below: F.lit(None).cast(BELOW_HORIZON.type)}))
    if moving:
        parts.append(plane.read([Slice(b.handle) for b in moving]).withColumn("landed", F.lit(False)))
    # what waited is judged again: the horizon may have passed it
    rows = reduce(DataFrame.unionByName, parts).withColumn(below, F.coalesce(below, passed))
    drained, rests = plane.new_handle("T"), [plane.new_handle("U") for _ in range(LEVELS)]
    sealed = F.col("time") < F.timestamp_micros(F.lit(seal_us))
    rest = F.element_at(F.array(*map(F.lit, rests)), _level(buckets(source), seal_us) + 1)
    observation = Observation(f"advance_{drained}")
    counted = {"appended": F.col("landed"), "sealed": sealed, "below": F.col(below).isNotNull()}
    metrics = [F.count_if(condition).alias(what) for what, condition in counted.items()]
    placed = rows.withColumn("batch", F.when(sealed, F.lit(drained)).otherwise(rest))
    observed = placed.observe(observation, *metrics).drop("landed")
    n_rows = n_landed + sum(b.n_updates for b in moving)
    # rows that landed once have nothing to be consolidated with
    stored = plane.store(
        observed, [drained, *rests], consolidate=not settled, settled=settled, n_rows=n_rows, removed=removed
    )
    # updates that cancel make an empty batch
    of_trace = stored.pop(drained, StoredBatch(drained, 0, 0, 0, 0))
    waiting = tuple(stored[handle] for handle in rests if handle in stored)
    found = observation.get
    return _Moved(found["appended"], found["sealed"], found["below"], of_trace, waiting)


def _level(buckets: Buckets, seal_us: int) -> Column:
    """`Buckets.level` of a row's time."""
    unit = F.call_function("div", F.unix_micros("time") - F.lit(buckets.start), F.lit(buckets.unit))
    differing = unit.bitwiseXOR(F.lit((seal_us - buckets.start) // buckets.unit))
    return F.when(differing == 0, 0).otherwise(F.least(F.length(F.bin(differing)), F.lit(LEVELS - 1)))


def _transitions(
    state: ArrangementState, seal_us: int, moving: tuple[UnsealedBatch, ...], moved: _Moved
) -> ArrangementState:
    """Seal; drain what is sealed, of what landed too; then put the rests in the place of what was written anew."""
    state = state.sealed(seal_us)
    request = state.drain_request()
    if request is not None and moved.n_sealed and moved.drained is not None:
        drained = state.install_drain(request, moved.drained)
        assert drained is not None, "the trace can't move between request and install of one transition"
        state = drained
    return state.rewrite(moving, moved.rests)


def trace_handles(state: ArrangementState) -> list[str]:
    """The batches of the trace, oldest first."""
    return [batch.handle for batch in state.trace]
