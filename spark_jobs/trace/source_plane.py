"""The data plane of a source: all batches in its table of updates, partitioned by `batch`.

A batch is read and removed by its partition alone, so neither costs more in a long history. Its data is committed under
a fresh handle. Nothing reads it until the frontiers name the handle, and a crash before that leaves an orphan. Times
are columns of instants, and microseconds since 1970 in the state. Diffs are +1 and -1.

Replaced batches stay in the table, and the frontiers list them (`frontiers.obsolete`). A later run's write removes
them, once a publication has been made over their replacement.
"""

from __future__ import annotations

import operator
import uuid
from collections.abc import Callable, Sequence
from functools import reduce
from itertools import count
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.engine.arrangement import (
    LEVELS,
    AdvanceRequest,
    ArrangementState,
    Buckets,
    Description,
    StoredBatch,
    check_trace_batch,
)
from spark_jobs.engine.updates import DIFF, TIME, Horizon, consolidate_rows
from spark_jobs.model import Frontier
from spark_jobs.sources import Source
from spark_jobs.storage.delta.data_files import StoredRows
from spark_jobs.storage.delta.fences import Fence
from spark_jobs.storage.descriptions.column_types import INSTANT
from spark_jobs.storage.descriptions.tables import BELOW_HORIZON, COUNTS, updates
from spark_jobs.storage.lakes.lake import FrameLake, Lake, TableReader
from spark_jobs.trace.placing import BATCH, TOKEN, LandedRows, Merging, Placement, merge, place
from spark_jobs.trace.plane import DataPlane, Examined, Placed, Slice
from spark_jobs.trace.stored_batches import batches_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ORDER = ("entity", "event_time", "row_id")
"""The key of an update: the first columns by which a batch's updates are sorted."""
GREATEST_TIME = 2**63 - 1
"""The greatest time of an update: times are int64 microseconds."""


