"""What the trace costs on Spark, each figure beside its peer in one run.

    python tests/benchmarks/trace.py seal      [--rows 1000000] [--repeats 3]
    python tests/benchmarks/trace.py snapshot  [--days 1000] [--rows-per-day 1000] [--repeats 5]
    python tests/benchmarks/trace.py daily     [--late 300] [--early 10] [--rounds 2]
    python tests/benchmarks/trace.py rewriting [--appends 1024] [--plot FILE]

seal: the landed rows of a day become a trace batch; beside it Spark's own read, sort and write of the same rows.
snapshot: a definite read over so many day batches as compaction leaves them; beside it the same query on one table that
    holds the same rows in one file set.
daily: what a run pays for the trace on a late day of a source without retention, in a lake whose history has as many
    files, batches and frontiers as that many daily runs leave; beside it an early day.
rewriting: bytes rewritten over N appends and the state machine's rate, as `trace_kernel.py`; no Spark.
Exit code 1 if a figure misses its bound.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as F  # noqa: N812

# run by path from anywhere: the repository lies two directories above this file's
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from spark_jobs.config import Settings
from spark_jobs.engine.arrangement import ArrangementState, CompactionResponse, StoredBatch, merged_batch
from spark_jobs.model import Frontier
from spark_jobs.restatement.touched import Scope
from spark_jobs.session import open_session
from spark_jobs.sources import Source, load_source
from spark_jobs.storage.coordination import publication
from spark_jobs.storage.descriptions.schema import Table
from spark_jobs.storage.descriptions.tables import FILES, FRONTIERS, updates
from spark_jobs.storage.lakes.frames import frame_of
from spark_jobs.storage.lakes.spark_lake import SparkLake
from spark_jobs.trace import Arrangement, MemoryJournal, StateChange
from spark_jobs.trace.frontiers import SourceFrontiers, frontier_row
from spark_jobs.trace.source_plane import ORDER, SourcePlane
from tests.benchmarks import trace_kernel
from tests.jobs.harness import SOURCE
from tests.trace.days import DAY_US, Days, Landed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS_PER_DAY = 500
"""Rows of a day in the histories: few, so that what grows with history is not hidden behind them."""
WARM_UP, MEASURED = 4, 6
"""Days that a process of the daily figure runs unmeasured, and measured."""

SEAL_BOUND, SNAPSHOT_BOUND, DAILY_BOUND = 1.5, 2.0, 1.2


@dataclass(frozen=True)
class Figure:
    """A measured figure and its peer, in seconds: medians of runs that took turns."""

    name: str
    ours: float
    peer: float
    bound: float

    @property
    def ratio(self) -> float:
        """Ours over the peer's."""
        return self.ours / self.peer

    def line(self) -> str:
        """One line for people."""
        return f"{self.name}: {self.ours:.2f} s, peer {self.peer:.2f} s, ratio {self.ratio:.2f} (bound: {self.bound})"


def timed(work: Callable[[], object]) -> float:
    """Seconds that `work` took."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def in_turns(name: str, ours: Callable[[], object], peer: Callable[[], object], repeats: int, bound: float) -> Figure:
    """Run both in turns, once unmeasured first; medians."""
    runs = [(timed(ours), timed(peer)) for _ in range(repeats + 1)][1:]
    ours_s, peers_s = (statistics.median(side) for side in zip(*runs, strict=True))
    return Figure(name, ours_s, peers_s, bound)


@contextmanager
def session(home: Path) -> Iterator[SparkSession]:
    """A classic session as a deployment on two cores has it."""
    given: dict[str, Any] = {"spark": "classic", "master": "local[2]", "heap": "3g", "shuffle_partitions": 2}
    spark = open_session(Settings(home=home, **given), "tidemark-benchmark")
    # as a run's stages set it
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    try:
        yield spark
    finally:
        spark.stop()


def source_in(home: Path, name: str = "meters") -> Source:
    """The tests' small source."""
    home.mkdir(parents=True, exist_ok=True)
    file = home / f"{name}.yml"
    file.write_text(SOURCE.replace("source: meters", f"source: {name}"))
    return load_source(file)


