"""Drops that were never run and that a run would pass with the seal: found, named, refused."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.engine.arrangement import ArrangementState
from spark_jobs.sources import Source, load_source
from spark_jobs.trace.frontiers import SourceFrontiers
from spark_jobs.trace.gap import gap_before, gap_refusal
from tests.effort import tries
from tests.jobs.harness import SOURCE

DAY_US = 86_400_000_000


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    path: Path = tmp_path_factory.mktemp("sources") / "meters.yml"
    path.write_text(SOURCE)
    return load_source(path)


def standing(source: Source, landed: list[int], seal_us: int | None) -> SourceFrontiers:
    state = ArrangementState() if seal_us is None else ArrangementState().advance_seal(seal_us)
    frontiers = SourceFrontiers(state, source.drops.start_us)
    for n in landed:
        frontiers = frontiers.with_landed(range(n, n + 1))
    return frontiers


def naive_gap(source: Source, landed: set[int], seal_us: int | None, first: int) -> list[int]:
    return [n for n in range(first) if n not in landed and (seal_us is None or source.drops.interval(n)[1] > seal_us)]


@settings(max_examples=tries(400), deadline=None)
@given(
    landed=st.sets(st.integers(0, 15)),
    seal=st.none() | st.tuples(st.integers(-3, 15), st.sampled_from([-1, 0, 1, 7])),
    first=st.integers(0, 16),
)
def test_the_gap_is_what_looking_at_each_drop_gives(
    source: Source, landed: set[int], seal: tuple[int, int] | None, first: int
) -> None:
    seal_us = None if seal is None else source.drops.start_us + seal[0] * DAY_US + seal[1]
    gap = gap_before(source, standing(source, sorted(landed), seal_us), first)
    assert [n for lo, hi in gap for n in range(lo, hi)] == naive_gap(source, landed, seal_us, first)
    assert all(lo < hi for lo, hi in gap)
    assert all(one[1] < other[0] for one, other in pairwise(gap))


def test_the_refusal_names_the_gap_both_ways_on_and_what_passing_it_costs(source: Source) -> None:
    frontiers = standing(source, [0, 3], source.drops.start_us + DAY_US)
    error = gap_refusal(source, frontiers, range(5, 7))
    assert error is not None
    assert (error.code, error.facts["drops"]) == ("seal_gap", [["2024-01-02", "2024-01-03"], ["2024-01-05"] * 2])
    assert error.facts["count"] == 3
    sentence = str(error)
    for part in (
        "2024-01-02 to 2024-01-03, 2024-01-05",
        "`tidemark run meters --from 2024-01-02 --to 2024-01-03`, then "
        "`tidemark run meters --from 2024-01-05 --to 2024-01-05`",
        "--pass-gap",
        "pass_gap",
        "for good",
        "only after the seal of this run",
    ):
        assert part in sentence


def test_a_first_run_that_starts_late_is_told_that_the_start_may_be_wrong(source: Source) -> None:
    error = gap_refusal(source, SourceFrontiers.start(source), range(2, 3))
    assert error is not None
    assert error.facts["drops"] == [["2024-01-01", "2024-01-02"]]
    assert "`start: 2024-01-01` in the source file" in str(error)


def test_drops_that_the_seal_has_passed_are_not_refused_again(source: Source) -> None:
    frontiers = standing(source, [2], source.drops.start_us + 3 * DAY_US)
    assert gap_refusal(source, frontiers, range(1, 2)) is None
    assert gap_refusal(source, frontiers, range(3, 4)) is None
