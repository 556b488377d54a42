"""The correction buffer over integer codes: a stash of future, fresh and emitted updates, which stay until they cancel.

    insert ─▶ stage ─▶ below the boundary?  ─ yes ─▶ pending_low   chains: late inserts, feedback, split remainders
                              │                          │
                              no                         ├──▶ split at upper, merge under since ─▶ emitted (one chain)
                              ▼                          │                                            │    ▲
                        bucket chain  ── peel(upper) ────┘                                            └────┘
                        (far future in few, wide buckets)                                         read again next time

An update is `(data, time, diff)`. *since* is the frontier to which all times are forwarded; *boundary* is the greatest
`upper` read so far. Guarantee: `updates_before(upper)` is the consolidation of all inserted updates, with times moved
up to since. It is restricted to times before `upper` and ordered by (time, data). A read changes no later answer.

Costs, for N updates in the buffer, U of them before `upper` in K chains: an insert is O(log N) amortised per update. A
read is O(U log K) and does not depend on updates at or beyond `upper`. Sizes are O(1). Not guaranteed: memory may not
shrink before a read or `consolidate_at_since` has brought an update and its retraction together.
"""

from __future__ import annotations

import numpy as np

from spark_jobs.engine.corrections.bucket_chain import BucketChain
from spark_jobs.engine.corrections.chains import MINTED_CHUNK_BYTES, Chain, ChainList, Ledger, forward_times, updates_of
from spark_jobs.engine.corrections.columns import (
    BYTES_PER_UPDATE,
    TIME_LIMIT,
    Codes,
    Updates,
    concatenate,
    consolidate,
)
from spark_jobs.engine.corrections.intake import as_frontier, require_columns
from spark_jobs.engine.corrections.magnitudes import MagnitudeGuard
from spark_jobs.engine.corrections.merging import merged_under_since
from spark_jobs.engine.corrections.stage import UpdateStage
from spark_jobs.engine.updates.refusals import SinceRegression
from spark_jobs.model import Frontier

STAGE_BYTES = 8 << 10
"""The size in bytes at which the stage ships its updates: 341 updates."""

CHAIN_PROPORTIONALITY = 3
"""The least ratio of the updates of a chain to those of the next one.

A larger ratio frees memory sooner; with a smaller one, fewer updates are merged."""

RESTORE_FUEL = 1_000_000
"""The number of updates that one read may re-bucket."""


