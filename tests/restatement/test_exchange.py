"""Work in this process and in the tasks of a Spark job comes to the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from operator import itemgetter

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from spark_jobs import exchange as module
from spark_jobs import memory
from spark_jobs.config import Settings
from spark_jobs.exchange import Block, Labelled, answers, exchange, is_for_here, tasks_for
from spark_jobs.failures import explain
from spark_jobs.threads import THREADS

TASKS = 3


def deal(piece: tuple[str, list[int]]) -> Iterator[Block]:
    label, numbers = piece
    table = pa.table({"n": pa.array(numbers, pa.int64())})
    for task in range(TASKS):
        own = table.filter(pa.array(np.array(numbers) % TASKS == task))
        if own.num_rows:
            yield Block(task, label, own)


def work(task: int, blocks: Labelled) -> bytes:
    sums: dict[str, int] = {}
    for label, table in blocks:
        assert all(n % TASKS == task for n in table["n"].to_pylist())
        sums[label] = sums.get(label, 0) + sum(table["n"].to_pylist())
    return json.dumps([task, sums], sort_keys=True).encode()


def first_block_alone(task: int, blocks: Labelled) -> bytes:
    next(blocks)
    return str(task).encode()


PIECES = [("odd", [1, 3, 5, 7]), ("even", [2, 4, 6, 8]), ("odd", [9, 11]), ("even", [])]
EXPECTED = [[0, {"even": 6, "odd": 12}], [1, {"even": 4, "odd": 8}], [2, {"even": 10, "odd": 16}]]


@pytest.mark.spark
@pytest.mark.parametrize("here", [True, False])
@pytest.mark.parametrize("block_rows", [1, 100])
def test_each_task_gets_all_of_its_blocks(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, here: bool, block_rows: int
) -> None:
    monkeypatch.setattr(module, "BLOCK_ROWS", block_rows)
    pieces = [piece for piece in PIECES if here or piece[1]]
    found = exchange(spark, pieces, deal, TASKS, work, here=here)
    assert sorted(map(json.loads, found)) == EXPECTED


def test_rows_are_dealt_by_their_bytes_where_they_are_wide() -> None:
    narrow, wide = (700_000, 8 * 700_000), (700_000, 1000 * 700_000)
    assert [is_for_here(*rows) for rows in (narrow, wide, (module.ROWS_HERE + 1, 1))] == [True, False, False]
    assert tasks_for(*narrow, 1 << 19) == max(2, THREADS)
    assert tasks_for(*wide, 1 << 19) == -(-wide[1] // module.BYTES_A_TASK) > 2
    assert [tasks_for(100, n, 1 << 19) for n in (800, 3 * module.BYTES_A_TASK)] == [1, 3]


def test_blocks_are_sent_once_they_have_enough_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK_BYTES", 100)
    wide = [Block(0, "", pa.table({"text": ["x" * 60]})) for _ in range(6)]
    sent = [*module._gather(iter(wide))]
    assert [module.decode(batch.column("payload")[0]).num_rows for batch in sent] == [2, 2, 2]


def without_room(task: int, blocks: Labelled) -> bytes:
    """Work that holds its blocks, on a machine that has no memory left."""
    passed = memory.with_room(blocks, itemgetter(1), left=lambda: 20, look_bytes=1)
    return b"".join(label.encode() for label, _ in passed)


@pytest.mark.spark
@pytest.mark.parametrize("here", [True, False])
def test_a_task_whose_rows_have_no_room_ends_by_name(spark: SparkSession, spark_settings: Settings, here: bool) -> None:
    with pytest.raises(Exception, match="memory_short: expected") as refused:
        exchange(spark, PIECES[:2], deal, TASKS, without_room, here=here)
    assert explain(refused.value, spark_settings).code == "memory_short"
    few = iter([("", pa.table({"n": [1]}))])
    assert [*memory.with_room(few, itemgetter(1))], "a few bytes are not worth a look"
    assert memory.bytes_left() > memory.LOOK_BYTES


@pytest.mark.spark
def test_work_that_leaves_blocks_over_does_not_disturb_the_next_task(spark: SparkSession) -> None:
    found = exchange(spark, [PIECES[0], PIECES[2], PIECES[1]], deal, TASKS, first_block_alone, here=False)
    assert sorted(found) == [b"0", b"1", b"2"]


@pytest.mark.spark
@pytest.mark.parametrize("here", [True, False])
def test_each_piece_is_asked_once(spark: SparkSession, here: bool) -> None:
    found = answers(spark, [3, 1, 2], lambda n: bytes([n]), here=here)
    assert sorted(found) == [b"\x01", b"\x02", b"\x03"]
