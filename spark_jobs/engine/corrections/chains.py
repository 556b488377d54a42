"""Chains of chunks, and lists of chains that keep the chain invariant.

    chain[0] │ chain[1] │ chain[2]        p = 2: every chain has at least p times
    9 updates│ 4 updates│ 1 update         the updates of the next one

A *chain* is an immutable sequence of chunks; all its updates are consolidated and ordered by (time, data). A *chunk* is
a run of columns of at most `Ledger.chunk_rows` updates. So memory is allocated and freed in bounded pieces, and a split
or merge reuses whole chunks without copying them.

The *chain invariant* compares numbers of updates, not of chunks: a chain of few updates is one chunk, however few they
are, and a list of such chains would look balanced while every read merges all of them. The invariant bounds a list of
N updates to O(log N) chains and an insert to O(log N) copies, amortised. Splitting keeps order and consolidation but
may break proportions; the next push repairs the end of the list.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import TypeVar

import numpy as np

from spark_jobs.engine.corrections.columns import BYTES_PER_UPDATE, Codes, Updates, concatenate, merge_some, trim

T = TypeVar("T")

MINTED_CHUNK_BYTES = 2 << 20
"""The greatest size of a chunk in bytes: large enough that a call per chunk costs little, small enough to free memory
piece by piece."""

REUSED_CHUNK_ROWS = 512
"""A chunk with fewer updates is copied, not reused: a call per chunk costs as much as copying this many updates."""


class Ledger:
    """The size of a buffer and the work done for it, counted where updates are made and merged: reading it is O(1).

    Attributes:
        chunk_rows: the greatest number of updates of a chunk.
        updates: the number of stored updates; later consolidations may reduce it.
        copied: the number of updates written into new chains so far (the structural work).
    """

    __slots__ = ("chunk_rows", "copied", "updates")

    def __init__(self, chunk_bytes: int = MINTED_CHUNK_BYTES) -> None:
        self.chunk_rows = max(1, chunk_bytes // BYTES_PER_UPDATE)
        self.updates = 0
        self.copied = 0

    def count_replaced(self, before: int, after: int, copied: int) -> None:
        """Count that `before` updates were replaced by `after` updates, of which `copied` were written anew."""
        self.updates += after - before
        self.copied += copied


class Chain:
    """An immutable, non-empty, consolidated sequence of updates in chunks. Equal only to itself."""

    __slots__ = ("chunks", "count", "first_time", "last_time")

    def __init__(self, chunks: list[Updates]) -> None:
        self.chunks = chunks
        self.count = sum(chunk.times.shape[0] for chunk in chunks)
        self.first_time = int(chunks[0].times[0])
        self.last_time = int(chunks[-1].times[-1])

    @classmethod
    def of(cls, updates: Updates, chunk_rows: int) -> Chain | None:
        """The chain of consolidated updates; None if there are none. Columns that fit into one chunk are not copied."""
        rows = updates.size
        if rows <= chunk_rows:
            return cls([updates]) if rows else None
        starts = range(0, rows, chunk_rows)
        return cls([updates.rows(start, min(start + chunk_rows, rows)).copy() for start in starts])

    def split(self, time: int) -> tuple[Chain | None, Chain | None]:
        """The updates before `time` and those at or beyond it. O(log n), copies nothing.

        Both sides share the memory of the chunk that straddles `time`.
        """
        if self.last_time < time:
            return self, None
        if self.first_time >= time:
            return None, self
        straddling = bisect_left(self.chunks, time, key=_last_time)
        chunk = self.chunks[straddling]
        row = chunk.first_at_or_beyond(time)
        low, high = self.chunks[:straddling], self.chunks[straddling + 1 :]
        if row:
            low = [*low, chunk.rows(0, row)]
        return Chain(low), Chain([chunk.rows(row, chunk.size), *high])

    def recode(self, used: Codes) -> Chain:
        """The same updates with each code replaced by its index in the ascending codes `used`."""
        return Chain([chunk._replace(data=np.searchsorted(used, chunk.data)) for chunk in self.chunks])


def _last_time(chunk: Updates) -> int:
    return int(chunk.times[-1])


def merged_pair(left: Chain, right: Chain, ledger: Ledger) -> Chain | None:
    """One consolidated chain of the updates of both, or None if all cancel.

    Cost O(updates that interleave): a chunk all of whose updates are before the rest of the other chain is reused.
    """
    merge = _PairMerge(ledger.chunk_rows)
    merge.run(left.chunks, right.chunks, left.count + right.count)
    chain = Chain(merge.chunks) if merge.chunks else None
    ledger.count_replaced(left.count + right.count, chain.count if chain else 0, merge.copied)
    return chain


class _PairMerge:
    """The chunks of a merge in the making."""

    __slots__ = ("buffer", "chunk_rows", "chunks", "copied", "filled")

    def __init__(self, chunk_rows: int) -> None:
        self.chunk_rows = chunk_rows
        self.chunks: list[Updates] = []
        self.copied = 0
        self.buffer: Updates | None = None
        self.filled = 0

    def run(self, lefts: list[Updates], rights: list[Updates], remaining: int) -> None:
        """Merge two lists of chunks, which have `remaining` updates together."""
        x = y = i = j = 0
        while x < len(lefts) and y < len(rights):
            left, right = lefts[x], rights[y]
            if i == 0 and self._passes(left, right, j):
                self._hand_on(left)
                x += 1
                continue
            if j == 0 and self._passes(right, left, i):
                self._hand_on(right)
                y += 1
                continue
            if self.buffer is None:
                self.buffer = Updates.empty(min(self.chunk_rows, remaining))
            i, j, self.filled = merge_some(*left, i, *right, j, *self.buffer, self.filled)
            if i == left.size:
                x, i, remaining = x + 1, 0, remaining - left.size
            if j == right.size:
                y, j, remaining = y + 1, 0, remaining - right.size
            if self.filled == self.buffer.size:
                self._flush()
        for chunk in [*lefts[x:], *rights[y:]]:
            start = max(i, j)
            i = j = 0
            self._hand_on(chunk.rows(start, chunk.size) if start else chunk)
        self._flush()

    @staticmethod
    def _passes(chunk: Updates, other: Updates, row: int) -> bool:
        """True if `chunk` is large enough to be reused and all of it is before row `row` of the other side's chunk."""
        if chunk.size < REUSED_CHUNK_ROWS:
            return False
        last, head = chunk.times[-1], other.times[row]
        return bool(last < head or (last == head and chunk.data[-1] < other.data[row]))

    def _hand_on(self, chunk: Updates) -> None:
        """Append a chunk as it is; if it fits into one chunk with the previous one, copy both into a new chunk."""
        self._flush()
        if self.chunks and self.chunks[-1].size + chunk.size <= self.chunk_rows:
            self.chunks[-1] = concatenate([self.chunks[-1], chunk])
            self.copied += chunk.size
        else:
            self.chunks.append(chunk)

    def _flush(self) -> None:
        if self.buffer is not None and self.filled:
            self.chunks.append(trim(self.buffer, self.filled))
            self.copied += self.filled
        self.buffer, self.filled = None, 0