def seal(spark: SparkSession, home: Path, n_rows: int, repeats: int) -> Figure:
    """The landed rows of a day become a trace batch, against sorting and writing the same rows with Spark."""
    days = Days(SparkLake(spark), source_in(home), home)
    rng = np.random.default_rng(0)
    times = pa.array(days.start_us + rng.integers(0, DAY_US, n_rows)).cast(pa.timestamp("us", "UTC"))
    given = {
        "row_id": pa.array(np.arange(n_rows)),
        "seq_no": pa.array(np.zeros(n_rows, np.int64)),
        "entity": pa.array([f"meter-{n}" for n in rng.integers(0, 20_000, n_rows)]),
        "delta_id": pa.array([f"d{n}" for n in range(n_rows)]),
        "c_load": pa.array(rng.integers(0, 1000, n_rows)),
        "c_heat": pa.array(np.arange(n_rows) / 3),
        "diff": pa.array(np.ones(n_rows, np.int64)),
        **dict.fromkeys(("event_time", "t_taken", "t_seen", "c_at", "c_seen"), times),
    }
    schema = days.rows(0, []).table.schema
    columns = [given[f.name].cast(f.type) if f.name in given else pa.nulls(n_rows, f.type) for f in schema]
    landed = Landed(pa.table(columns, schema))
    pq.write_table(landed.table, home / "landed.parquet")

    def ours() -> None:
        day = days.standing().landed[0][1] if days.standing().landed else 0
        days.advance(range(day, day + 1), landed)
        assert days.standing().arrangement.trace[-1].n_updates == n_rows

    def peer() -> None:
        rows = spark.read.parquet(str(home / "landed.parquet"))
        ordered = rows.repartition("entity").sortWithinPartitions(*ORDER)
        ordered.write.format("delta").mode("append").save(str(home / "peer"))

    return in_turns(f"seal of {n_rows:,} updates", ours, peer, repeats, SEAL_BOUND)


def as_compacted(n_days: int, rows_per_day: int) -> ArrangementState:
    """The state after so many day batches of one size, drained and compacted one by one; handles name no data yet."""
    state = ArrangementState()
    for day in range(n_days):
        state = state.advance_seal(day + 1)
        request = state.drain_request()
        assert request is not None
        drained = state.install_drain(request, StoredBatch(f"t{day}", rows_per_day, rows_per_day, day, day))
        assert drained is not None
        state = drained.allow_compaction(Frontier.at(day + 1))
        while (merge := state.compaction_request()) is not None:
            n = merge.earlier.n_updates + merge.later.n_updates
            stored = StoredBatch(f"{merge.later.handle}+", n, n, day + 1, day + 1)
            installed = state.install_merge(CompactionResponse(merge, merged_batch(merge, stored)))
            assert installed is not None
            state = installed
    return state


