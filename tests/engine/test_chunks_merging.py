"""Rows come out of chunks as they went in, layer by layer; and how many runs are merged when."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spark_jobs.engine.chunks import chunk_rows, due_runs, layers
from spark_jobs.engine.chunks.merging import FEWEST_RUNS
from tests.effort import tries


@pytest.mark.parametrize("seed", range(tries(20)))
def test_rows_of_chunks_are_what_each_chunk_says_of_each_row(seed: int) -> None:
    chance = random.Random(seed)
    chunks = []
    for number in range(chance.randint(0, 6)):
        rows = chance.randint(1, 4)
        absent = chance.random() < 0.4
        values = None if absent else [chance.choice([None, 1, 2]) for _ in range(rows)]
        chunks.append(
            {"entity": chance.choice("ab"), "rows": rows, "ids": [*range(number * 9, number * 9 + rows)], "v": values}
        )
    kinds = {"entity": pa.string(), "rows": pa.int32(), "ids": pa.list_(pa.int64()), "v": pa.list_(pa.int8())}
    table = pa.Table.from_pylist(chunks, schema=pa.schema(kinds))
    for given in (table, table.slice(1)):
        told = given.to_pylist()
        expected = [
            {"entity": c["entity"], "row_id": c["ids"][i], "value": None if c["v"] is None else c["v"][i]}
            for c in told
            for i in range(c["rows"])
        ]
        found = chunk_rows(given, rows="rows", arrays={"row_id": "ids", "value": "v"}, same=["entity"])
        assert found.to_pylist() == expected


@pytest.mark.parametrize("seed", range(tries(20)))
def test_row_ids_ascend_strictly_within_a_layer_and_code(seed: int) -> None:
    chance = np.random.default_rng(seed)
    n = int(chance.integers(0, 40))
    codes, row_ids = chance.integers(0, 3, n), chance.integers(0, 8, n)
    landings = chance.permutation(n)
    order, layer = layers(codes, row_ids, landings)
    assert sorted(order.tolist()) == list(range(n))
    came: Counter[tuple[Any, ...]] = Counter()
    expected = {}
    for at in np.argsort(landings):
        expected[int(at)] = came[codes[at], row_ids[at]]
        came[codes[at], row_ids[at]] += 1
    assert layer.tolist() == [expected[at] for at in order.tolist()]
    keys = list(zip(layer.tolist(), codes[order].tolist(), row_ids[order].tolist(), strict=True))
    assert keys == sorted(set(keys))


def test_the_newest_runs_are_merged_when_the_oldest_of_them_is_no_larger_than_the_others() -> None:
    assert due_runs([]) == due_runs([1] * 7) == 0
    assert due_runs([1] * 8) == 8
    assert due_runs([8, *[1] * 7]) == 0
    assert due_runs([8, *[1] * 8]) == 9
    assert due_runs([100, *[1] * 8]) == 8


@pytest.mark.parametrize("sizes", [lambda _: 1, lambda c: c.randint(1, 9), lambda c: int(2 ** c.uniform(0, 12))])
def test_a_run_is_rewritten_a_logarithmic_number_of_times(sizes: Callable[[random.Random], int]) -> None:
    chance = random.Random(3)
    runs: list[tuple[int, int]] = []
    written = landed = 0
    most_runs = 0
    for _ in range(1000):
        size = sizes(chance)
        landed += size
        runs.append((size, 1))
        newest = due_runs([size for size, _ in runs])
        if newest:
            merged = sum(size for size, _ in runs[-newest:])
            written += merged
            runs[-newest:] = [(merged, 1)]
        most_runs = max(most_runs, len(runs))
    assert sum(size for size, _ in runs) == landed
    assert written <= landed * np.log2(landed)
    assert most_runs <= FEWEST_RUNS + np.log2(landed)
