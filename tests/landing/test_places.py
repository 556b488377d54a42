"""Which file and line a row id stands for, and files whose lines would share row ids."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from spark_jobs.landing.ledger import Version
from spark_jobs.landing.places import Places, RowIdsShared
from spark_jobs.sources import first_row_id, parse_source
from spark_jobs.sources.drops import LINE_BITS
from tests.jobs.harness import SOURCE

METERS = parse_source(SOURCE, file="meters.yml")


def ids_of(version: Version) -> tuple[int, int]:
    """The first and the last row id that are reserved for a file."""
    assert version.first_row_id is not None
    assert version.last_row_id is not None
    return version.first_row_id, version.last_row_id


def has(version: Version, row_id: int) -> bool:
    first, last = ids_of(version)
    return first <= row_id <= last


def version(path: str, first: int, lines: int, seq_no: int = 0) -> Version:
    return Version(path, seq_no, first, first + lines - 1, 1, "one")


spans = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 6)), min_size=1, max_size=8)


@given(spans, st.integers(0, 50))
def test_files_share_a_row_id_or_each_id_is_of_the_one_file_that_has_it(
    drawn: list[tuple[int, int]], start: int
) -> None:
    versions = [version(str(i), first, lines) for i, (first, lines) in enumerate(drawn)]
    owners = {i: [v.path for v in versions if has(v, i)] for i in range(60)}
    begins = [ids_of(v)[0] for v in versions]
    # a file without lines keeps its place all the same, since it may come to have some
    inside = any(len({o for o in owners[f] if o != v.path}) for v, f in zip(versions, begins, strict=True))
    if any(len(found) > 1 for found in owners.values()) or inside or len(set(begins)) < len(begins):
        with pytest.raises(RowIdsShared):
            Places.of(versions, METERS)
        return
    places = Places.of(versions, METERS)
    ids = np.arange(60)
    told = [[places.paths[i]] if i >= 0 else [] for i in places.files(ids).tolist()]
    assert told == list(owners.values())


def test_the_refusal_names_both_files_the_drop_and_the_way_on() -> None:
    drop = 3 << 43
    with pytest.raises(RowIdsShared, match="rename the one that has not landed") as refused:
        Places.of([version("b", drop + 40, 5, 3), version("a", drop + 30, 11, 3)], METERS)
    assert refused.value.facts["files"] == ["a", "b"]
    assert refused.value.facts["drop"] == "2024-01-04"
    assert Places.of([version("b", drop + 41, 5, 3), version("a", drop + 30, 11, 3)], METERS).paths == ("a", "b")


def test_files_of_older_versions_and_new_ones_lie_apart() -> None:
    slots = [version(f"{rank}", (rank << LINE_BITS) + 1, 2**LINE_BITS - 1) for rank in range(1 << 13)]
    new = [version(f"new {i}", first_row_id(0, f"new {i}"), 1) for i in range(100)]
    taken_back = Version("gone", 0, None, None, 1, "one", "retracted")
    assert len(Places.of([*slots, *new, taken_back], METERS).paths) == len(slots) + 100


@pytest.mark.spark
def test_rows_are_located_as_one_by_one(spark: SparkSession) -> None:
    chance = random.Random(3)
    stretch = 1 << LINE_BITS
    # ends and begins at, before and behind the boundary of equal upper bits
    edges = sorted(
        {chance.choice([0, stretch, 2 * stretch, 7 * stretch]) + chance.randrange(-40, 40) for _ in range(60)}
    )
    versions = [
        version(f"{low}", low, chance.randrange(0, high - low + 1), seq_no)
        for seq_no in (1, 2)
        for low, high in pairwise([(seq_no << 43) + 2**42 + edge for edge in edges])
    ]
    places = Places.of(versions, METERS)
    ids = [ids_of(v)[0] + i for v in versions for i in range(-2, 30)]
    found = places.locate(spark.createDataFrame([(i,) for i in ids], "row_id BIGINT")).collect()
    expected = [
        (i, v.path, i - ids_of(v)[0] + 1)
        for i in ids
        for v in versions
        if has(v, i)
    ]  # fmt: skip
    assert sorted(tuple(row) for row in found) == sorted(expected)
    assert places.locate(spark.createDataFrame([], "row_id BIGINT")).columns == ["row_id", "file", "line"]
