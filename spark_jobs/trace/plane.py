"""The data plane's contract: the place of an arrangement's updates, and the operations on them by handle.

The arrangement itself has only handles and bounds, so placing and merging happen where the data is: in memory
(`spark_jobs.trace.memory`) or in a source's table (`spark_jobs.trace.source_plane`). `U` is the type of new updates: an
Arrow table with data columns, `time` and `diff`, or rows in the form in which they landed.

Promises that an implementation keeps:
- a handle is never used twice, and the updates under it never change;
- a call that returns a handle has stored its data durably before; no read uses the data until the handle is
  committed in the arrangement's state, so a crash leaves an orphan, never half a batch;
- `delete` of an unknown handle is accepted: deletions are repeated after a crash;
- a call that reads batches may raise StateConflict once another writer has removed them, after it replaced them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import pyarrow as pa

from spark_jobs.engine.arrangement import AdvanceRequest, Description, StoredBatch
from spark_jobs.engine.updates import MalformedUpdates
from spark_jobs.model import Frontier

U = TypeVar("U")
NewUpdates_contra = TypeVar("NewUpdates_contra", contravariant=True)


@dataclass(frozen=True, slots=True)
class Slice:
    """The updates of one batch with a time in `[lower, upper)`; the default is all of them."""

    handle: str
    lower: Frontier = Frontier.at(0)  # noqa: RUF009  an immutable value
    upper: Frontier = Frontier.empty()  # noqa: RUF009


@dataclass(frozen=True, slots=True)
class Examined:
    """Facts about updates that are needed before they are stored: their number, and times below a frontier.

    `first_below[i]` is the time of an update that is below the i-th frontier, None if there is none. If updates have
    an order, it is the first such update. No sum of the diffs is greater than `magnitude`.
    """

    n_updates: int
    first_below: tuple[int | None, ...]
    magnitude: int = 0


@dataclass(frozen=True, slots=True)
class Placed:
    """The batches that `place` stored: one of the `n_drained` due updates (None if no update is due), and one per
    bucket in which others wait. `examined` is about the new updates, with the door's frontier."""

    examined: Examined
    n_drained: int
    drained: StoredBatch | None
    waiting: tuple[StoredBatch, ...]

    @property
    def handles(self) -> list[str]:
        """The handles of all batches that were stored."""
        return [batch.handle for batch in ((self.drained,) if self.drained else ()) + self.waiting]


def malformed_updates(expected: str, finding: str, column: str | None = None) -> MalformedUpdates:
    """The refusal of updates that a plane could not store and read again as they are."""
    next_step = "give the collection's own columns, each of its type, and a time and a diff in every row"
    return MalformedUpdates(expected, finding, next_step, column=column)


class DataPlane(Protocol[NewUpdates_contra]):
    """Batches of updates by handle: what an arrangement needs that takes all steps of a run at once.

    Times are 0 to `greatest_time`.
    """

    @property
    def greatest_time(self) -> int:
        """The greatest time that the `time` column can have."""
        ...

    def check_sums(self, updates: NewUpdates_contra, magnitude: int, beside: Callable[[], Sequence[Slice]]) -> None:
        """Raise DiffOverflow if diffs of one value could add up beyond int64, together with the slices `beside()`.

        `magnitude` is that of `Examined`. If it and the magnitudes of the batches leave room, no data is read.
        """
        ...

    def place(self, updates: NewUpdates_contra | None, request: AdvanceRequest) -> Placed:
        """Store new updates, and those of the batches that move, in their batches with one write: see `AdvanceRequest`.

        Every batch is consolidated and sorted by (data, time). If all due updates cancel, their batch is empty. If all
        updates of a bucket cancel, it has no batch. Raises MalformedUpdates for updates that could not be stored and
        read again without a change, and then leaves no batch in the plane.
        """
        ...

    def merge(self, earlier: str, later: str, since: Frontier) -> StoredBatch:
        """Store both batches' updates, times forwarded to `since`, consolidated and sorted by (data, time)."""
        ...

    def accumulate(self, slices: Sequence[Slice]) -> pa.Table:
        """The slices' bag: diffs summed per data over all times, zeros dropped, sorted by data; no `time` column."""
        ...

    def stored(self) -> Mapping[str, StoredBatch]:
        """All batches that have updates, by handle; orphans are included."""
        ...

    def check(self, handle: str, description: Description) -> None:
        """Check the stored updates of a trace batch against its description: times, diffs, and the order that the plane
        promises. Raises the errors of `check_trace_batch`."""
        ...

    def delete(self, handles: Sequence[str]) -> None:
        """Forget these batches; unknown handles are skipped."""
        ...


class SteppedPlane(DataPlane[U], Protocol[U]):
    """A data plane that also takes the steps of a run one by one."""

    def examine(self, updates: U, frontiers: Sequence[Frontier]) -> Examined:
        """Count `updates` and look for times below each frontier; stores nothing.

        Raises MalformedUpdates for updates that could not be stored and read again without a change.
        """
        ...

    def put(self, updates: U) -> StoredBatch:
        """Store updates as they are, in any order; equal updates are not summed."""
        ...

    def drain(self, handles: Sequence[str], lower: Frontier, upper: Frontier) -> StoredBatch | None:
        """Store the batches' updates in `[lower, upper)`, consolidated and sorted by (data, time).

        Returns None if no update is in the interval, and an empty batch if all of them cancel.
        """
        ...

    def trim(self, handle: str, lower: Frontier) -> StoredBatch:
        """Store the batch's updates at or beyond `lower` as they are, under a new handle."""
        ...

    def read(self, slices: Sequence[Slice], since: Frontier | None = None) -> U:
        """The slices' updates as stored (raw: equal ones are not summed), times forwarded to `since` if it is given."""
        ...