class CodedCorrections:
    """A correction buffer whose data are int64 codes: row numbers, dictionary codes, hashes without collisions.

    Updates of the same time are ordered by code.

    Args:
        since: the frontier to start from.
        chain_proportionality: p of the chain invariant, at least 1.
        stage_bytes: the size in bytes at which the stage ships its updates.
        chunk_bytes: the greatest size of a chunk of a chain, in bytes.
        min_bucket_bits: buckets are never narrower than `2^min_bucket_bits` times.
        restore_fuel: the number of updates that one read may re-bucket ahead of later reads.
    """

    def __init__(
        self,
        *,
        since: Frontier = Frontier(0),  # noqa: B008 - frozen
        chain_proportionality: int = CHAIN_PROPORTIONALITY,
        stage_bytes: int = STAGE_BYTES,
        chunk_bytes: int = MINTED_CHUNK_BYTES,
        min_bucket_bits: int = 0,
        restore_fuel: int = RESTORE_FUEL,
    ) -> None:
        self._since = as_frontier(since)
        self._boundary = Frontier.at(0)
        self._restore_fuel = restore_fuel
        self._ledger = Ledger(chunk_bytes)
        self._guard = MagnitudeGuard()
        self._stage = UpdateStage(stage_bytes)
        self._pending_low = ChainList(chain_proportionality, self._ledger)
        self._buckets = BucketChain(ChainList(chain_proportionality, self._ledger), min_bits=min_bucket_bits)
        self._emitted: Chain | None = None

    @property
    def since(self) -> Frontier:
        """The frontier to which every time is forwarded."""
        return self._since

    @property
    def boundary(self) -> Frontier:
        """The greatest upper read so far."""
        return self._boundary

    @property
    def n_updates(self) -> int:
        """The number of stored updates, O(1); at least the number of consolidated ones."""
        return self._ledger.updates

    @property
    def held_bytes(self) -> int:
        """The bytes of the stored updates, O(1)."""
        return self._ledger.updates * BYTES_PER_UPDATE

    @property
    def copied(self) -> int:
        """The number of updates written into new chains since the buffer was made, O(1): its structural work."""
        return self._ledger.copied

    def insert(self, updates: Updates) -> None:
        """Add updates, with times forwarded to since; if since is `[]`, they are discarded.

        Raises MalformedUpdates for columns that `as_updates` would not return, and DiffOverflow if the diffs of a row
        could add up to more than int64. No update is inserted then.
        """
        self._insert(updates, negated=False)

    def insert_negated(self, updates: Updates) -> None:
        """Add updates with their diffs negated: the feedback of the updates that were written."""
        self._insert(updates, negated=True)

    def updates_before(self, upper: Frontier) -> Updates:
        """The updates at times not at or beyond `upper`, ordered by (time, data); none unless since < `upper`.

        The columns are read-only, and later calls of the buffer do not change them. Raises TimeOutOfRange for an upper
        beyond 2^64 - 1; `[]` reads all updates.
        """
        upper = as_frontier(upper)
        if not self._since < upper:
            return Updates.empty()
        self.consolidate_before(upper)
        return _read_only(updates_of([self._emitted])) if self._emitted else Updates.empty()

    def count_before(self, upper: Frontier) -> int:
        """The number of updates that `updates_before` returns."""
        upper = as_frontier(upper)
        if not self._since < upper:
            return 0
        self.consolidate_before(upper)
        return self._emitted.count if self._emitted else 0

    def contents(self) -> Updates:
        """All updates in the buffer, forwarded and consolidated; changes nothing in the buffer. O(N log N)."""
        if self._since.time is None:
            return Updates.empty()
        updates = self._held_updates()
        return consolidate(forward_times(updates, self._since.time))

    def consolidate_before(self, upper: Frontier) -> None:
        """Bring all updates before `upper` together in one consolidated chain; changes no answer."""
        upper = as_frontier(upper)
        since = self._since.time
        if since is None or not self._since < upper:
            return
        candidates = self._pending_low.take()
        if self._boundary < upper:
            self._boundary = upper
            candidates += self._peel(upper)
        if self._emitted:
            candidates.append(self._emitted)
        lows: list[Chain] = []
        for chain in candidates:
            low, high = _split(chain, upper)
            if low:
                lows.append(low)
            if high:
                self._pending_low.adopt([high])
        lows += self._flushed_before(upper)
        self._emitted = merged_under_since(lows, since, self._ledger)

    def consolidate_at_since(self) -> None:
        """Consolidate the updates at since; a writer that has nothing to write must call this now and then.

        An update and its retraction from different times cancel only here, after since has passed both. Nothing
        happens if since is `[]` or the greatest time, as the only frontier beyond that is `[]`.
        """
        since = self._since.time
        if since is not None and since < TIME_LIMIT - 1:
            self.consolidate_before(Frontier.at(since + 1))

    def advance_since(self, since: Frontier) -> None:
        """Move since; `[]` empties the buffer for good.

        Raises TimeOutOfRange, then SinceRegression if `since` is before the present one.
        """
        since = as_frontier(since)
        if not self._since <= since:
            raise SinceRegression(self._since, since)
        self._since = since
        if since.time is None:
            self._discard_everything()
        else:
            self._stage.advance(since.time)

    def recode(self) -> Codes:
        """Renumber the codes in use as 0 .. n - 1, keeping their order; returns the old code of each new one."""
        used = np.unique(self._held_updates().data)
        self._stage.recode(used)
        for content in (self._pending_low, *self._buckets.contents):
            content.recode(used)
        if self._emitted:
            self._emitted = self._emitted.recode(used)
        return used

    def state(self) -> tuple[object, ...]:
        """The complete physical state, as a value: equal to a later one if nothing moved in between. O(chains)."""
        staged = tuple(column.tobytes() for column in self._stage.updates())
        buckets = [(bucket, tuple(content.chains)) for bucket, content in self._buckets.items()]
        chains = (self._emitted, tuple(self._pending_low.chains), buckets)
        return self._since, self._boundary, self._guard.bound, self._ledger.updates, staged, chains

    def _insert(self, updates: Updates, *, negated: bool) -> None:
        require_columns(updates)
        since = self._since.time
        if since is None or updates.size == 0:
            return
        forwarded_updates = forward_times(updates, since)
        self._guard.admit(forwarded_updates, self.contents, negated=negated)
        self._ledger.updates += updates.size
        if negated:
            forwarded_updates = forwarded_updates._replace(diffs=-updates.diffs)
        shipped = self._stage.insert(forwarded_updates)
        if shipped:
            # memory that the caller may own must not become part of a chain
            fresh = self._sort(shipped)
            self._route(fresh.copy() if fresh is shipped else fresh)

    def _sort(self, staged: Updates) -> Updates:
        """The consolidated form of updates from the stage; the ledger is updated."""
        fresh = consolidate(staged)
        self._ledger.count_replaced(staged.size, fresh.size, fresh.size)
        return fresh

    def _route(self, fresh: Updates) -> None:
        """Push consolidated updates to their buckets, and those without a bucket to `pending_low`."""
        # a chunk must not keep a column in memory that is larger than a chunk
        needs_copy = fresh.size > self._ledger.chunk_rows
        lower = self._buckets.lower()
        low = fresh.size if lower is None else fresh.first_at_or_beyond(lower)
        spans = [(self._pending_low, 0, low)] if low else []
        if low < fresh.size:
            spans += self._buckets.spans(fresh.times)
        for content, start, stop in spans:
            part = fresh.rows(start, stop)
            chain = Chain.of(part.copy() if needs_copy else part, self._ledger.chunk_rows)
            if chain:
                content.push(chain)

    def _flushed_before(self, upper: Frontier) -> list[Chain]:
        """Empty the stage: return a chain of the updates before `upper`, if there are any, and route the rest."""
        staged = self._sort(self._stage.flush()) if self._stage.count else Updates.empty()
        stop = staged.size if upper.time is None else staged.first_at_or_beyond(upper.time)
        if stop < staged.size:
            self._route(staged.rows(stop, staged.size))
        chain = Chain.of(staged.rows(0, stop), self._ledger.chunk_rows)
        return [chain] if chain else []

    def _peel(self, upper: Frontier) -> list[Chain]:
        """Take the chains of all buckets that start below `upper` and re-bucket the rest for the next reads."""
        contents = self._buckets.peel(upper)
        if contents:
            self._buckets.restore(self._restore_fuel)
        return [chain for content in contents for chain in content.chains]

    def _held_updates(self) -> Updates:
        """All updates in the buffer, not consolidated and in no order."""
        contents = (self._pending_low, *self._buckets.contents)
        chains = [chain for content in contents for chain in content.chains]
        if self._emitted:
            chains.append(self._emitted)
        return concatenate([updates_of(chains), self._stage.updates()])

    def _discard_everything(self) -> None:
        self._stage.count = 0
        self._emitted = None
        for content in (self._pending_low, *self._buckets.contents):
            content.take()
        self._ledger.updates = 0
        self._guard = MagnitudeGuard()


def _split(chain: Chain, upper: Frontier) -> tuple[Chain | None, Chain | None]:
    """The part of `chain` before `upper`, and the rest; None for a part without updates."""
    return (chain, None) if upper.time is None else chain.split(upper.time)


def _read_only(updates: Updates) -> Updates:
    """Views of the columns that cannot be written to."""
    views = Updates(updates.times.view(), updates.data.view(), updates.diffs.view())
    for view in views:
        view.flags.writeable = False
    return views
