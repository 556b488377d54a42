"""What the trace costs on Spark, each figure beside its peer in one run.

    python tests/benchmarks/trace.py drain     [--rows 1000000] [--repeats 3]
    python tests/benchmarks/trace.py snapshot  [--days 1000] [--rows-per-day 1000] [--repeats 5]
    python tests/benchmarks/trace.py daily     [--late 300] [--early 10] [--rounds 2]
    python tests/benchmarks/trace.py rewriting [--appends 1024] [--plot FILE]

drain: a day of updates becomes a trace batch; beside it Spark's own sort and write of the same rows.
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
from spark_jobs.storage.descriptions.schema import Column, Table
from spark_jobs.storage.descriptions.tables import FILES, FRONTIERS, UPDATE, row_columns, updates
from spark_jobs.storage.lakes.frames import frame_of
from spark_jobs.storage.lakes.spark_lake import SparkLake
from spark_jobs.trace import Arrangement, MemoryJournal, StateChange
from spark_jobs.trace.delta_plane import DeltaPlane
from spark_jobs.trace.frontiers import SourceFrontiers, frontier_row
from spark_jobs.trace.source_plane import SourcePlane
from tests.benchmarks import trace_kernel
from tests.jobs.harness import SOURCE
from tests.trace.days import DAY_US, Days

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS_PER_DAY = 500
"""Rows of a day in the histories: few, so that what grows with history is not hidden behind them."""
WARM_UP, MEASURED = 4, 6
"""Days that a process of the daily figure runs unmeasured, and measured."""

DRAIN_BOUND, SNAPSHOT_BOUND, DAILY_BOUND = 1.5, 2.0, 1.2


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


def drain(spark: SparkSession, home: Path, n_rows: int, repeats: int) -> Figure:
    """A day's updates from an unsealed batch to a trace batch, against reading, sorting and writing them."""
    source, lake = source_in(home), SparkLake(spark)
    lake.catalog.ensure({"trace": ""}, [updates(source)])
    columns = row_columns(source)
    given = {
        "row_id": "id",
        "seq_no": "0L",
        "entity": "concat('meter-', pmod(xxhash64(id), 20000))",
        "event_time": "timestamp_micros(1704067200000000 + pmod(xxhash64(id, 1), 86400000000))",
        "delta_id": "concat('d', id)",
        "c_meter": "concat('meter-', pmod(xxhash64(id), 20000))",
        "c_load": "pmod(xxhash64(id, 2), 1000)",
        "c_heat": "id / 3D",
    }
    of_day = given["event_time"]
    given |= {"t_taken": of_day, "t_seen": of_day, "c_at": of_day, "c_seen": of_day}
    values = [f"CAST({given.get(c.name, 'NULL')} AS {c.type}) AS {c.name}" for c in columns]
    landed = spark.range(n_rows).selectExpr(*values, f"{of_day} AS time", "1L AS diff")
    plane = SourcePlane(lake, source)
    handle = plane.new_handle("U")
    plane.write(landed.selectExpr("*", f"'{handle}' AS batch"), n_rows=n_rows)
    batch = plane.stored([handle])[handle]

    def ours() -> None:
        target = plane.new_handle("T")
        rows = (
            lake.read(updates(source))
            .where(f"batch = '{batch.handle}'")
            .drop("token")
            # as a run places its rows: what is sealed into the trace's new batch, the rest where it waits
            .selectExpr("* EXCEPT (batch)", f"IF(time < '2025-01-01', '{target}', 'U{target}') AS batch")
        )
        plane.write(rows, consolidate=True, n_rows=n_rows)
        assert plane.stored([target])[target].n_updates == n_rows

    def peer() -> None:
        rows = lake.read(updates(source)).where(f"batch = '{batch.handle}'").drop("batch", "token")
        ordered = rows.repartition("entity").sortWithinPartitions("entity", "event_time", "row_id")
        ordered.write.format("delta").mode("append").save(str(home / "peer"))

    return in_turns(f"drain of {n_rows:,} updates", ours, peer, repeats, DRAIN_BOUND)


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
    lake = SparkLake(spark)
    data = (Column("key", "STRING", "Key."), Column("value", "BIGINT", "Value."))
    table = Table("trace", "bench_updates", "Updates.", (*UPDATE, *data), ("batch",), ("time",))
    lake.catalog.ensure({"trace": ""}, [table])
    state = as_compacted(n_days, rows_per_day)
    print(f"{n_days} day batches leave {len(state.trace)} live ones, levels {[b.level for b in state.trace]}")
    plane = DeltaPlane(lake, table)
    # times are days here; each row's batch follows from its day, and every time was forwarded to since
    cases = " ".join(f"WHEN day < {b.upper.time} THEN '{b.handle}'" for b in state.trace)
    ids = spark.range(n_days * rows_per_day).selectExpr(f"id DIV {rows_per_day} AS day", "id")
    rows = ids.selectExpr(
        "concat('key-', pmod(xxhash64(id), 50000)) AS key",
        "id AS value",
        f"timestamp_micros({n_days}) AS time",
        "1L AS diff",
        f"CASE {cases} END AS batch",
    )
    plane.write(rows)
    whole = Table("trace", "bench_whole", "The same rows in one file set.", (*UPDATE[1:], *data))
    lake.catalog.ensure({"trace": ""}, [whole])
    one_set = rows.select(*whole.column_names).repartition(1).sortWithinPartitions("key", "value")
    one_set.writeTo(whole.qualified).append()
    journal = MemoryJournal()
    # one more day, sealed and empty, makes the time that all were forwarded to readable
    journal.commit([StateChange("bench", ArrangementState(), state.advance_seal(n_days + 1))])
    arrangement: Arrangement[DataFrame] = Arrangement(plane, journal, collection="bench")

    def read_out(frame: DataFrame) -> None:
        frame.write.format("noop").mode("overwrite").save()

    def peer() -> None:
        summed = lake.read(whole).groupBy("key", "value").agg(F.sum("diff").alias("diff")).where("diff <> 0")
        read_out(summed.orderBy("key", "value"))

    assert arrangement.snapshot(n_days).count() == n_days * rows_per_day
    name = f"snapshot over {n_days:,} day batches"
    return in_turns(name, lambda: read_out(arrangement.snapshot(n_days)), peer, repeats, SNAPSHOT_BOUND)


