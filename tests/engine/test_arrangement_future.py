"""Buckets of what is not due: where updates lie, and what moving them costs over long histories."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import count
from math import log2

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spark_jobs.engine.arrangement import ArrangementState, Buckets, StoredBatch
from spark_jobs.engine.arrangement.errors import TimeBelowSeal
from spark_jobs.engine.arrangement.future import FANOUT

BUCKETS = Buckets(start=100, unit=10)
times = st.integers(0, 2000).map(lambda tick: 100 + tick)


def level(time: int, seal: int) -> int:
    return int(BUCKETS.levels(np.array([time]), seal)[0])


def test_levels_are_those_of_the_table_in_the_module() -> None:
    seal = 100 + 5 * 10
    assert [level(100 + unit * 10, seal) for unit in (5, 6, 7, 8, 15, 16, 31, 32)] == [0, 2, 2, 4, 4, 5, 5, 6]
    assert BUCKETS.bucket(100 + 9 * 10 + 3, seal) == (180, 260)
    assert BUCKETS.bucket(seal + 1, seal) == (150, 160)
    assert level(100 + 10 * 2**50, seal) == 31


@pytest.mark.parametrize("kind", [np.int64, np.uint64])
def test_levels_are_exact_up_to_the_ends_of_their_type(kind: type[np.integer]) -> None:
    greatest = int(np.iinfo(kind).max)
    smallest = Buckets(start=0, unit=1)
    apart = [0, 1, 2, 3, 2**29, 2**30, 2**62, greatest]
    assert smallest.levels(np.array(apart, kind), 0).tolist() == [0, 1, 2, 2, 30, 31, 31, 31]
    assert smallest.levels(np.array([greatest], kind), greatest - 1).tolist() == [1]


@settings(deadline=None)
@given(times, times, times)
def test_times_of_one_level_are_one_bucket_that_stays_until_the_seal_enters_it(seal: int, one: int, other: int) -> None:
    seal, one, other = sorted((seal, one, other))
    lo, hi = BUCKETS.bucket(one, seal)
    assert lo <= one < hi
    assert (level(one, seal) == level(other, seal)) == (lo <= other < hi)
    if lo > seal:
        # as wide as the distance at which it begins, give or take what lies between two powers of two
        assert hi - lo <= max(lo - 100, BUCKETS.unit)
        assert BUCKETS.bucket(one, lo - 1) == (lo, hi)
        assert all(level(time, lo) < level(one, seal) for time in (one, hi - 1))


@dataclass
class Waiting:
    """The unsealed part of a source's trace, day by day, with every update's time: what `trace.advance` does."""

    state: ArrangementState = field(default_factory=ArrangementState)
    held: dict[str, list[int]] = field(default_factory=dict)
    moves: Counter[int] = field(default_factory=Counter)
    opened: list[list[int]] = field(default_factory=list)
    names: count[int] = field(default_factory=count)

    def day(self, seal: int, landed: list[int]) -> list[int]:
        """Seal; returns what is due."""
        moving = BUCKETS.rewritten(self.state.unsealed, seal)
        self.opened = [self.held[batch.handle] for batch in moving]
        rows = [time for batch in self.opened for time in batch]
        self.moves.update(rows)
        by_level: defaultdict[int, list[int]] = defaultdict(list)
        ahead = [time for time in rows + landed if time >= seal]
        for time, its_level in zip(ahead, BUCKETS.levels(np.array(ahead, np.int64), seal).tolist(), strict=True):
            by_level[its_level].append(time)
        stored = []
        for _, held in sorted(by_level.items()):
            name = f"U{next(self.names)}"
            self.held[name] = held
            stored.append(StoredBatch(name, len(held), 1, min(held), max(held)))
        self.state = self.state.advance_seal(seal).rewrite(moving, stored)
        for batch in moving:
            del self.held[batch.handle]
        return [time for time in rows + landed if time < seal]


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.integers(0, 30), st.lists(st.integers(0, 300), max_size=12)), max_size=40))
def test_nothing_is_lost_and_each_seal_takes_what_is_due(days: list[tuple[int, list[int]]]) -> None:
    ahead: Counter[int] = Counter()
    waiting, seal = Waiting(), 100
    for passed, landed in days:
        new = [seal + tick for tick in landed]
        seal += passed
        ahead.update(new)
        due = Counter(time for time in ahead.elements() if time < seal)
        assert Counter(waiting.day(seal, new)) == due
        ahead -= due
        assert Counter(time for batch in waiting.held.values() for time in batch) == ahead
        assert set(waiting.held) == waiting.state.handles()
        numbers = [n for batch in waiting.state.unsealed for n in batch.seqno]
        assert numbers == sorted(numbers)


@pytest.mark.slow
def test_an_update_that_waits_for_a_year_is_moved_a_few_times_and_rarely_opened() -> None:
    random = np.random.default_rng(5)
    waiting, most, ahead = Waiting(), 0, 400
    for day in range(2 * ahead):
        seal = 100 + 10 * day
        distinct = random.permutation(10 * ahead)[:40]
        waiting.day(seal, (seal + distinct).tolist())
        most = max(most, len(waiting.state.unsealed))
        # what is opened beside what is due lies in the buckets that the seal has come to, or was crowded
        assert all(min(batch) < seal or len(waiting.opened) >= FANOUT for batch in waiting.opened)
    assert sum(waiting.moves.values()) / (40 * 2 * ahead) <= log2(ahead)
    assert most <= log2(ahead) * FANOUT


def test_updates_below_the_seal_are_not_put_back() -> None:
    state = ArrangementState().advance_seal(5)
    with pytest.raises(TimeBelowSeal):
        state.rewrite((), [StoredBatch("U1", 1, 1, 4, 9)])