class SourcePlane(DataPlane[LandedRows]):
    """The data plane of one attempt over the batches of a source.

    Args:
        fence: the attempt that writes: its token is in its handles and rows. None: handles are drawn at random.
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
        self._lake, self._source, self._fence = lake, source, fence
        self._table = updates(source)
        self._data = [c.name for c in self._table.columns if c.name not in (BATCH, TIME, DIFF, TOKEN)]
        # a map has no order, so a batch is not sorted by it
        sortable = [c.name for c in self._table.columns if c.name in self._data and not c.type.startswith("MAP")]
        self._order = (*ORDER, *(name for name in sortable if name not in ORDER))
        self._horizon = horizon
        self._seal_us = seal_us
        self._has_repeats = has_repeats
        self._removed = removed
        self._made = count()
        self._writer = uuid.uuid4().hex[:16] if fence is None else f"{fence.token:010d}"
        self.has_written = False
        """True if `place` has written, and with that commit removed the batches `removed`."""
        self.n_below = 0
        """The number of updates below the horizon among those that `place` wrote."""

    @property
    def greatest_time(self) -> int:
        """See `DataPlane.greatest_time`."""
        return GREATEST_TIME

    def check_sums(self, updates: LandedRows, magnitude: int, beside: Callable[[], Sequence[Slice]]) -> None:
        """Check nothing: diffs are +1 and -1, and so many updates of one row that their sum is beyond int64 cannot be
        stored."""

    def delete(self, handles: Sequence[str]) -> None:
        """Delete nothing yet: see the module. A batch that was stored and then refused is an orphan."""

    def place(self, updates: LandedRows | None, request: AdvanceRequest) -> Placed:
        """See `DataPlane.place`; the new updates are rows in the form in which they landed."""
        assert self._horizon is not None, "who places says by which horizon"
        drained, buckets = self._new_handle("T"), [self._new_handle("U") for _ in range(LEVELS)]
        to = Placement(
            self._source,
            request,
            (drained, *buckets),
            self._seal_us,
            self._horizon,
            self._order,
            # rows that landed once have no other updates to be consolidated with
            consolidates=self._has_repeats or bool(request.moving),
            token=self._token,
            to=self._lake.destination(self._table),
        )
        moving = None
        if request.moving:
            slices = [Slice(batch.handle, request.lower) for batch in request.moving]
            moving = self._stored_updates(slices, [*self._data, TIME, DIFF])
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
        handle = self._new_handle("M")
        stored = self._stored_updates([Slice(earlier), Slice(later)], [*self._data, TIME, DIFF])
        to = Merging(handle, since.time, self._order, self._token, self._lake.destination(self._table))
        self._lake.append_files(self._table, merge(self._lake.spark, to, stored))
        return self.stored([handle]).get(handle, StoredBatch(handle, 0, 0, 0, 0))

    def accumulate(self, slices: Sequence[Slice]) -> pa.Table:
        """See `DataPlane.accumulate`; sorted by `ORDER`."""
        by_bounds: dict[tuple[Frontier, Frontier], list[Slice]] = {}
        for part in slices:
            by_bounds.setdefault((part.lower, part.upper), []).append(part)
        columns = [*self._data, DIFF]
        none = self._lake.stored(self._table, columns, None, {BATCH: []}).none()
        read = [self._stored_updates(alike, columns).whole() for alike in by_bounds.values()]
        return consolidate_rows(pa.concat_tables([none, *read])).sort_by([(column, "ascending") for column in ORDER])

    def stored(self, handles: Sequence[str] | None = None) -> dict[str, StoredBatch]:
        """The stored batches with these handles (None: all batches, orphans too), by handle.

        Counts, bounds and checksums are read back from the committed files; the size is their bytes.
        """
        return batches_of(self._lake.summaries(self._table, BATCH, handles, (TIME, DIFF)))

    def check(self, handle: str, description: Description) -> None:
        """See `DataPlane.check`. Each file of a batch must be in the order of the first column of `ORDER`."""
        by = ORDER[0]
        stored = self._lake.stored(self._table, [by, TIME, DIFF], partitions={BATCH: [handle]})
        for file in stored.by_file():
            rows = file.whole()
            times = rows.column(TIME).cast(pa.int64())
            check_trace_batch(description, rows.set_column(1, TIME, times), by=by)

    @property
    def _token(self) -> int:
        return 0 if self._fence is None else self._fence.token

    def _new_handle(self, kind: str) -> str:
        """A handle that no batch has: a letter for the operation, the writer, a number."""
        return f"{kind}{self._writer}.{next(self._made)}"

    def _stored_updates(self, slices: Sequence[Slice], columns: Sequence[str]) -> StoredRows:
        """The updates of these slices, which have the same bounds."""
        return self._read(slices, columns)

    def _read(self, slices: Sequence[Slice], columns: Sequence[str], *also: pc.Expression) -> StoredRows:
        lower, upper = slices[0].lower.time, slices[0].upper.time
        conditions = [*also]
        if lower:
            conditions.append(pc.field(TIME) >= pa.scalar(lower, INSTANT))
        if upper is not None:
            conditions.append(pc.field(TIME) < pa.scalar(upper, INSTANT))
        where = reduce(operator.and_, conditions) if conditions else None
        return self._lake.stored(self._table, columns, where, {BATCH: [part.handle for part in slices]})


class EntityPlane(SourcePlane):
    """The data plane of a source for reads of one entity: `accumulate` reads its updates alone."""

    def __init__(self, lake: Lake, source: Source, entity: str) -> None:
        super().__init__(lake, source)
        self._of_entity = pc.field(ORDER[0]) == entity

    def _stored_updates(self, slices: Sequence[Slice], columns: Sequence[str]) -> StoredRows:
        return self._read(slices, columns, self._of_entity)


class SweepingPlane(SourcePlane):
    """The data plane of a source for its sweep, which removes batches at once."""

    def delete(self, handles: Sequence[str]) -> None:
        """See `DataPlane.delete`."""
        remove_batches(self._lake, self._source, handles)


def remove_batches(lake: Lake, source: Source, handles: Sequence[str]) -> None:
    """Remove batches of a source by one commit that drops their partitions; the files go with the next VACUUM."""
    if handles:
        lake.replace_files(updates(source), [], BATCH, handles)


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