def build(home: Path, n_days: int) -> None:
    """The trace of a source after `n_days` daily runs without retention: a batch, a file of frontiers and a file of
    the ledger for each day. Written at once; what later runs find is the same."""
    with session(home) as spark:
        days = Days(SparkLake(spark), source_in(home), home)
        lake, source = days.lake, days.source
        plane, handles = SourcePlane(lake, source), [f"T{day:010d}.0" for day in range(n_days)]
        given = {
            "row_id": f"id DIV {ROWS_PER_DAY} * 1000 + id % {ROWS_PER_DAY}",
            "seq_no": f"id DIV {ROWS_PER_DAY}",
            "entity": "concat('e', id % 5)",
            "event_time": f"timestamp_micros({days.start_us} + id DIV {ROWS_PER_DAY} * {DAY_US} + id % {ROWS_PER_DAY})",
        }
        columns = [f"CAST({given.get(c.name, 'NULL')} AS {c.type}) AS {c.name}" for c in row_columns(source)]
        batch = f"concat('T', lpad(CAST(id DIV {ROWS_PER_DAY} AS STRING), 10, '0'), '.0') AS batch"
        rows = spark.range(n_days * ROWS_PER_DAY).selectExpr(
            *columns, f"{given['event_time']} AS time", "1L AS diff", batch
        )
        plane.write(rows)
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
    if options.what in ("drain", "snapshot", "all"):
        with tempfile.TemporaryDirectory() as folder, session(Path(folder)) as spark:
            if options.what != "snapshot":
                figures.append(drain(spark, Path(folder), options.rows, options.repeats))
            if options.what != "drain":
                figures.append(snapshot(spark, Path(folder), options.days, options.rows_per_day, options.repeats))
    if options.what in ("daily", "all"):
        with tempfile.TemporaryDirectory() as folder:
            figures.append(daily(Path(folder), options.early, options.late, options.rounds))
    for figure in figures:
        print(figure.line())
    return 0 if met and all(figure.ratio <= figure.bound for figure in figures) else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["drain", "snapshot", "daily", "rewriting", "all", "build", "days"])
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
