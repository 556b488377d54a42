"""Work on Arrow tables: in threads of this process, or in the tasks of one Spark job that exchange blocks through
Spark's shuffle. `distribution` decides which.

A block is some rows of one piece that are for one task. In a Spark job, the task that reads a block encodes it, and the
task that works on it decodes it. Spark moves whole blocks and never takes a row apart. Rows that fit into this process
are handled here, by the same functions. Kernels and Arrow release Python's lock, so threads run in parallel, and
no block is encoded, sent or sorted. Without Spark, blocks beyond the memory of the process wait on the disk.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from spark_jobs.distribution import tasks_at_once, waiting_bytes
from spark_jobs.threads import in_threads

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
        here: True to do all in this process. The blocks of several tasks wait until their task has its turn; those that
            would take more memory than `distribution.process_memory` allows wait on the disk.
    """
    if here or spark is None:
        return _exchange_here(spark, pieces, deal, n_tasks, work)
    numbered = spark.range(0, len(pieces), 1, max(len(pieces), 1))
    blocks = numbered.mapInArrow(partial(_dealt, pieces=pieces, deal=deal), _BLOCK)
    together = blocks.repartitionById(n_tasks, "task").sortWithinPartitions("task")
    return together.mapInArrow(partial(_work_on_blocks, work=work), _ANSWER).toArrow()["answer"].to_pylist()


def _exchange_here(
    spark: SparkSession | None, pieces: Sequence[Piece], deal: Deal[Piece], n_tasks: int, work: Work
) -> list[bytes]:
    if n_tasks == 1:
        return [work(0, ((block.label, block.rows) for piece in pieces for block in deal(piece)))]
    with _WaitingBlocks(waiting_bytes(spark)) as waiting:
        list(in_threads(lambda piece: waiting.add(deal(piece)), pieces))
        at_once = tasks_at_once(spark) if waiting.on_disk else None
        return list(in_threads(lambda task: work(task, waiting.take(task)), sorted(waiting.tasks), at_once))


class _WaitingBlocks:
    """The blocks that wait in this process for their task, in a file once they take more than `most_bytes`.

    Several threads may add blocks and take them. Close it, and the file goes.
    """

    def __init__(self, most_bytes: int) -> None:
        self.on_disk = False
        self.tasks: set[int] = set()
        self._most_bytes, self._n_bytes, self._end = most_bytes, 0, 0
        self._in_memory: dict[tuple[int, str], list[pa.Table]] = {}
        self._in_file: dict[int, list[tuple[str, int, int]]] = {}
        self._lock, self._closing = Lock(), ExitStack()

    def __enter__(self) -> _WaitingBlocks:
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    def add(self, blocks: Iterator[Block]) -> None:
        """Keep the blocks until they are taken."""
        for block in blocks:
            with self._lock:
                self.tasks.add(block.task)
                self._in_memory.setdefault((block.task, block.label), []).append(block.rows)
                self._n_bytes += block.rows.nbytes
                if self._n_bytes > self._most_bytes:
                    self._write()

    def take(self, task: int) -> Labelled:
        """Yield the labelled rows of a task, once."""
        for label, begin, length in self._in_file.pop(task, ()):
            yield label, pa.ipc.open_stream(pa.py_buffer(os.pread(self._file.fileno(), length, begin))).read_all()
        with self._lock:
            left = [(label, self._in_memory.pop((of, label))) for of, label in [*self._in_memory] if of == task]
        for label, parts in left:
            for rows in parts:
                yield label, rows

    def _write(self) -> None:
        """Write the blocks in memory to the file."""
        if not self.on_disk:
            local = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
            folder = local if local and Path(local).is_dir() else None
            self._file = self._closing.enter_context(tempfile.TemporaryFile(dir=folder))  # noqa: SIM115
            self.on_disk = True
        for (task, label), parts in self._in_memory.items():
            payload = encode(pa.concat_tables(parts))
            self._in_file.setdefault(task, []).append((label, self._end, len(payload)))
            self._end += self._file.write(payload)
        self._file.flush()
        self._in_memory, self._n_bytes = {}, 0


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
