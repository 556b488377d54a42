"""The compaction policy of a trace, without data: choosing the batches to merge, and describing the merged batch.

The policy chooses the OLDEST adjacent pair of the same level whose times since has passed, or a frontier that the
caller gives. The merged batch rises a level only if it is larger than both inputs. With batches of about the same size,
the levels are like the digits of a binary counter:

```
append   levels after all merges        rewritten by this append
  1      0                              0
  2      1                              2
  3      1 0                            0
  4      2                              2 + 4
```
So N appends leave O(log N) batches and rewrite O(N log N) in all. The bound holds on average only: one append may
rewrite everything. Batches of very different sizes weaken it, and so do merges that cancel most of their input: a
result that is no larger than an input stays at its level and is merged again with the next batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spark_jobs.engine.arrangement.batches import Description, StoredBatch, TraceBatch
from spark_jobs.engine.arrangement.errors import (
    LevelMismatch,
    MergeSinceRegression,
    NonConsecutive,
    TimeAtOrBeyondUpper,
    TimeBelowLower,
    TimeBeyondSince,
)
from spark_jobs.model import Frontier


@dataclass(frozen=True, slots=True)
class CompactionRequest:
    """Merge `earlier` and `later`, which adjoin, forwarding every time to `since`."""

    earlier: TraceBatch
    later: TraceBatch
    since: Frontier

    @property
    def description(self) -> Description:
        """The interval that the merged batch covers, and the since to which its times are forwarded."""
        return Description(self.earlier.lower, self.later.upper, self.since)


@dataclass(frozen=True, slots=True)
class CompactionResponse:
    """A finished merge: `merged` may replace the two batches of the request."""

    request: CompactionRequest
    merged: TraceBatch


def choose_pair(trace: Sequence[TraceBatch], passed: Frontier) -> int | None:
    """The index of the later batch of the pair to merge: the first of equal levels with `upper <= passed`, else None.

    The upper of the earlier batch is not checked: it is the lower of the later batch, so `passed` is beyond it too.
    """
    for i in range(1, len(trace)):
        later = trace[i]
        if later.level == trace[i - 1].level and later.upper <= passed:
            return i
    return None


def check_mergeable(request: CompactionRequest) -> None:
    """Refuse a request whose batches must not be merged.

    Raises, in this order: NonConsecutive, MergeSinceRegression (the earlier batch first), LevelMismatch.
    """
    earlier, later, since = request.earlier, request.later, request.since
    if earlier.upper != later.lower:
        raise NonConsecutive(earlier.upper, later.lower)
    for batch in (earlier, later):
        if not batch.since <= since:
            raise MergeSinceRegression(since, batch.since)
    if earlier.level != later.level:
        raise LevelMismatch((earlier.level, later.level))


def merged_batch(request: CompactionRequest, stored: StoredBatch) -> TraceBatch:
    """The trace batch of `stored`, the merged updates of the request.

    It is one level up if its size is larger than that of each input. An empty result keeps the interval and the level.
    Raises what `check_stored_bounds` raises.
    """
    check_stored_bounds(request.description, stored)
    rises = stored.size > request.earlier.size and stored.size > request.later.size
    return TraceBatch.of(stored, request.description, request.earlier.level + rises)


def check_stored_bounds(description: Description, stored: StoredBatch) -> None:
    """Refuse stored updates whose least or greatest time is outside the description.

    Raises TimeBelowLower, then TimeAtOrBeyondUpper (if since < upper) or TimeBeyondSince (if not).
    """
    if stored.n_updates == 0:
        return
    if not description.lower.admits(stored.least):
        raise TimeBelowLower(stored.least, description.lower)
    if description.since < description.upper:
        if description.upper.admits(stored.greatest):
            raise TimeAtOrBeyondUpper(stored.greatest, description.upper)
    elif description.since.time is not None and stored.greatest > description.since.time:
        raise TimeBeyondSince(stored.greatest, description.since)
