"""The batches of a source: its table of updates, and the writing of one attempt of a run to it.

Replaced batches stay in the table, and the frontiers list them (`frontiers.obsolete`). A later run's write removes
them, once a publication has been made over their replacement. Diffs are +1 and -1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.engine.arrangement import LEVELS, AdvanceRequest, ArrangementState, Buckets, StoredBatch
from spark_jobs.engine.updates import DIFF, TIME, Horizon
from spark_jobs.model import Frontier
from spark_jobs.sources import Source
from spark_jobs.storage.delta.data_files import StoredRows
from spark_jobs.storage.delta.fences import Fence
from spark_jobs.storage.descriptions.column_types import INSTANT
from spark_jobs.storage.descriptions.tables import BELOW_HORIZON, COUNTS, updates
from spark_jobs.storage.lakes.lake import FrameLake, Lake, TableReader
from spark_jobs.trace.delta_plane import DeltaPlane
from spark_jobs.trace.placing import BATCH, LandedRows, Merging, Placement, merge, place
from spark_jobs.trace.plane import Examined, Placed, Slice

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ORDER = ("entity", "event_time", "row_id")
"""The key of an update: the first columns by which a batch's updates are sorted."""


class SourcePlane(DeltaPlane):
    """The data plane of one attempt over the batches of a source.

    Args:
        horizon: the horizon by which the updates that are written are judged; updates marked before stay marked.
        seal_us: the seal when the new updates landed.
        has_repeats: several of the new updates may be of the same row.
        removed: replaced batches that the commit of `place` removes.
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
        """True if `place` has written, and with that commit removed the batches `removed`."""
        self.n_below = 0
        """The number of updates below the horizon among those that `place` wrote."""

    def check_sums(self, updates: DataFrame, magnitude: int, beside: Callable[[], Sequence[Slice]]) -> None:
        """Check nothing: diffs are +1 and -1, and so many updates of one row that their sum is beyond int64 cannot be
        stored."""

    def delete(self, handles: Sequence[str]) -> None:
        """Delete nothing yet: see the module. A batch that was stored and then refused is an orphan."""

    def place(self, updates: LandedRows | None, request: AdvanceRequest) -> Placed:  # type: ignore[override]
        """See `DataPlane.place`; the new updates are rows in the form in which they landed."""
        assert self._horizon is not None, "who places says by which horizon"
        drained, buckets = self.new_handle("T"), [self.new_handle("U") for _ in range(LEVELS)]
        to = Placement(
            self._source,
            request,
            (drained, *buckets),
            self._seal_us,
            self._horizon,
            tuple(self._order),
            # rows that landed once have no other updates to be consolidated with
            consolidates=self._has_repeats or bool(request.moving),
            token=0 if self._fence is None else self._fence.token,
            to=self._lake.destination(self._table),
        )
        moving = self._stored_updates(request) if request.moving else None
        n_rows = (0 if updates is None else updates.n_rows) + sum(batch.n_updates for batch in request.moving)
        written = place(self._lake.spark, to, updates, moving, n_rows)
        self._lake.replace_files(self._table, written.files, BATCH, self._removed)
        self.has_written, self.n_below = True, written.below
        stored = self.stored([drained, *buckets])
        of_trace = stored.pop(drained, StoredBatch(drained, 0, 0, 0, 0)) if written.due else None
        waiting = tuple(stored[handle] for handle in buckets if handle in stored)
        examined = Examined(written.new, (written.first_below,), written.magnitude)
        return Placed(examined, written.due, of_trace, waiting)

    def merge(self, earlier: str, later: str, since: Frontier) -> StoredBatch:
        """See `DataPlane.merge`."""
        handle = self.new_handle("M")
        stored = self._lake.stored(self._table, [*self._data, TIME, DIFF], None, {BATCH: [earlier, later]})
        token = 0 if self._fence is None else self._fence.token
        to = Merging(handle, since.time, tuple(self._order), token, self._lake.destination(self._table))
        self._lake.append_files(self._table, merge(self._lake.spark, to, stored))
        return self.stored([handle]).get(handle, StoredBatch(handle, 0, 0, 0, 0))

    def _stored_updates(self, request: AdvanceRequest) -> StoredRows:
        """The updates of the moving batches that are not in the trace."""
        lower = request.lower.time
        later = None if lower is None else pc.field(TIME) >= pa.scalar(lower, INSTANT)
        columns = [*self._data, TIME, DIFF]
        return self._lake.stored(self._table, columns, later, {BATCH: [batch.handle for batch in request.moving]})


def batch_rows(lake: FrameLake, source: Source, handles: list[str]) -> DataFrame:
    """The updates of some batches."""
    return lake.read(updates(source)).where(F.col("batch").isin(handles))


def counting_rows(lake: FrameLake, source: Source, state: ArrangementState) -> DataFrame:
    """The updates of the trace that count: those that did not land below the horizon."""
    return batch_rows(lake, source, trace_handles(state)).where(COUNTS)


def stored_counting_rows(
    lake: TableReader,
    source: Source,
    state: ArrangementState,
    columns: Sequence[str],
    where: pc.Expression | None = None,
) -> StoredRows:
    """The rows of `counting_rows` that meet `where`, as pyarrow reads them from the trace's files."""
    counts = pc.field(BELOW_HORIZON.name).is_null()
    batches = {BATCH: trace_handles(state)}
    return lake.stored(updates(source), columns, counts if where is None else counts & where, batches)


def trace_handles(state: ArrangementState) -> list[str]:
    """The handles of the batches of the trace, oldest first."""
    return [batch.handle for batch in state.trace]


def buckets(source: Source) -> Buckets:
    """The buckets in which a source's future-dated updates wait; their unit is about the length of a drop."""
    return Buckets(source.drops.start_us, source.drops.every_us)
