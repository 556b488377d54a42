"""Work on Arrow tables: in threads of this process, or in the tasks of one Spark job that exchange blocks through
Spark's shuffle.

A block is some rows of one piece that are for one task. In a Spark job, the task that reads a block encodes it, and the
task that works on it decodes it. Spark moves whole blocks and never takes a row apart. Rows that fit into this process
are handled here, by the same functions. Kernels and Arrow release Python's lock, so threads run in parallel, and
no block is encoded, sent or sorted.
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
"""The number of rows up to which one thread handles them by itself."""
ROWS_HERE, BYTES_HERE = 1 << 22, 1 << 28
"""The most rows, and the most bytes of them in Parquet, that this process handles itself. More would need memory in
proportion."""
BYTES_A_TASK = 1 << 27
"""The approximate bytes of the rows dealt to one task. A task needs a few times as much memory to sort and write."""
BLOCK_ROWS, BLOCK_BYTES = 1 << 17, 32 << 20
"""The rows and the bytes at which a block is full. A smaller block is the rest of a task or a file."""

Piece = TypeVar("Piece")
_BLOCK = "task INT, label STRING, payload BINARY"
_ANSWER = "answer BINARY"


@dataclass(frozen=True)
class Block:
    """Some rows for a task; the label names the input of the task that they belong to."""

    task: int
    label: str
    rows: pa.Table


Deal = Callable[[Piece], Iterator[Block]]
"""A function from a piece to the blocks of its rows."""
Labelled = Iterator[tuple[str, pa.Table]]
Work = Callable[[int, Labelled], bytes]
"""A function from a task's number and its labelled rows, in any order, to the answer of the task."""


def is_for_here(n_rows: int, n_bytes: int) -> bool:
    """True if this process handles that many rows and bytes itself, without a Spark job. Wide rows have many bytes."""
    return n_rows <= ROWS_HERE and n_bytes <= BYTES_HERE


def tasks_for(n_rows: int, n_bytes: int, rows_a_task: int, bytes_a_task: int = BYTES_A_TASK) -> int:
    """The number of tasks for so many rows and bytes.

    Few rows make as few tasks as their bytes allow. More rows that are handled in this process make at least one task
    per thread.
    """
    tasks = max(-(-n_bytes // bytes_a_task), 1)
    if n_rows <= ROWS_ALONE:
        return tasks
    tasks = max(tasks, -(-n_rows // rows_a_task))
    return max(tasks, THREADS) if is_for_here(n_rows, n_bytes) else tasks


def answers(
    spark: SparkSession | None, pieces: Sequence[Piece], ask: Callable[[Piece], bytes], *, here: bool
) -> Iterator[bytes]:
    """The answers of `ask` for the pieces, in any order. If `here`, or without a session, threads of this process ask;
    else a Spark job."""
    if here or spark is None or not pieces:
        return in_threads(ask, pieces)
    numbered = spark.range(0, len(pieces), 1, len(pieces))
    answered = numbered.mapInArrow(partial(_ask, pieces=pieces, ask=ask), _ANSWER).toArrow()
    return iter(answered["answer"].to_pylist())


def _ask(
    batches: Iterable[pa.RecordBatch], *, pieces: Sequence[Piece], ask: Callable[[Piece], bytes]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for place in batch.column("id").to_pylist():
            yield _answer(ask(pieces[place]))


def exchange(
    spark: SparkSession | None, pieces: Sequence[Piece], deal: Deal[Piece], n_tasks: int, work: Work, *, here: bool
) -> list[bytes]:
    """The answers of `work` for all tasks that got blocks, in any order.

    Args:
        spark: the session that runs the job; None: this process does all of it.
        pieces: the inputs to deal out, each read by a task of its own.
        deal: returns the blocks of a piece.
        n_tasks: the number of tasks; they are numbered 0 .. n_tasks - 1.
        work: called once for each task that got blocks.
        here: True to do all in this process. The blocks of several tasks are then kept until their task has its turn.
    """
    if (here or spark is None) and n_tasks == 1:
        return [work(0, ((block.label, block.rows) for piece in pieces for block in deal(piece)))]
    if here or spark is None:
        dealt: dict[int, list[tuple[str, pa.Table]]] = {}
        for blocks_of_piece in in_threads(lambda piece: list(deal(piece)), pieces):
            for block in blocks_of_piece:
                dealt.setdefault(block.task, []).append((block.label, block.rows))
        return list(in_threads(lambda task: work(task, iter(dealt.pop(task))), sorted(dealt)))
    numbered = spark.range(0, len(pieces), 1, max(len(pieces), 1))
    blocks = numbered.mapInArrow(partial(_dealt, pieces=pieces, deal=deal), _BLOCK)
    together = blocks.repartitionById(n_tasks, "task").sortWithinPartitions("task")
    return together.mapInArrow(partial(_work_on_blocks, work=work), _ANSWER).toArrow()["answer"].to_pylist()


def _dealt(
    batches: Iterable[pa.RecordBatch], *, pieces: Sequence[Piece], deal: Deal[Piece]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for place in batch.column("id").to_pylist():
            yield from _gather(deal(pieces[place]))


def _gather(blocks: Iterator[Block]) -> Iterator[pa.RecordBatch]:
    """Record batches to send: the blocks of one task and label are gathered until they are large enough."""
    waiting: dict[tuple[int, str], list[pa.Table]] = {}
    for block in blocks:
        parts = waiting.setdefault((block.task, block.label), [])
        parts.append(block.rows)
        if are_enough(parts, BLOCK_ROWS, BLOCK_BYTES):
            yield _block_to_send(block.task, block.label, waiting.pop((block.task, block.label)))
    for (task, label), parts in waiting.items():
        yield _block_to_send(task, label, parts)


def are_enough(parts: Sequence[pa.Table | pa.RecordBatch], rows: int, n_bytes: int) -> bool:
    """True if the parts together have at least `rows` rows, or at least `n_bytes` bytes."""
    return sum(part.num_rows for part in parts) >= rows or sum(part.nbytes for part in parts) >= n_bytes


def _block_to_send(task: int, label: str, parts: list[pa.Table]) -> pa.RecordBatch:
    payload = encode(pa.concat_tables(parts).combine_chunks())
    columns = [pa.array([task], pa.int32()), pa.array([label]), pa.array([payload], pa.binary())]
    return pa.RecordBatch.from_arrays(columns, names=["task", "label", "payload"])


def _work_on_blocks(batches: Iterator[pa.RecordBatch], *, work: Work) -> Iterator[pa.RecordBatch]:
    blocks = _blocks(batches)
    ahead = next(blocks, None)

    def of_task(task: int) -> Labelled:
        nonlocal ahead
        while ahead is not None and ahead[0] == task:
            _, label, payload = ahead
            yield label, decode(payload)
            ahead = next(blocks, None)

    while ahead is not None:
        task = ahead[0]
        labelled = of_task(task)
        yield _answer(work(task, labelled))
        for _ in labelled:  # skip the blocks that `work` has not read
            pass


def _blocks(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, str, pa.Scalar]]:
    for batch in batches:
        yield from zip(
            batch.column("task").to_pylist(), batch.column("label").to_pylist(), batch.column("payload"), strict=True
        )


def _answer(answer: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([answer], pa.binary())], names=["answer"])


def encode(rows: pa.Table) -> bytes:
    """The rows as an uncompressed Arrow stream: Spark compresses the blocks that it shuffles."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return sink.getvalue().to_pybytes()


def decode(payload: pa.Scalar) -> pa.Table:
    """The rows of an Arrow stream."""
    return pa.ipc.open_stream(payload.as_buffer()).read_all()
