"""Advance a source's trace by what has landed: append, seal, drain and trim as one data write and one commit.

The arrangement's transitions are made on its metadata, which checks every invariant; what they move is written once,
each update straight into the batch where it ends up, consolidated. A crash in between leaves rows of a batch that no
state names. The batches that are replaced stay until a publication has been made over it (see `trace.maintenance`);
those for which that was so before go in the same commit that writes the new ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql import Observation
from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.kernels.arrangement import ArrangementState, StoredBatch, UnsealedBatch
from spark_jobs.sources import Source
from spark_jobs.storage.fence import Fence
from spark_jobs.storage.lake import Lake
from spark_jobs.storage.publication import Publication
from spark_jobs.storage.tables import updates
from spark_jobs.trace.delta_plane import DeltaPlane
from spark_jobs.trace.frontiers import SourceFrontiers, commit
from spark_jobs.trace.plane import Slice

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


ORDER = ("entity", "event_time", "row_id")
"""The key of an update: how a batch's updates are sorted first."""


@dataclass(frozen=True, slots=True)
class Advance:
    """What one advance did: frontiers before and after, updates appended, drained and still unsealed."""

    before: SourceFrontiers
    after: SourceFrontiers
    appended: int
    drained: int

    @property
    def moved(self) -> bool:
        """Whether anything changed."""
        return self.before != self.after


def next_seal(frontiers: SourceFrontiers, hi_us: int, *, something_new: bool) -> int:
    """The seal of a run that ends at `hi_us`: `hi_us`, or one tick beyond the current seal if that is not beyond it and
    there is something to add or publish, or the current seal."""
    if hi_us > frontiers.seal_us:
        return hi_us
    return frontiers.seal_us + 1 if something_new else frontiers.seal_us


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


def advance(
    lake: Lake,
    source: Source,
    fence: Fence,
    run_id: str,
    *,
    frontiers: SourceFrontiers,
    drops: range,
    hi_us: int,
    landed: DataFrame | None,
    landed_through: int,
    unpublished: bool,
    publication: Publication,
    n_landed: int = 0,
) -> Advance:
    """Append `landed` (columns of `updates` but batch, time, token; null if nothing landed), seal and drain.

    `unpublished` says that the seal is beyond `publication`, so that there is something to publish anyway.
    `n_landed` is about how many rows `landed` has.
    """
    something_new = landed is not None or unpublished or not frontiers.has_landed(drops)
    seal_us = next_seal(frontiers, hi_us, something_new=something_new)
    after = replace(
        frontiers.with_landed(drops), reached_us=max(frontiers.reached_us, hi_us), landed_through=landed_through
    )
    if seal_us == frontiers.seal_us and landed is None and after == frontiers:
        return Advance(frontiers, frontiers, 0, 0)
    plane = source_plane(lake, source, fence)
    older = tuple(b for b in frontiers.arrangement.unsealed if b.least < seal_us)
    moved = _Moved.none()
    if landed is not None or older:
        fresh = None if landed is None else landed.withColumn("time", visible_time(source, frontiers.seal_us))
        removed = frontiers.removable(publication.token)
        moved = _write(plane, older, fresh, seal_us, n_landed, removed)
        after = after.without_replaced(removed)
    state = _transitions(frontiers.arrangement, seal_us, older, moved)
    after = replace(after.replacing(state, fence.token), published_us=publication.published_us)
    commit(lake, source, fence, run_id, after)
    return Advance(frontiers, after, moved.n_appended, moved.n_sealed)


LANDED = "landed"

NOTHING = StoredBatch("", 0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class _Moved:
    """What was written. `rests`: by handle of the batch that they were in (`LANDED`: in none), the updates at or beyond
    the seal."""

    n_appended: int
    n_sealed: int
    drained: StoredBatch
    rests: dict[str, StoredBatch]

    @classmethod
    def none(cls) -> _Moved:
        return cls(0, 0, NOTHING, {})


def _write(
    plane: DeltaPlane,
    older: tuple[UnsealedBatch, ...],
    landed: DataFrame | None,
    seal_us: int,
    n_landed: int,
    removed: list[str],
) -> _Moved:
    parts = [plane.read([Slice(b.handle)]).withColumn("origin", F.lit(b.handle)) for b in older]
    if landed is not None:
        parts.append(landed.withColumn("origin", F.lit(LANDED)))
    rows = parts[0]
    for part in parts[1:]:
        rows = rows.unionByName(part)
    drained = plane.new_handle("T")
    rests = {origin: plane.new_handle("U") for origin in [*(b.handle for b in older), LANDED]}
    sealed = F.col("time") < F.timestamp_micros(F.lit(seal_us))
    batch = F.lit(drained)
    for origin, handle in rests.items():
        batch = F.when(~sealed & (F.col("origin") == origin), F.lit(handle)).otherwise(batch)
    observation = Observation(f"advance_{drained}")
    metrics = [F.count_if(F.col("origin") == LANDED).alias("appended"), F.count_if(sealed).alias("sealed")]
    observed = rows.withColumn("batch", batch).observe(observation, *metrics).drop("origin")
    n_rows = n_landed + sum(b.n_updates for b in older)
    stored = plane.store(observed, [drained, *rests.values()], consolidate=True, n_rows=n_rows, removed=removed)
    return _Moved(
        observation.get["appended"],
        observation.get["sealed"],
        stored.get(drained, replace(NOTHING, handle=drained)),
        {origin: stored[handle] for origin, handle in rests.items() if handle in stored},
    )


def _transitions(
    state: ArrangementState, seal_us: int, older: tuple[UnsealedBatch, ...], moved: _Moved
) -> ArrangementState:
    """Seal; drain what is sealed, of what landed too; then trim or evict what was drained from, and append the rest."""
    state = state.sealed(seal_us)
    request = state.drain_request()
    if request is not None and moved.n_sealed:
        drained = state.install_drain(request, moved.drained)
        assert drained is not None, "the trace can't move between request and install of one transition"
        state = drained
    for batch in older:
        if batch.greatest >= seal_us:
            # a rest that cancelled is empty, and evicted with those that were drained whole
            state = state.replace_trimmed(batch, moved.rests.get(batch.handle, NOTHING))
    state, _ = state.evict()
    if LANDED in moved.rests:
        state = state.append(UnsealedBatch.of(moved.rests[LANDED], (state.seqno_upper, state.seqno_upper + 1)))
    return state


def trace_handles(state: ArrangementState) -> list[str]:
    """The batches of the trace, oldest first."""
    return [batch.handle for batch in state.trace]
