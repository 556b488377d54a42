"""The data plane's contract: where an arrangement's updates are, and what is done to them, by handle.

The arrangement only ever holds handles and bounds, so draining, trimming and merging happen where the data is: in
memory (`spark_jobs.trace.memory`) or in a table. `U` is what callers pass in and get back: an Arrow table, a Spark
DataFrame. It has data columns, `time` and `diff`.

Promises that an implementation keeps:
- a handle is never used twice, and the updates under it never change;
- a call that gives a handle has stored its data durably before it returns; nothing reads it until the handle is
  committed in the arrangement's state, so a crash leaves an orphan, never half a batch;
- `delete` of an unknown handle is accepted: deletions are repeated after a crash;
- a call that reads batches may raise StateConflict once another writer has removed them, after it replaced them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from spark_jobs.kernels.arrangement import AdvanceRequest, Description, StoredBatch
from spark_jobs.kernels.refusals import MalformedUpdates
from spark_jobs.model import Frontier

U = TypeVar("U")


@dataclass(frozen=True, slots=True)
class Slice:
    """The updates of one batch with a time in `[lower, upper)`; the default is all of them."""

    handle: str
    lower: Frontier = Frontier.at(0)  # noqa: RUF009  an immutable value
    upper: Frontier = Frontier.empty()  # noqa: RUF009


@dataclass(frozen=True, slots=True)
class Examined:
    """What a write must know of its updates before they are stored: their number, and who offends against a frontier.

    `first_below[i]` is the time of an update not at or beyond the i-th frontier (the first one where updates have an
    order), None if there is none. No sum of their diffs is greater than `magnitude`.
    """

    n_updates: int
    first_below: tuple[int | None, ...]
    magnitude: int = 0


@dataclass(frozen=True, slots=True)
class Placed:
    """What `place` stored: the batch of the `n_drained` updates that are due (None if there are none), and one batch
    per bucket in which others wait. `examined` is about the new updates, against the door's frontier."""

    examined: Examined
    n_drained: int
    drained: StoredBatch | None
    waiting: tuple[StoredBatch, ...]

    @property
    def handles(self) -> list[str]:
        """All that was stored."""
        return [batch.handle for batch in ((self.drained,) if self.drained else ()) + self.waiting]


def malformed(expected: str, found: str, column: str | None = None) -> MalformedUpdates:
    """The refusal of updates that a plane could not store and read again as they are."""
    next_step = "give the collection's own columns, each of its type, and a time and a diff in every row"
    return MalformedUpdates(expected, found, next_step, column=column)


class DataPlane(Protocol[U]):
    """Batches of updates by handle. Times are 0 to `greatest_time`."""

    @property
    def greatest_time(self) -> int:
        """The greatest time that the `time` column holds."""
        ...

    def examine(self, updates: U, frontiers: Sequence[Frontier]) -> Examined:
        """Count `updates` and look for times below each frontier; stores nothing.

        Raises MalformedUpdates for what could not be stored and read again as it is.
        """
        ...

    def check_sums(self, updates: U, magnitude: int, beside: Callable[[], Sequence[Slice]]) -> None:
        """Raise DiffOverflow where diffs of one value could add up beyond int64, with those of the slices `beside()`.

        `magnitude` is what `examine` said of the updates: as long as the batches' own leave room, no data is read.
        """
        ...

    def put(self, updates: U) -> StoredBatch:
        """Store updates as they are, in any order, with equal ones kept apart."""
        ...

    def drain(self, handles: Sequence[str], lower: Frontier, upper: Frontier) -> StoredBatch | None:
        """Store the batches' updates in `[lower, upper)`, consolidated and sorted by (data, time).

        None if no update lies in the interval; an empty batch if they cancel.
        """
        ...

    def place(self, updates: U | None, request: AdvanceRequest) -> Placed:
        """Store new updates, and those of the batches that move, where they belong, in one write: see `AdvanceRequest`.

        Every batch is consolidated and sorted by (data, time); updates that cancel make an empty one of those that are
        due, and none of those that wait. Raises MalformedUpdates as `examine` does, with nothing left in the plane.
        """
        ...

    def trim(self, handle: str, lower: Frontier) -> StoredBatch:
        """Store the batch's updates at or beyond `lower` as they are, under a new handle."""
        ...

    def merge(self, earlier: str, later: str, since: Frontier) -> StoredBatch:
        """Store both batches' updates, times forwarded to `since`, consolidated and sorted by (data, time)."""
        ...

    def read(self, slices: Sequence[Slice], since: Frontier | None = None) -> U:
        """The slices' updates as stored (raw: equal ones kept apart), times forwarded to `since` if it is given."""
        ...

    def accumulate(self, slices: Sequence[Slice]) -> U:
        """The slices' bag: diffs summed per data whatever the time, zeros dropped, sorted by data; no `time` column."""
        ...

    def stored(self) -> Mapping[str, StoredBatch]:
        """All batches that hold updates, by handle: orphans too."""
        ...

    def check(self, handle: str, description: Description) -> None:
        """Check what is stored of a trace batch against its description: times, diffs, and order as far as the plane
        promises one. Raises what `check_trace_batch` raises."""
        ...

    def delete(self, handles: Sequence[str]) -> None:
        """Forget these batches; unknown handles are skipped."""
        ...
