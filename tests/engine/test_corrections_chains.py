"""Columns, chains and merges: sorted, consolidated, in chunks, and equal whichever way they are made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.engine.corrections import Updates
from spark_jobs.engine.corrections.chains import (
    Chain,
    ChainList,
    Ledger,
    merged_pair,
    satisfies_chain_invariant,
    updates_of,
)
from spark_jobs.engine.corrections.columns import COMPARISON_SORT_ROWS, consolidate
from spark_jobs.engine.corrections.merging import (
    has_many_stale_times,
    merged_by_pieces,
    merged_under_since,
    sorted_at_once,
)
from tests.effort import tries

GREATEST = 2**64 - 1

triples = st.lists(
    st.tuples(st.integers(-3, 3), st.integers(0, 6) | st.sampled_from([2**63, GREATEST]), st.integers(-2, 2)),
    max_size=30,
)
batches = st.lists(triples, max_size=6)


def updates(rows: list[tuple[int, int, int]]) -> Updates:
    data, times, diffs = zip(*rows, strict=True) if rows else ((), (), ())
    return Updates(np.array(times, np.uint64), np.array(data, np.int64), np.array(diffs, np.int64))


def sums(rows: Iterable[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """The consolidation of triples, by (time, data)."""
    totals: Counter[tuple[int, int]] = Counter()
    for data, time, diff in rows:
        totals[time, data] += diff
    return [(data, time, totals[time, data]) for time, data in sorted(totals) if totals[time, data]]


def chains_of(batches: list[list[tuple[int, int, int]]], chunk_rows: int) -> list[Chain]:
    chains = [Chain.of(consolidate(updates(rows)), chunk_rows) for rows in batches]
    return [chain for chain in chains if chain]


def rows_of(chain: Chain | None) -> list[tuple[int, int, int]]:
    return updates_of([chain]).triples() if chain else []


@given(rows=triples)
def test_consolidated_updates_are_the_sums_by_time_then_data(rows: list[tuple[int, int, int]]) -> None:
    assert consolidate(updates(rows)).triples() == sums(rows)


@pytest.mark.parametrize(
    ("time_end", "codes"),
    [
        (1, (-50, 50)),
        (1_000, (0, 1_000)),
        (2**40, (0, 2**20)),
        (2**63, (-(2**63), 2**63 - 1)),
        (1, (-(2**63), 2**63 - 1)),
        (2**63, (7, 8)),
        (2**40, (0, 2**13)),
        (2**45, (0, 2**20)),
    ],
    ids=[
        "codes alone",
        "packed with the row",
        "packed",
        "pairs",
        "codes of 64 bits",
        "times alone",
        "one bit too many with the row",
        "one bit too many",
    ],
)
def test_large_batches_sort_right_however_their_keys_are_packed(time_end: int, codes: tuple[int, int]) -> None:
    random = np.random.default_rng(3)
    rows = 3 * COMPARISON_SORT_ROWS
    few_times = random.integers(0, time_end, rows // 4).astype(np.uint64)
    few_codes = random.integers(*codes, rows // 4)
    batch = Updates(random.choice(few_times, rows), random.choice(few_codes, rows), random.integers(-1, 2, rows))
    assert consolidate(batch).triples() == sums(batch.triples())


@given(rows=triples, time=st.integers(0, 7) | st.sampled_from([2**63, GREATEST]), chunk_rows=st.integers(1, 5))
def test_a_split_parts_a_chain_at_a_time(rows: list[tuple[int, int, int]], time: int, chunk_rows: int) -> None:
    for chain in chains_of([rows], chunk_rows):
        low, high = chain.split(time)
        assert rows_of(low) == [row for row in rows_of(chain) if row[1] < time]
        assert rows_of(high) == [row for row in rows_of(chain) if row[1] >= time]


@given(batches=batches, since=st.integers(0, 7) | st.sampled_from([2**63, GREATEST]), chunk_rows=st.integers(1, 5))
def test_merging_pieces_and_sorting_at_once_agree(
    batches: list[list[tuple[int, int, int]]], since: int, chunk_rows: int
) -> None:
    chains = chains_of(batches, chunk_rows)
    wanted = sums((data, max(time, since), diff) for rows in batches for data, time, diff in rows)
    for merge in (merged_by_pieces, sorted_at_once, merged_under_since):
        ledger = Ledger(24 * chunk_rows)
        ledger.updates = sum(chain.count for chain in chains)
        merged = merge(chains, since, ledger) if chains else None
        assert rows_of(merged) == wanted
        assert ledger.updates == len(wanted)
        assert all(chunk.size <= chunk_rows for chunk in (merged.chunks if merged else []))


def test_chunks_of_chains_that_do_not_interleave_are_handed_on() -> None:
    ledger = Ledger(24 * 1_000)
    early = Chain.of(updates([(row, 1, 1) for row in range(3_000)]), 1_000)
    late = Chain.of(updates([(row, 2, 1) for row in range(3_000)]), 1_000)
    assert early is not None
    assert late is not None
    merged = merged_pair(late, early, ledger)
    assert merged is not None
    assert merged.chunks == [*early.chunks, *late.chunks]
    assert ledger.copied == 0


def test_chunks_that_interleave_within_one_time_are_not_handed_on() -> None:
    ledger = Ledger(24 * 1_000)
    even = [(row, 1, 1) for row in range(0, 2_000, 2)]
    odd = [(row, 1, 1) for row in range(1_001, 3_001, 2)]
    first, second = chains_of([even, odd], 1_000)
    merged = merged_pair(first, second, ledger)
    assert rows_of(merged) == sums(even + odd)


def test_two_chains_that_cancel_leave_none() -> None:
    ledger = Ledger()
    ledger.updates = 4
    rows = [(1, 1, 1), (2, 1, 5)]
    opposite = [(data, time, -diff) for data, time, diff in rows]
    first, second = chains_of([rows, opposite], 10)
    assert merged_pair(first, second, ledger) is None
    assert ledger.updates == 0


@pytest.mark.parametrize(("times", "is_many"), [(31, False), (32, True), (33, True)])
def test_many_stale_times_are_thirty_two_distinct_ones_over_all_chains(times: int, is_many: bool) -> None:
    even = [(0, time, 1) for time in range(0, times, 2)]
    odd = [(0, time, 1) for time in range(1, times, 2)]
    chains = chains_of([even, odd, even], 100)
    assert has_many_stale_times(chains, since=times) is is_many
    assert not has_many_stale_times(chains, since=31)


@given(
    sizes=st.lists(st.integers(1, 40), max_size=25),
    proportionality=st.integers(1, 4),
    rows=st.sampled_from([1, 7, 1000]),
)
@settings(max_examples=tries(50))
def test_pushes_keep_the_chain_invariant_and_every_update(sizes: list[int], proportionality: int, rows: int) -> None:
    content = ChainList(proportionality, Ledger(24 * rows))
    start = 0
    for size in sizes:
        chain = Chain.of(updates([(row, 0, 1) for row in range(start, start + size)]), rows)
        assert chain is not None
        content.push(chain)
        start += size
        assert satisfies_chain_invariant([each.count for each in content.chains], proportionality)
    assert content.count == start == sum(chain.count for chain in content.chains)
    assert sorted(updates_of(content.chains).data.tolist()) == list(range(start))
