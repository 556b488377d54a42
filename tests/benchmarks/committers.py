"""Many processes that commit to one table of records at once: tries and seconds of a commit, and rows that are lost.

`python -m tests.benchmarks.committers [--committers N] [--commits M]` does it twice: with the waits of
`storage.delta.commits`, and without any wait between tries. A try opens the newest version and writes the next one.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import tempfile
import time
from pathlib import Path

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake

from spark_jobs.storage.delta import commits
from spark_jobs.storage.delta.places import TableHandle

ROWS = pa.table({"n": pa.array([1], pa.int64())})


def main() -> None:
    """Print a line for each way of waiting."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--committers", type=int, default=64)
    parser.add_argument("--commits", type=int, default=5)
    options = parser.parse_args()
    for waits in (True, False):
        with tempfile.TemporaryDirectory() as folder:
            write_deltalake(folder, ROWS.slice(0, 0))
            print(measure(Path(folder), options.committers, options.commits, waits=waits))


def measure(folder: Path, committers: int, of_each: int, *, waits: bool) -> str:
    """The tries and seconds of a commit, in words."""
    spawning = multiprocessing.get_context("spawn")
    begin = spawning.Barrier(committers)
    results: multiprocessing.Queue[list[tuple[int, float]]] = spawning.Queue()
    processes = [
        spawning.Process(target=commit_often, args=(folder, of_each, waits, begin, results)) for _ in range(committers)
    ]
    for process in processes:
        process.start()
    measured = [one for _ in processes for one in results.get()]
    for process in processes:
        process.join()
    rows = DeltaTable(folder).to_pyarrow_table().num_rows
    tries, seconds = [tries for tries, _ in measured], [seconds for _, seconds in measured]
    return (
        f"{committers} committers, {of_each} commits each, {'waits' if waits else 'no waits'}:"
        f" tries a commit median {statistics.median(tries):.0f}, most {max(tries)};"
        f" seconds median {statistics.median(seconds):.2f}, most {max(seconds):.2f};"
        f" {committers * of_each - rows} rows lost or doubled"
    )


def commit_often(folder: Path, times: int, waits: bool, begin: object, results: object) -> None:
    """Commit a row so many times, and put the tries and seconds of each commit into `results`."""
    if not waits:
        commits.FIRST_WAIT_S = commits.LONGEST_WAIT_S = 0.0
    handle, measured = TableHandle(str(folder), {}), []
    begin.wait()  # type: ignore[attr-defined]
    for _ in range(times):
        begun, tries = time.monotonic(), 0

        def write(table: DeltaTable, properties: CommitProperties) -> None:
            nonlocal tries
            tries += 1
            write_deltalake(table, ROWS, mode="append", commit_properties=properties)

        commits.commit(handle, None, write)
        measured.append((tries, time.monotonic() - begun))
    results.put(measured)  # type: ignore[attr-defined]


if __name__ == "__main__":
    main()