def snapshot(spark: SparkSession, home: Path, n_days: int, rows_per_day: int, repeats: int) -> Figure:
    """A definite read over the batches that compaction leaves of `n_days`, against one file set with the same rows."""
    days = Days(SparkLake(spark), source_in(home), home)
    lake, source, table = days.lake, days.source, updates(days.source)
    state = as_compacted(n_days, rows_per_day)
    print(f"{n_days} day batches leave {len(state.trace)} live ones, levels {[b.level for b in state.trace]}")
    # times are days here; each row's batch follows from its day, and every time was forwarded to since
    cases = " ".join(f"WHEN id DIV {rows_per_day} < {b.upper.time} THEN '{b.handle}'" for b in state.trace)
    rows = update_rows(days, n_days, rows_per_day, time=f"timestamp_micros({n_days})", batch=f"CASE {cases} END")
    lake.append(table, rows, None)
    whole = Table("trace", "bench_whole", "The same rows in one file set.", table.columns)
    lake.catalog.ensure({"trace": ""}, [whole])
    rows.repartition(1).sortWithinPartitions(*ORDER).writeTo(whole.qualified).append()
    journal = MemoryJournal()
    # one more day, sealed and empty, makes the time that all were forwarded to readable
    journal.commit([StateChange("bench", ArrangementState(), state.advance_seal(n_days + 1))])
    arrangement = Arrangement(SourcePlane(lake, source), journal, collection="bench")

    def peer() -> None:
        key = [*ORDER, "seq_no"]
        summed = lake.read(whole).groupBy(*key).agg(F.sum("diff").alias("diff")).where("diff <> 0")
        summed.orderBy(*key).toArrow()

    assert arrangement.snapshot(n_days).num_rows == n_days * rows_per_day
    name = f"snapshot over {n_days:,} day batches"
    return in_turns(name, lambda: arrangement.snapshot(n_days), peer, repeats, SNAPSHOT_BOUND)


def update_rows(days: Days, n_days: int, rows_per_day: int, *, time: str, batch: str) -> DataFrame:
    """Updates of so many days, all with the diff +1. `time` and `batch` are SQL over `id`, the number of the update."""
    day, number = f"id DIV {rows_per_day}", f"id % {rows_per_day}"
    given = {
        "row_id": f"{day} * {max(1000, rows_per_day)} + {number}",
        "seq_no": day,
        "entity": "concat('e', id % 5)",
        "event_time": f"timestamp_micros({days.start_us} + {day} * {DAY_US} + {number})",
        "time": time,
        "diff": "1L",
        "batch": batch,
    }
    columns = [f"CAST({given.get(c.name, 'NULL')} AS {c.type}) AS {c.name}" for c in updates(days.source).columns]
    return days.lake.spark.range(n_days * rows_per_day).selectExpr(*columns)


def build(home: Path, n_days: int) -> None:
    """The trace of a source after `n_days` daily runs without retention: a batch, a file of frontiers and a file of
    the ledger for each day. Written at once; what later runs find is the same."""
    with session(home) as spark:
        days = Days(SparkLake(spark), source_in(home), home)
        lake, source = days.lake, days.source
        plane, handles = SourcePlane(lake, source), [f"T{day:010d}.0" for day in range(n_days)]
        batch = f"concat('T', lpad(CAST(id DIV {ROWS_PER_DAY} AS STRING), 10, '0'), '.0')"
        time = f"timestamp_micros({days.start_us} + id DIV {ROWS_PER_DAY} * {DAY_US} + id % {ROWS_PER_DAY})"
        lake.append(updates(source), update_rows(days, n_days, ROWS_PER_DAY, time=time, batch=batch), None)
        stored = plane.stored(handles)
        standing, frontier_rows, ledger = SourceFrontiers.start(source), [], []
        for day, handle in enumerate(handles):
            state = standing.arrangement.advance_seal(source.drops.interval(day)[1])
            request = state.drain_request()
            assert request is not None
            drained = state.install_drain(request, stored[handle])
            assert drained is not None
            landed = standing.replace_arrangement(drained, day).with_landed(range(day, day + 1))
            standing = replace(landed, reached_us=landed.seal_us)
            frontier_rows.append(frontier_row(source.name, day + 1, "built", standing))
            ledger.append({"source": source.name, "landing": day + 1, "rows": ROWS_PER_DAY})
        for table, made in ((FRONTIERS, frontier_rows), (FILES, ledger)):
            lake.append(table, frame_of(lake.spark, table, made).repartition(n_days), None)
        lease: dict[str, Any] = {"token": n_days, "run_id": None, "pid": 0, "staged": {}, "verdicts": []}
        (home / "leases").mkdir(exist_ok=True)
        (home / "leases" / f"{source.name}.lease").write_text(json.dumps(lease))
        days.publish()