class ChainList:
    """Chains, oldest and greatest first, under the chain invariant: the content of one bucket.

    With `chain_proportionality` p, after each push the last two chains are merged while `last * p > previous`. Equal
    sizes are not merged.
    """

    __slots__ = ("chain_proportionality", "chains", "count", "ledger")

    def __init__(self, chain_proportionality: int, ledger: Ledger, chains: Iterable[Chain] = ()) -> None:
        self.chain_proportionality = chain_proportionality
        self.ledger = ledger
        self.chains = list(chains)
        self.count = sum(chain.count for chain in self.chains)

    def push(self, chain: Chain) -> None:
        """Add a chain and restore the invariant at the end of the list; amortised O(log count) copies per update."""
        self.chains.append(chain)
        self.count += chain.count
        restore_chain_invariant(self.chains, self.chain_proportionality, size=_count, merge=self._merge)

    def split(self, time: int) -> tuple[ChainList, ChainList]:
        """The updates before `time` and those at or beyond it, without a copy."""
        low: list[Chain] = []
        high: list[Chain] = []
        for chain in self.chains:
            below, beyond = chain.split(time)
            if below:
                low.append(below)
            if beyond:
                high.append(beyond)
        return self._like(low), self._like(high)

    def adopt(self, chains: Iterable[Chain]) -> None:
        """Add chains as they are: reads put their remainders back without a merge with the other chains."""
        for chain in chains:
            self.chains.append(chain)
            self.count += chain.count

    def take(self) -> list[Chain]:
        """Remove and return all chains."""
        chains, self.chains, self.count = self.chains, [], 0
        return chains

    def recode(self, used: Codes) -> None:
        """Replace each code by its index in the ascending codes `used`."""
        self.chains = [chain.recode(used) for chain in self.chains]

    def _merge(self, previous: Chain, last: Chain) -> Chain | None:
        merged = merged_pair(previous, last, self.ledger)
        self.count += (merged.count if merged else 0) - previous.count - last.count
        return merged

    def _like(self, chains: list[Chain]) -> ChainList:
        return ChainList(self.chain_proportionality, self.ledger, chains)


def _count(chain: Chain) -> int:
    return chain.count


def restore_chain_invariant(
    chains: list[T], chain_proportionality: int, *, size: Callable[[T], int], merge: Callable[[T, T], T | None]
) -> None:
    """Merge the last two of `chains`, in place, while `size(last) * chain_proportionality > size(previous)`.

    `merge(previous, last)` returns the merged chain, or None if all updates cancel.
    """
    while len(chains) > 1 and size(chains[-1]) * chain_proportionality > size(chains[-2]):
        last, previous = chains.pop(), chains.pop()
        merged = merge(previous, last)
        if merged is not None:
            chains.append(merged)


def satisfies_chain_invariant(sizes: list[int], chain_proportionality: int) -> bool:
    """True if each chain has at least `chain_proportionality` times the updates of the next one."""
    return all(previous >= chain_proportionality * size for previous, size in pairwise(sizes))


def updates_of(chains: Iterable[Chain]) -> Updates:
    """The updates of all chains, chain by chain; not consolidated across chains."""
    chunks = [chunk for chain in chains for chunk in chain.chunks]
    return chunks[0] if len(chunks) == 1 else concatenate(chunks)


def forward_times(updates: Updates, since: int) -> Updates:
    """The updates with every time below `since` moved up to it."""
    return updates._replace(times=np.maximum(updates.times, np.uint64(since)))
