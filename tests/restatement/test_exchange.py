"""Work in this process and in the tasks of a Spark job comes to the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from operator import itemgetter

import numpy as np
import psutil
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from spark_jobs import distribution, memory
from spark_jobs import exchange as module
from spark_jobs.config import Settings
from spark_jobs.distribution import BYTES_A_TASK, cut_work, memory_conf
from spark_jobs.exchange import Block, Labelled, answers, exchange
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


MIB = 1 << 20


def is_done_here(spark: SparkSession, n_bytes: int) -> bool:
    """True if neither few nor many rows of so many bytes make a Spark job."""
    here = {cut_work(spark, n_rows, n_bytes, 1 << 19).here for n_rows in (10, 100_000_000)}
    assert len(here) == 1, "the number of rows decides nothing"
    return here.pop()


@pytest.mark.parametrize(
    ("master", "is_local"),
    [
        ("local[*,4]", True),
        ("local", True),
        ("local-cluster[2,1,1024]", False),
        ("spark://master:7077", False),
        ("k8s://https://api:443", False),
        ("yarn", False),
    ],
)
def test_a_local_master_shares_the_machine(master: str, is_local: bool) -> None:
    assert distribution.is_local_master(master) is is_local


@pytest.mark.spark
def test_bytes_and_the_master_decide_where_work_is_done(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    local, larger = spark.newSession(), spark.newSession()
    assert 1 << 30 <= distribution.LOCAL_MEMORY <= max(psutil.virtual_memory().total // 8, 1 << 30)
    monkeypatch.setattr(distribution, "LOCAL_MEMORY", 1 << 30)
    assert [is_done_here(local, n * MIB) for n in (256, 257)] == [True, False]
    assert memory_conf(None) == {}
    for name, value in memory_conf("512m").items():
        larger.conf.set(name, value)
    assert [is_done_here(larger, n * MIB) for n in (128, 129)] == [True, False]
    monkeypatch.setattr(distribution, "is_local", lambda _: False)
    assert [is_done_here(local, n * MIB) for n in (8, 9)] == [True, False]
    assert [is_done_here(larger, n * MIB) for n in (128, 129)] == [True, False]


@pytest.mark.spark
def test_the_cores_of_the_cluster_cut_work_and_not_those_of_the_client(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(distribution, "is_local", lambda _: False)
    monkeypatch.setattr(distribution, "cores_of", lambda _: 40)
    wide = [cut_work(spark, 1000, n * MIB, 1 << 19).tasks for n in (10, 100, 1000, 10_000)]
    assert wide == [3, 25, 40, 79], "4 MiB a task at least, 128 MiB at most"
    cut = cut_work(spark, 2_000_000, 1000 * MIB, 1 << 19)
    assert (cut.tasks, cut.rows_a_piece) == (40, 50_000)


@pytest.mark.spark
def test_spark_says_its_master_and_cores(spark: SparkSession) -> None:
    assert distribution.is_local(spark)
    assert distribution.cores_of(spark) == spark.sparkContext.defaultParallelism


@given(st.lists(st.integers(0, 50), max_size=40), st.integers(1, 5), st.sampled_from([0, 100, 1 << 20]))
def test_blocks_that_wait_on_the_disk_are_those_in_memory(numbers: list[int], n_tasks: int, memory: int) -> None:
    pieces = [(f"p{n % 3}", numbers[n:]) for n in range(0, len(numbers), 7)]

    def deal_out(piece: tuple[str, list[int]]) -> Iterator[Block]:
        label, values = piece
        for n in values:
            yield Block(n % n_tasks, label, pa.table({"n": [n], "text": ["x" * n]}))

    def add_up(task: int, blocks: Labelled) -> bytes:
        rows = sorted((label, *row.values()) for label, table in blocks for row in table.to_pylist())
        return json.dumps([task, rows]).encode()

    expected: dict[int, list[tuple[str, int, str]]] = {}
    for label, values in pieces:
        for n in values:
            expected.setdefault(n % n_tasks, []).append((label, n, "x" * n))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distribution, "LOCAL_MEMORY", memory)
        answered = [json.loads(answer) for answer in exchange(None, pieces, deal_out, n_tasks, add_up, here=True)]
    if n_tasks == 1:
        expected.setdefault(0, [])
    assert {task: [tuple(row) for row in rows] for task, rows in answered} == {
        task: sorted(rows) for task, rows in expected.items()
    }


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
    assert [cut_work(None, *rows, 1 << 19).tasks for rows in (narrow, (100, 800))] == [max(2, THREADS), 1]
    assert cut_work(None, *wide, 1 << 19).tasks == -(-wide[1] // BYTES_A_TASK) > 2
    assert cut_work(None, 100, 3 * BYTES_A_TASK, 1 << 19).tasks == 3


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
