"""The interval tree answers as a list of intervals does, through every split and removal of its nodes."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.engine.chunks import interval_index
from spark_jobs.engine.chunks.interval_index import IntervalIndex
from tests.effort import tries

intervals = st.tuples(st.integers(-20, 20), st.integers(0, 60)).map(lambda pair: (pair[0], pair[0] + pair[1]))


def held_by(index: IntervalIndex, held: dict[int, tuple[int, int]]) -> None:
    by_start = sorted((start, key) for key, (start, _) in held.items())
    assert index.all_keys() == [key for _, key in by_start]
    assert len(index) == len(held)
    assert index.span() == ((by_start[0][0], max(end for _, end in held.values())) if held else None)
    for lo, hi in ((-30, 90), (0, 0), (5, 12), (-20, -19), (21, 80), (4, 3)):
        wanted = [key for start, key in by_start if lo <= hi and start <= hi and held[key][1] >= lo]
        assert index.overlapping_keys(lo, hi) == wanted
    for time in (-21, -20, 0, 3, 20, 21):
        starts = [start for start, _ in by_start]
        assert index.starting_at(time) == [key for start, key in by_start if start == time]
        assert index.start_before(time) == max((start for start in starts if start < time), default=None)
        assert index.start_after(time) == min((start for start in starts if start > time), default=None)


@settings(max_examples=tries(15), deadline=None)
@given(st.lists(intervals, max_size=60), st.randoms(use_true_random=False), st.sampled_from([2, 3, 4, 64]))
def test_the_tree_agrees_with_a_list_through_additions_and_removals(
    added: list[tuple[int, int]], random: object, fanout: int
) -> None:
    with patch.object(interval_index, "FANOUT", fanout):
        index = IntervalIndex()
        held: dict[int, tuple[int, int]] = {}
        for key, (start, end) in enumerate(added):
            index.add(start, end, key)
            held[key] = (start, end)
        held_by(index, held)
        keys = list(held)
        random.shuffle(keys)  # type: ignore[attr-defined]
        for position, key in enumerate(keys):
            index.remove(held.pop(key)[0], key)
            if position % 7 == 0:
                held_by(index, held)
        held_by(index, {})


def test_removing_what_is_not_held_is_an_error() -> None:
    index = IntervalIndex()
    index.add(1, 5, 0)
    with pytest.raises(KeyError):
        index.remove(1, 1)
    assert index.all_keys() == [0]


class CountingLeaf(interval_index._Leaf):
    """A leaf that counts how often a query looks into one."""

    visits = 0

    def collect(self, lo: int, hi: int, found: list[int]) -> None:
        CountingLeaf.visits += 1
        super().collect(lo, hi, found)


def test_one_interval_over_everything_does_not_make_a_query_visit_all_leaves() -> None:
    with patch.object(interval_index, "_Leaf", CountingLeaf):
        index = IntervalIndex()
        index.add(0, 10**9, 0)
        for key in range(1, 20_000):
            index.add(key * 10, key * 10 + 9, key)
        CountingLeaf.visits = 0
        assert index.overlapping_keys(150_005, 150_005) == [0, 15_000]
        assert CountingLeaf.visits <= 3