def run_days(home: Path, n_days: int) -> list[float]:
    """Go on for some days with the source in `home`; returns what each took."""
    with session(home) as spark:
        days = Days(SparkLake(spark), source_in(home), home)
        first = days.standing().landed[0][1]
        return [timed(partial(_one_day, days, day)) for day in range(first, first + n_days)]


def _one_day(days: Days, day: int) -> None:
    """A run's part in the trace: load the frontiers, advance, the gate, reading what is new, upkeep, publication."""
    added = [(day * 1000 + i, day * DAY_US + i * 80_000_000, 1) for i in range(ROWS_PER_DAY)]
    move = days.land(day, added)
    measured = days.measured(move, landed=len(added))
    assert measured["updates_added"] == len(added)
    current = publication.load(days.lake, days.source)
    scope = Scope(days.source, days.standing(), current)
    assert scope.touching_rows(days.lake, ["row_id"]).whole().num_rows == len(added)
    days.upkeep()
    days.publish()


def daily(home: Path, early: int, late: int, rounds: int) -> Figure:
    """Days after `late` ones against days after `early` ones, each history in a lake and a process of its own."""
    for name, until in (("early", early), ("late", late)):
        _child("build", home / name, until)
    took: dict[str, list[float]] = {"early": [], "late": []}
    for _ in range(rounds):
        for name in took:
            # the first days of a process pay for its start
            took[name] += _child("days", home / name, WARM_UP + MEASURED)[WARM_UP:]
    print({name: [round(t, 2) for t in times] for name, times in took.items()})
    ours, peer = statistics.median(took["late"]), statistics.median(took["early"])
    return Figure(f"a run's trace on day {late}, beside day {early}", ours, peer, DAILY_BOUND)


def _child(what: str, home: Path, n: int) -> list[float]:
    command = [sys.executable, __file__, what, "--home", str(home), "--n", str(n)]
    answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    taken: list[float] = json.loads(answer.splitlines()[-1])
    return taken


def rewriting(appends: int, plot: Path | None) -> bool:
    """The tables of `trace_kernel.py`; whether its figures are met."""
    sys.argv = ["trace_kernel.py", "--appends", str(appends), *(["--plot", str(plot)] if plot else [])]
    return trace_kernel.main() == 0


def main() -> int:
    """Run what is asked for, or everything but the daily figure; returns the exit code."""
    options = _options()
    if options.what == "build":
        build(options.home, options.n)
        print("[]")
        return 0
    if options.what == "days":
        print(json.dumps(run_days(options.home, options.n)))
        return 0
    met = True
    figures: list[Figure] = []
    if options.what in ("rewriting", "all"):
        met = rewriting(options.appends, options.plot)
    if options.what in ("seal", "snapshot", "all"):
        with tempfile.TemporaryDirectory() as folder, session(Path(folder)) as spark:
            if options.what != "snapshot":
                figures.append(seal(spark, Path(folder), options.rows, options.repeats))
            if options.what != "seal":
                figures.append(snapshot(spark, Path(folder), options.days, options.rows_per_day, options.repeats))
    if options.what in ("daily", "all"):
        with tempfile.TemporaryDirectory() as folder:
            figures.append(daily(Path(folder), options.early, options.late, options.rounds))
    for figure in figures:
        print(figure.line())
    return 0 if met and all(figure.ratio <= figure.bound for figure in figures) else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["seal", "snapshot", "daily", "rewriting", "all", "build", "days"])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--days", type=int, default=1_000)
    parser.add_argument("--rows-per-day", type=int, default=1_000)
    parser.add_argument("--early", type=int, default=10)
    parser.add_argument("--late", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--home", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--n", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--appends", type=int, default=1_024)
    parser.add_argument("--plot", type=Path, help="write the figure of bytes rewritten to this file")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
