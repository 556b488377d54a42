"""Memory of one task that sorts and writes its rows, as a multiple of their bytes: what `memory.TIMES` must cover.

    python tests/benchmarks/task_memory.py [--mib 512]

Each line is a process of its own, which takes in blocks of about 1 MiB as a task does, sorts them and writes Delta's
files. Its peak is the kernel's (`VmHWM`), less what the process held before the first block.
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable

from spark_jobs.memory import TIMES
from spark_jobs.restatement.windows import _Work
from spark_jobs.storage.delta.places import TableHandle
from spark_jobs.storage.delta.written_files import Destination
from spark_jobs.trace.placing import Placement

MIB = 1 << 20


def blocks(mib: int, text: int) -> Iterator[pa.Table]:
    """Random rows of about `mib` MiB in all, with a text of `text` bytes each."""
    chance = np.random.default_rng(1)
    n = MIB // (text + 90)
    for block in range(mib):
        letters = chance.integers(97, 123, n * text, np.uint8).tobytes()
        offsets = np.arange(n + 1, dtype=np.int32) * text
        start = pa.array(chance.integers(0, 1 << 40, n), pa.timestamp("us", "UTC"))
        yield pa.table(
            {
                "batch": pa.array(["b"] * n),
                "entity": pa.array([f"sensor-{i:06}" for i in chance.integers(0, 50_000, n)]),
                "event_time": start,
                "window_start": start,
                "time": start,
                "row_id": pa.array(np.arange(block * n, (block + 1) * n)),
                "diff": pa.array(np.ones(n, np.int64)),
                "below_horizon": pa.nulls(n, pa.int32()),
                "text": pa.StringArray.from_buffers(n, pa.py_buffer(offsets), pa.py_buffer(letters)),
                "token": pa.nulls(n, pa.int64()),
            }
        )


def proc_kib(name: str) -> int:
    status = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in status if line.startswith(name + ":")).split()[1])


def measure(way: str, mib: int, text: int, answer: Connection) -> None:
    schema = next(blocks(1, text)).schema
    with tempfile.TemporaryDirectory(prefix="task-memory-") as folder:
        DeltaTable.create(folder, schema, partition_by=["batch"])
        to = Destination(TableHandle(folder), schema, ("batch",))
        before = proc_kib("VmRSS")
        taken = 0

        def given() -> Iterator[pa.Table]:
            nonlocal taken
            for table in blocks(mib, text):
                taken += table.nbytes
                yield table

        if way == "trace":
            request = SimpleNamespace(door=SimpleNamespace(time=None), seal=1 << 50)
            order = ("entity", "event_time", "row_id")
            placement = Placement(None, request, ("b",), 0, None, order, False, 1, to)  # type: ignore[arg-type]
            new = ((0, t.append_column("is_new", pa.array(np.ones(t.num_rows, np.int64)))) for t in given())
            placement.write(0, new)  # type: ignore[arg-type]
        else:
            definition = SimpleNamespace(key=("entity",))
            work = SimpleNamespace(by_time=True, definition=definition, token=1)
            to.write(_Work._stamp(work, (t.drop_columns(["token"]) for t in given())))  # type: ignore[arg-type]
        answer.send((taken, proc_kib("VmHWM") * 1024 - before * 1024))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=512)
    options = parser.parse_args()
    print(f"what a task may take: {TIMES} times its rows' bytes")
    print("| table | text, bytes | rows, MiB | peak, MiB | times |\n| --- | ---: | ---: | ---: | ---: |")
    for way in ("trace", "windows"):
        for text in (16, 128, 1024):
            reading, writing = multiprocessing.Pipe(duplex=False)
            process = multiprocessing.get_context("spawn").Process(
                target=measure, args=(way, options.mib, text, writing)
            )
            process.start()
            taken, peak = reading.recv()
            process.join()
            print(f"| {way} | {text} | {taken // MIB} | {peak // MIB} | {peak / taken:.2f} |", flush=True)


if __name__ == "__main__":
    main()
