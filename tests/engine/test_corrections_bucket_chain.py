"""The bucket chain against its twin, and the layouts that its definition names."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from spark_jobs.engine.corrections.bucket_chain import BucketChain
from spark_jobs.engine.corrections.errors import MinBitsTooLarge, NoBucket
from spark_jobs.engine.twins.corrections import NaiveBucketChain
from spark_jobs.model import Frontier
from tests.effort import tries

DOMAIN_BITS = 8

times = st.integers(0, 2**DOMAIN_BITS - 1)


class Times:
    """Plain times as the content of a bucket."""

    def __init__(self, times: list[int]) -> None:
        self.times = times

    @property
    def count(self) -> int:
        return len(self.times)

    def split(self, time: int) -> tuple[Times, Times]:
        return Times([t for t in self.times if t < time]), Times([t for t in self.times if t >= time])


class ChainBesideTwin(RuleBasedStateMachine):
    @initialize(held=st.lists(times, max_size=40), min_bits=st.integers(0, 3))
    def start(self, held: list[int], min_bits: int) -> None:
        self.chain = BucketChain(Times(held), domain_bits=DOMAIN_BITS, min_bits=min_bits)
        self.twin = NaiveBucketChain(held, domain_bits=DOMAIN_BITS, min_bits=min_bits)

    @rule(inserted=st.lists(times, max_size=10))
    def insert(self, inserted: list[int]) -> None:
        try:
            self.twin.insert(inserted)
        except NoBucket as refusal:
            with pytest.raises(NoBucket) as caught:
                self.chain.require_bucket(inserted)
            assert caught.value.as_json() == refusal.as_json()
        else:
            self.chain.require_bucket(inserted)
            column = np.array(sorted(inserted), np.uint64)
            for content, start, stop in self.chain.spans(column):
                content.times += column[start:stop].tolist()

    @rule(frontier=(times | st.sampled_from([2, 4, 16, 64]) | st.none()).map(Frontier))
    def peel(self, frontier: Frontier) -> None:
        peeled = [time for content in self.chain.peel(frontier) for time in content.times]
        assert sorted(peeled) == self.twin.peel(frontier)

    @rule(fuel=st.integers(-1, 60))
    def restore(self, fuel: int) -> None:
        assert self.chain.restore(fuel) == self.twin.restore(fuel)

    @invariant()
    def layouts_are_equal(self) -> None:
        if hasattr(self, "chain"):
            layout = self.twin.layout()
            assert self.chain.layout() == layout
            assert self.chain.is_well_formed() == self.twin.is_well_formed()
            assert self.chain.lower() == (layout[0][0] if layout else None)


def test_any_sequence_of_operations_leaves_the_layout_of_the_twin() -> None:
    run_state_machine_as_test(
        ChainBesideTwin,
        settings=settings(max_examples=tries(80), stateful_step_count=20, deadline=None, derandomize=True),
    )


@given(frontier=times, fuel=st.integers(0, 50))
@settings(max_examples=tries(50), deadline=None)
def test_buckets_tile_the_domain_above_the_lower(frontier: int, fuel: int) -> None:
    chain = BucketChain(Times([3, 7, 200]), domain_bits=DOMAIN_BITS)
    chain.peel(Frontier.at(frontier))
    chain.restore(fuel)
    ends = [offset + 2**bits for offset, bits in chain.layout()]
    assert [offset for offset, _ in chain.layout()] == [chain.lower(), *ends][: len(ends)]
    assert ends[-1:] in ([], [2**DOMAIN_BITS])


def test_a_restored_empty_domain_of_64_bits_has_one_bucket_for_each_power_of_two() -> None:
    chain = BucketChain(Times([0]))
    assert chain.restore(1_000) == 1_000 - 64
    assert chain.is_well_formed()
    assert len(chain.layout()) == 65
    assert chain.layout()[-1] == (2**63, 63)


def test_positive_fuel_left_means_well_formed_and_fuel_may_go_below_zero() -> None:
    chain = BucketChain(Times(list(range(256))), domain_bits=DOMAIN_BITS)
    assert chain.restore(100) == -156
    assert not chain.is_well_formed()
    while chain.restore(100) <= 0:
        pass
    assert chain.is_well_formed()


def test_a_bucket_cannot_be_wider_than_the_domain() -> None:
    with pytest.raises(MinBitsTooLarge) as caught:
        BucketChain(Times([]), domain_bits=3, min_bits=4)
    assert caught.value.as_json() == {"code": "min_bits_too_large", "min_bits": 4}
