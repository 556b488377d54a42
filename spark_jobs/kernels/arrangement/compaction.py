"""Which trace batches merge, and what the merged batch is called: the whole compaction policy, without data.

Choose the OLDEST adjacent pair of one level whose times since has passed; the result rises a level only if it is larger
than both inputs. With batches of about one size this gives levels like the digits of a binary counter:

```
append   levels after all merges        rewritten by this append
  1      0                              0
  2      1                              2
  3      1 0                            0
  4      2                              2 + 4
```
so N appends leave O(log N) batches and rewrite O(N log N) in all. It is a bound on average only: one append may
rewrite everything. Batches of very different sizes, or merges that cancel most of their input, weaken it (a result no
larger than an input stays at its level and is merged again with the next batch).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spark_jobs.kernels.arrangement.batches import Description, StoredBatch, TraceBatch
from spark_jobs.kernels.arrangement.errors import (
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
        """What the merged batch covers."""
        return Description(self.earlier.lower, self.later.upper, self.since)


@dataclass(frozen=True, slots=True)
class CompactionResponse:
    """A finished merge: `merged` may take the place of the request's two batches."""

    request: CompactionRequest
    merged: TraceBatch


def choose_pair(trace: Sequence[TraceBatch], since: Frontier) -> int | None:
    """Index of the later batch of the pair to merge: the first of equal levels with `upper <= since`, else None.

    The earlier batch's upper is not looked at: it is the later one's lower, so since has passed it too.
    """
    for i in range(1, len(trace)):
        later = trace[i]
        if later.level == trace[i - 1].level and later.upper <= since:
            return i
    return None


def check_mergeable(request: CompactionRequest) -> None:
    """Refuse what must not merge.

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
    """The trace batch that `stored`, the request's merged updates, becomes.

    One level up iff it is larger, in the plane's size, than either input; an empty result keeps interval and level.
    Raises what `check_stored_bounds` raises.
    """
    check_stored_bounds(request.description, stored)
    rises = stored.size > request.earlier.size and stored.size > request.later.size
    return TraceBatch.of(stored, request.description, request.earlier.level + rises)


def check_stored_bounds(description: Description, stored: StoredBatch) -> None:
    """Refuse stored updates outside what they are to cover, by their least and greatest time.

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
