"""The batches of a source: its table of updates, and how one attempt of a run writes to it.

Replaced batches stay where they are: the frontiers list them (`frontiers.obsolete`), and they go with a later run's
write, once a publication has been made over their replacement. Diffs are +1 and -1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.kernels.arrangement import AdvanceRequest, ArrangementState, Buckets, StoredBatch
from spark_jobs.kernels.arrangement.future import LEVELS
from spark_jobs.kernels.consolidate import DIFF, TIME
from spark_jobs.kernels.placing import Horizon
from spark_jobs.sources import Source
from spark_jobs.storage.column_types import INSTANT
from spark_jobs.storage.data_files import StoredRows
from spark_jobs.storage.fence import Fence
from spark_jobs.storage.lake import Lake
from spark_jobs.storage.tables import BELOW_HORIZON, COUNTS, updates
from spark_jobs.trace.delta_plane import DeltaPlane
from spark_jobs.trace.placing import BATCH, LandedRows, Placement, place
from spark_jobs.trace.plane import Examined, Placed, Slice

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ORDER = ("entity", "event_time", "row_id")
"""The key of an update: how a batch's updates are sorted first."""


class SourcePlane(DeltaPlane):
    """The batches as an attempt moves them.

    Args:
        horizon: by which updates on their way are judged; what was marked before stays so.
        seal_us: the seal when the new ones landed.
        has_repeats: some of the new ones may be of the same row.
        removed: replaced batches that go with the commit that writes.
    """

    def __init__(
        self,
        lake: Lake,
        source: Source,
        fence: Fence | None = None,
        *,
        horizon: Horizon | None = None,
        seal_us: int = 0,
        has_repeats: bool = True,
        removed: Sequence[str] = (),
    ) -> None:
        super().__init__(lake, updates(source), order=ORDER, fence=fence)
        self._source = source
        self._horizon = horizon
        self._seal_us = seal_us
        self._has_repeats = has_repeats
        self._removed = removed
        self.has_written = False
        """Whether `place` has, and with that removed what it was to remove."""
        self.n_below = 0
        """Of what `place` wrote, the updates below the horizon."""

    def check_sums(self, updates: DataFrame, magnitude: int, beside: Callable[[], Sequence[Slice]]) -> None:
        """Nothing to check: as many updates of one row as a sum beyond int64 takes can't be stored."""

    def delete(self, handles: Sequence[str]) -> None:
        """Nothing goes yet: see the module. What was stored and refused is an orphan."""

    def place(self, updates: LandedRows | None, request: AdvanceRequest) -> Placed:  # type: ignore[override]
        """See `DataPlane.place`: new updates are rows as they landed."""
        assert self._horizon is not None, "who places says by which horizon"
        drained, buckets = self.new_handle("T"), [self.new_handle("U") for _ in range(LEVELS)]
        to = Placement(
            self._source,
            request,
            (drained, *buckets),
            self._seal_us,
            self._horizon,
            tuple(self._order),
            # rows that landed once have nothing to be consolidated with
            consolidates=self._has_repeats or bool(request.moving),
            token=0 if self._fence is None else self._fence.token,
            to=self._lake.destination(self._table),
        )
        moving = self._stored(request) if request.moving else None
        n_rows = (0 if updates is None else updates.n_rows) + sum(batch.n_updates for batch in request.moving)
        written = place(self._lake.spark, to, updates, moving, n_rows)
        self._lake.replace_files(self._table, written.files, BATCH, self._removed)
        self.has_written, self.n_below = True, written.below
        stored = self.stored([drained, *buckets])
        of_trace = stored.pop(drained, StoredBatch(drained, 0, 0, 0, 0)) if written.due else None
        waiting = tuple(stored[handle] for handle in buckets if handle in stored)
        examined = Examined(written.new, (written.first_below,), written.magnitude)
        return Placed(examined, written.due, of_trace, waiting)

    def _stored(self, request: AdvanceRequest) -> StoredRows:
        """What the moving batches hold that is not in the trace."""
        lower = request.lower.time
        later = None if lower is None else pc.field(TIME) >= pa.scalar(lower, INSTANT)
        columns = [*self._data, TIME, DIFF]
        return self._lake.stored(self._table, columns, later, {BATCH: [batch.handle for batch in request.moving]})


def batch_rows(lake: Lake, source: Source, handles: list[str]) -> DataFrame:
    """The updates of some batches."""
    return lake.read(updates(source)).where(F.col("batch").isin(handles))


def counting_rows(lake: Lake, source: Source, state: ArrangementState) -> DataFrame:
    """The updates of the trace that bear on what is published."""
    return batch_rows(lake, source, trace_handles(state)).where(COUNTS)


def stored_counting_rows(
    lake: Lake, source: Source, state: ArrangementState, columns: Sequence[str], where: pc.Expression | None = None
) -> StoredRows:
    """`counting_rows` that meet `where`, as pyarrow reads them out of the trace's files."""
    counts = pc.field(BELOW_HORIZON.name).is_null()
    batches = {BATCH: trace_handles(state)}
    return lake.stored(updates(source), columns, counts if where is None else counts & where, batches)


def trace_handles(state: ArrangementState) -> list[str]:
    """The batches of the trace, oldest first."""
    return [batch.handle for batch in state.trace]


def buckets(source: Source) -> Buckets:
    """Where a source's future-dated updates wait, in units of about a drop."""
    return Buckets(source.drops.start_us, source.drops.every_us)
