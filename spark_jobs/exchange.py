"""Work on Arrow tables: in threads of this process, or in the tasks of one Spark job that exchange blocks through
Spark's shuffle.

A block is some rows of one piece that are for one task. Between tasks of a job it is encoded once where it is read and
decoded where it is worked on: Spark moves whole blocks, it never takes a row apart. What this process can hold is done
here, by the same functions: kernels and Arrow leave Python's lock alone, and nothing is encoded, sent or sorted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from spark_jobs.threads import THREADS, in_threads

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS_ALONE = 1 << 18
"""Rows of which one thread takes care."""
ROWS_HERE, BYTES_HERE = 1 << 22, 1 << 28
"""Rows, and their bytes as Parquet has them, that this process goes through itself; beyond either, memory would grow
with them."""
BYTES_A_TASK = 1 << 27
"""Bytes of the rows that are dealt to one task, about: it holds a few times as much while it sorts and writes them."""
BLOCK_ROWS, BLOCK_BYTES = 1 << 17, 32 << 20
"""Rows and bytes of a block, if there are so many for one task, or in one file that lands."""

Piece = TypeVar("Piece")
_BLOCK = "task INT, label STRING, payload BINARY"
_ANSWER = "answer BINARY"


@dataclass(frozen=True)
class Block:
    """Rows for a task; the label says which of its inputs they are."""

    task: int
    label: str
    rows: pa.Table


Deal = Callable[[Piece], Iterator[Block]]
"""From a piece to the blocks that its rows make."""
Labelled = Iterator[tuple[str, pa.Table]]
Work = Callable[[int, Labelled], bytes]
"""What becomes of a task's blocks, which come in any order."""


def is_for_here(n_rows: int, n_bytes: int) -> bool:
    """Whether this process goes through so many rows itself. Their bytes decide too: rows may be wide."""
    return n_rows <= ROWS_HERE and n_bytes <= BYTES_HERE


def tasks_for(n_rows: int, n_bytes: int, rows_a_task: int, bytes_a_task: int = BYTES_A_TASK) -> int:
    """Among how many tasks so many rows are dealt: one has to do with few rows, every thread with more."""
    tasks = max(-(-n_bytes // bytes_a_task), 1)
    if n_rows <= ROWS_ALONE:
        return tasks
    tasks = max(tasks, -(-n_rows // rows_a_task))
    return max(tasks, THREADS) if is_for_here(n_rows, n_bytes) else tasks


def answers(
    spark: SparkSession, pieces: Sequence[Piece], ask: Callable[[Piece], bytes], *, here: bool
) -> Iterator[bytes]:
    """What `ask` says of each piece, in some order; `here`: asked in threads of this process."""
    if here or not pieces:
        return in_threads(ask, pieces)
    numbered = spark.range(0, len(pieces), 1, len(pieces))
    answered = numbered.mapInArrow(partial(_asked, pieces=pieces, ask=ask), _ANSWER).toArrow()
    return iter(answered["answer"].to_pylist())


def _asked(
    batches: Iterable[pa.RecordBatch], *, pieces: Sequence[Piece], ask: Callable[[Piece], bytes]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for place in batch.column("id").to_pylist():
            yield _answer(ask(pieces[place]))


def exchange(
    spark: SparkSession, pieces: Sequence[Piece], deal: Deal[Piece], n_tasks: int, work: Work, *, here: bool
) -> list[bytes]:
    """What `work` says of each task that got blocks, in some order.

    Args:
        spark: the session whose job it is.
        pieces: what is dealt out, each by a task of its own.
        deal: the blocks of a piece.
        n_tasks: tasks are numbered 0 .. n_tasks - 1.
        work: called once for each task.
        here: all in this process; the blocks of several tasks are then kept until their task has its turn.
    """
    if here and n_tasks == 1:
        return [work(0, ((block.label, block.rows) for piece in pieces for block in deal(piece)))]
    if here:
        dealt: dict[int, list[tuple[str, pa.Table]]] = {}
        for blocks_of_piece in in_threads(lambda piece: list(deal(piece)), pieces):
            for block in blocks_of_piece:
                dealt.setdefault(block.task, []).append((block.label, block.rows))
        return list(in_threads(lambda task: work(task, iter(dealt.pop(task))), sorted(dealt)))
    numbered = spark.range(0, len(pieces), 1, max(len(pieces), 1))
    blocks = numbered.mapInArrow(partial(_dealt, pieces=pieces, deal=deal), _BLOCK)
    together = blocks.repartitionById(n_tasks, "task").sortWithinPartitions("task")
    return together.mapInArrow(partial(_worked, work=work), _ANSWER).toArrow()["answer"].to_pylist()


def _dealt(
    batches: Iterable[pa.RecordBatch], *, pieces: Sequence[Piece], deal: Deal[Piece]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for place in batch.column("id").to_pylist():
            yield from _gathered(deal(pieces[place]))


def _gathered(blocks: Iterator[Block]) -> Iterator[pa.RecordBatch]:
    """Blocks of one task and label together, until they are large enough to be sent."""
    waiting: dict[tuple[int, str], list[pa.Table]] = {}
    for block in blocks:
        parts = waiting.setdefault((block.task, block.label), [])
        parts.append(block.rows)
        if are_enough(parts, BLOCK_ROWS, BLOCK_BYTES):
            yield _sent(block.task, block.label, waiting.pop((block.task, block.label)))
    for (task, label), parts in waiting.items():
        yield _sent(task, label, parts)


def are_enough(parts: Sequence[pa.Table | pa.RecordBatch], rows: int, n_bytes: int) -> bool:
    """Whether parts have so many rows, or so many bytes, together."""
    return sum(part.num_rows for part in parts) >= rows or sum(part.nbytes for part in parts) >= n_bytes


def _sent(task: int, label: str, parts: list[pa.Table]) -> pa.RecordBatch:
    payload = encoded(pa.concat_tables(parts).combine_chunks())
    columns = [pa.array([task], pa.int32()), pa.array([label]), pa.array([payload], pa.binary())]
    return pa.RecordBatch.from_arrays(columns, names=["task", "label", "payload"])


def _worked(batches: Iterator[pa.RecordBatch], *, work: Work) -> Iterator[pa.RecordBatch]:
    blocks = _blocks(batches)
    ahead = next(blocks, None)

    def of_task(task: int) -> Labelled:
        nonlocal ahead
        while ahead is not None and ahead[0] == task:
            _, label, payload = ahead
            yield label, decoded(payload)
            ahead = next(blocks, None)

    while ahead is not None:
        task = ahead[0]
        labelled = of_task(task)
        yield _answer(work(task, labelled))
        for _ in labelled:  # what the work left over
            pass


def _blocks(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, str, pa.Scalar]]:
    for batch in batches:
        yield from zip(
            batch.column("task").to_pylist(), batch.column("label").to_pylist(), batch.column("payload"), strict=True
        )


def _answer(answer: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([answer], pa.binary())], names=["answer"])


def encoded(rows: pa.Table) -> bytes:
    """Rows as an Arrow stream; Spark compresses what it shuffles."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return sink.getvalue().to_pybytes()


def decoded(payload: pa.Scalar) -> pa.Table:
    """The rows of an Arrow stream."""
    return pa.ipc.open_stream(payload.as_buffer()).read_all()
