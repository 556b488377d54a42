"""Advance a source's trace by what has landed: append, seal, drain and trim as one data write and one commit.

The arrangement's transitions are made on its metadata, which checks every invariant; what they move is written once,
each update straight into the batch where it ends up. A crash in between leaves rows of a batch that no state names.
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
from spark_jobs.storage.tables import updates
from spark_jobs.trace.frontiers import SourceFrontiers, commit

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


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
    published_us: int,
) -> Advance:
    """Append `landed` (columns of `updates` but batch, time, token; null if nothing landed), seal and drain.

    `unpublished` says that the seal is beyond `published_us`, so that there is something to publish anyway.
    """
    something_new = landed is not None or unpublished or not frontiers.has_landed(drops)
    seal_us = next_seal(frontiers, hi_us, something_new=something_new)
    after = replace(
        frontiers.with_landed(drops), reached_us=max(frontiers.reached_us, hi_us), landed_through=landed_through
    )
    if seal_us == frontiers.seal_us and landed is None and after == frontiers:
        return Advance(frontiers, frontiers, 0, 0)
    written = _write(lake, source, fence, frontiers, seal_us, landed)
    state = _transitions(frontiers.arrangement, seal_us, written)
    after = replace(after, arrangement=state, published_us=published_us)
    commit(lake, source, fence, run_id, after)
    return Advance(frontiers, after, written.appended.n_updates if written.appended else 0, written.drained.n_updates)


@dataclass(frozen=True, slots=True)
class _Written:
    appended: StoredBatch | None
    """All landed updates: the batch that was appended before anything was drained from it."""
    rest: StoredBatch | None
    """What of `appended` is at or beyond the seal."""
    trimmed: dict[str, StoredBatch]
    """By handle of an older unsealed batch: what of it is at or beyond the seal."""
    drained: StoredBatch


def _write(
    lake: Lake, source: Source, fence: Fence, frontiers: SourceFrontiers, seal_us: int, landed: DataFrame | None
) -> _Written:
    older = [b for b in frontiers.arrangement.unsealed if b.least < seal_us]
    parts: list[DataFrame] = []
    if landed is not None:
        parts.append(
            landed.withColumn("time", visible_time(source, frontiers.seal_us)).withColumn("origin", F.lit("landed"))
        )
    if older:
        parts.append(batch_rows(lake, source, [b.handle for b in older]).withColumn("origin", F.col("batch")))
    if not parts:
        return _Written(None, None, {}, StoredBatch(_handle("T", fence), 0, 0, 0, 0))
    rows = parts[0] if len(parts) == 1 else parts[0].unionByName(parts[1], allowMissingColumns=True)
    sealed = F.col("time") < F.timestamp_micros(F.lit(seal_us))
    rest = F.concat(F.lit(f"{_handle('U', fence)}:"), F.col("origin"))
    rows = rows.withColumn("batch", F.when(sealed, F.lit(_handle("T", fence))).otherwise(rest)).withColumn(
        "token", F.lit(fence.token).cast("bigint")
    )
    origins = ["landed"] * (landed is not None) + [b.handle for b in older]
    observation = Observation(f"advance_{fence.token}")
    metrics = [m for i, origin in enumerate(origins) for m in _metrics(i, F.col("origin") == origin, sealed)]
    observed = rows.observe(observation, *metrics)
    ordered = observed.repartition(1, "batch").sortWithinPartitions("batch", "entity", "event_time", "row_id", "time")
    lake.append(updates(source), ordered, fence)
    return _stored(observation.get, fence, origins, landed is not None)


def _metrics(i: int, of_origin: Column, sealed: Column) -> list[Column]:
    time = F.unix_micros("time")
    kept = of_origin & ~sealed
    return [
        F.count_if(of_origin).alias(f"n_{i}"),
        F.min(F.when(of_origin, time)).alias(f"least_{i}"),
        F.max(F.when(of_origin, time)).alias(f"greatest_{i}"),
        F.count_if(kept).alias(f"kept_{i}"),
        F.min(F.when(kept, time)).alias(f"kept_least_{i}"),
        F.max(F.when(kept, time)).alias(f"kept_greatest_{i}"),
    ]


def _stored(seen: dict[str, int], fence: Fence, origins: list[str], has_landed: bool) -> _Written:
    # sizes are counted in updates: only comparisons of one plane's sizes mean anything
    def batch(handle: str, prefix: str, i: int) -> StoredBatch:
        n = seen[f"{'n' if not prefix else 'kept'}_{i}"]
        return StoredBatch(handle, n, n, seen[f"{prefix}least_{i}"] or 0, seen[f"{prefix}greatest_{i}"] or 0)

    rests = {origin: batch(f"{_handle('U', fence)}:{origin}", "kept_", i) for i, origin in enumerate(origins)}
    appended = batch(_handle("L", fence), "", 0) if has_landed else None
    n_drained = sum(seen[f"n_{i}"] - seen[f"kept_{i}"] for i in range(len(origins)))
    drained = StoredBatch(_handle("T", fence), n_drained, n_drained, 0, 0)
    rest = rests.pop("landed", None)
    return _Written(appended, rest if rest and rest.n_updates else None, rests, drained)


def _transitions(state: ArrangementState, seal_us: int, written: _Written) -> ArrangementState:
    if written.appended is not None and written.appended.n_updates:
        state = state.append(UnsealedBatch.of(written.appended, (state.seqno_upper, state.seqno_upper + 1)))
    state = state.sealed(seal_us)
    request = state.drain_request()
    if request is not None and written.drained.n_updates:
        drained = state.install_drain(request, written.drained)
        assert drained is not None, "the trace can't move between request and install of one transition"
        state = drained
    state, _ = state.evict()
    while (batch := state.straddling()) is not None:
        rest = (
            written.rest
            if written.appended and batch.handle == written.appended.handle
            else written.trimmed[batch.handle]
        )
        assert rest is not None, "a straddling batch has updates beyond the trace's upper"
        state = state.replace_trimmed(batch, rest)
    if written.appended is not None and written.rest is not None:
        # nothing was drained from it: its rows were written under the rest's handle all the same
        whole = next((b for b in state.unsealed if b.handle == written.appended.handle), None)
        state = state if whole is None else state.replace_trimmed(whole, written.rest)
    return state


def _handle(kind: str, fence: Fence) -> str:
    return f"{kind}{fence.token:010d}"


def trace_handles(state: ArrangementState) -> list[str]:
    """The batches of the trace, oldest first."""
    return [batch.handle for batch in state.trace]
