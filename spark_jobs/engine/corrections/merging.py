"""Merging many chains into one while moving times forward to since.

Forwarding times inside a chain can break its order. With since 2,

    chain 1: (c, 1, +1) (b, 2, -1) (a, 3, -1)        forwarded: (c, 2, +1) (b, 2, -1) (a, 3, -1)      c before b
    chain 2: (b, 1, +1) (a, 2, +1) (c, 2, -1)        forwarded: (b, 2, +1) (a, 2, +1) (c, 2, -1)      b before a

so a merge of the forwarded chains from top to bottom would neither sort nor consolidate. Two ways are correct, and have
the same result:

* With few distinct stale times (times below since), each chain is cut after each stale time. A stale piece has a single
  time, so it stays ordered when that time becomes since. The pieces are then merged as chains.
* With many stale times, all updates are gathered, forwarded, sorted and consolidated once.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

import numpy as np

from spark_jobs.engine.corrections.chains import Chain, Ledger, forward_times, merged_pair, updates_of
from spark_jobs.engine.corrections.columns import Updates, consolidate

STALE_TIMES_CAP = 32
"""With so many distinct stale times or more, one sort replaces the merge of pieces."""

SORTED_AT_ONCE_ROWS = 2_048
"""Fewer updates than this are always sorted: that takes a few calls in all, a merge takes a few per pair of chains."""


def merged_under_since(chains: list[Chain], since: int, ledger: Ledger) -> Chain | None:
    """The consolidated updates of all `chains` with times forwarded to `since`, as one chain; None if all cancel.

    A single chain without stale times is returned as it is. Cost O(U log K) for U updates in K chains, or one sort.
    """
    if not chains:
        return None
    if len(chains) == 1 and chains[0].first_time >= since:
        return chains[0]
    total = sum(chain.count for chain in chains)
    if total < SORTED_AT_ONCE_ROWS or has_many_stale_times(chains, since):
        return sorted_at_once(chains, since, ledger)
    return merged_by_pieces(chains, since, ledger)


def has_many_stale_times(chains: list[Chain], since: int, cap: int = STALE_TIMES_CAP) -> bool:
    """True if `chains` have at least `cap` distinct times below `since`; looks at up to `cap` times per chain."""
    stale: set[int] = set()
    for chain in chains:
        remainder: Chain | None = chain
        while remainder is not None and remainder.first_time < since:
            stale.add(remainder.first_time)
            if len(stale) >= cap:
                return True
            remainder = remainder.split(remainder.first_time + 1)[1]
    return False


def sorted_at_once(chains: list[Chain], since: int, ledger: Ledger) -> Chain | None:
    """The merged chain, made by one sort of all updates; None if all cancel."""
    gathered = updates_of(chains)
    chain = Chain.of(consolidate(forward_times(gathered, since)), ledger.chunk_rows)
    left = chain.count if chain else 0
    ledger.count_replaced(gathered.size, left, left)
    return chain


def merged_by_pieces(chains: list[Chain], since: int, ledger: Ledger) -> Chain | None:
    """The merged chain, made by cutting every chain at its stale times and merging the pieces, smallest first."""
    pieces = [piece for chain in chains for piece in forwarded_pieces(chain, since)]
    heap = [(piece.count, serial, piece) for serial, piece in enumerate(pieces)]
    heapify(heap)
    serial = len(heap)
    while len(heap) > 1:
        left, right = heappop(heap)[2], heappop(heap)[2]
        merged = merged_pair(left, right, ledger)
        if merged:
            heappush(heap, (merged.count, serial, merged))
            serial += 1
    return heap[0][2] if heap else None


def forwarded_pieces(chain: Chain, since: int) -> list[Chain]:
    """`chain` cut after each distinct time below `since`; stale pieces are moved up to `since`, and all are ordered."""
    pieces: list[Chain] = []
    remainder: Chain | None = chain
    while remainder is not None and remainder.first_time < since:
        stale, remainder = remainder.split(remainder.first_time + 1)
        if stale:
            pieces.append(Chain([_at(chunk, since) for chunk in stale.chunks]))
    if remainder:
        pieces.append(remainder)
    return pieces


def _at(chunk: Updates, time: int) -> Updates:
    return chunk._replace(times=np.full(chunk.size, time, np.uint64))
