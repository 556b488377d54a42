"""Gold's figures side by side with their peers, Parquet to Parquet, on two cores.

    python tests/benchmarks/engine/checkpoints.py compact [--rows 10000000] [--entities 100000] [--repeat 2]
    python tests/benchmarks/engine/checkpoints.py join    [--rows 10000000] [--entities 100000] [--asked 1000000]
    python tests/benchmarks/engine/checkpoints.py state   [--rows 10000000] [--entities 100000]
    python tests/benchmarks/engine/checkpoints.py kernels [--rows 1000000] [--entities 10000]
    python tests/benchmarks/engine/checkpoints.py days    [--days 300] [--entities 5000] [--deltas-a-day 5000]

`compact`: sparse deltas of 8 of 128 dimensions folded into one state per entity; DuckDB computes the last value per
entity and dimension, and `applyInPandas` runs a Python loop per delta. The states are compared bit for bit, and what
they take on disk with the raw deltas. `join`: rows asked for the state at their time, against DuckDB's ASOF JOIN, over
deltas that state one component. `state`: what one entity's state of the past reads.
`kernels`: compaction, disk and join of the kernels alone, without a JVM, in processor time. `days`: see
`gold_days.py`. Each way runs once on a hundredth of the rows before it is timed; the best of `--repeat` counts.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from spark_jobs.engine.deltas import (
    LATEST,
    CompactionPolicy,
    DeltaColumns,
    Frontiers,
    FullMerge,
    Meaning,
    Segments,
    States,
    TieredMerge,
    changes_of,
    pack,
    restate_chains,
    states_for,
    unpack,
)
from spark_jobs.engine.deltas.pooling import PooledDeltas
from spark_jobs.engine.spark.checkpoints import (
    ChainFrame,
    columns_needed,
    compact_deltas,
    join_as_of,
    read_chains,
    together,
    write_chains,
)
from spark_jobs.engine.spark.checkpoints.frames import needed_for
from tests.benchmarks.engine.deltas import CHANGED, DIMS, as_arrow, sparse_deltas
from tests.benchmarks.engine.measuring import session
from tests.benchmarks.gold_days import days

SPARSE = Meaning(
    "operations", "float64", None, DIMS, DeltaColumns("entity", "event_time", "row_id", "op", "indices", "values")
)
ONE = Meaning("upsert", "float64", {"value": "value"})
LAST_VALUES = """COPY (SELECT entity, dimension, arg_max(value, (event_time, row_id)) AS value FROM (
  SELECT entity, event_time, row_id, unnest(indices) AS dimension, unnest("values") AS value
  FROM read_parquet('{source}/*.parquet')) GROUP BY entity, dimension) TO '{out}/0.parquet' (FORMAT parquet)"""
IN_MEMORY = """SELECT entity, dimension, arg_max(value, (event_time, row_id)) AS value FROM (
  SELECT entity, event_time, row_id, unnest(indices) AS dimension, unnest("values") AS value FROM deltas)
  GROUP BY entity, dimension"""
ASOF_IN_MEMORY = """SELECT q.*, d.value FROM asked q ASOF LEFT JOIN values_of d
  ON q.entity = d.entity AND q.at >= d.event_time"""
ASOF = """COPY (SELECT q.*, d.value FROM read_parquet('{asked}/*.parquet') q ASOF LEFT JOIN
  read_parquet('{source}/*.parquet') d ON q.entity = d.entity AND q.at >= d.event_time)
  TO '{out}/0.parquet' (FORMAT parquet)"""


def write_sparse(folder: Path, rows: int, entities: int) -> Path:
    """Deltas in order of arrival, in eight files."""
    batch = sparse_deltas(rows, entities)
    names = pa.array([f"e{i:07d}" for i in range(entities)])
    offsets = pa.array(batch.offsets, pa.int32())
    table = pa.table(
        {
            "entity": names.take(pa.array(batch.entity)),
            "event_time": batch.event_time,
            "time": batch.event_time,
            "row_id": batch.row_id,
            "diff": np.ones(rows, np.int64),
            "op": pa.DictionaryArray.from_arrays(np.zeros(rows, np.int8), ["sparse"]).cast(pa.string()),
            "indices": pa.ListArray.from_arrays(offsets, pa.array(batch.indices)),
            "values": pa.ListArray.from_arrays(offsets, pa.array(batch.values)),
        }
    )
    return _write(table, folder / f"sparse-{rows}")


def write_values(folder: Path, rows: int, entities: int, asked: int) -> tuple[Path, Path]:
    """Deltas of one component, and questions, in files."""
    deltas, questions = value_tables(rows, entities, asked)
    return _write(deltas, folder / f"values-{rows}"), _write(questions, folder / f"asked-{asked}")


def value_tables(rows: int, entities: int, asked: int) -> tuple[pa.Table, pa.Table]:
    """Deltas of one component a second apart, and questions at any of their times."""
    chance = np.random.default_rng(3)
    names = pa.array([f"e{i:07d}" for i in range(entities)])
    times = np.arange(rows, dtype=np.int64) * 1_000_000
    deltas = pa.table(
        {
            "entity": names.take(pa.array(chance.integers(0, entities, rows))), "event_time": times, "time": times,
            "row_id": np.arange(rows), "diff": np.ones(rows, np.int64), "value": chance.normal(size=rows),
        }
    )  # fmt: skip
    questions = pa.table(
        {
            "n": np.arange(asked), "entity": names.take(pa.array(chance.integers(0, entities, asked))),
            "at": chance.integers(0, rows * 1_000_000, asked),
        }
    )  # fmt: skip
    return deltas, questions


def _write(table: pa.Table, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for part in range(8):
        begin, end = table.num_rows * part // 8, table.num_rows * (part + 1) // 8
        pq.write_table(table.slice(begin, end - begin), folder / f"{part}.parquet", compression="zstd")
    return folder


def best(way: Callable[[Path], object], out: Path, repeat: int) -> float:
    """Least seconds of several runs into an empty folder; the last result stays."""
    found = float("inf")
    for _ in range(repeat):
        shutil.rmtree(out, ignore_errors=True)
        begun = time.perf_counter()
        way(out)
        found = min(found, time.perf_counter() - begun)
    return found


def size(folder: Path) -> int:
    """Bytes of a folder's Parquet files."""
    return sum(file.stat().st_size for file in folder.glob("*.parquet"))


def duck(query: str, out: Path, **places: object) -> None:
    out.mkdir(parents=True)
    with duckdb.connect(config={"threads": 2}) as connection:
        connection.execute(query.format(out=out, **places))


def chains(spark: SparkSession, source: Path, meaning: Meaning, policy: CompactionPolicy, *, drop: bool) -> ChainFrame:
    deltas = spark.read.parquet(str(source))
    return compact_deltas(deltas, meaning, policy, since=LATEST if drop else None, horizon=LATEST if drop else None)


def python_loop(spark: SparkSession, source: Path, out: Path) -> None:
    """What people write without an engine: each entity's deltas applied one after the other in Python."""
    import pandas as pd

    def folded(rows: Any) -> Any:
        vector = [None] * DIMS
        for indices, values in rows.sort_values(["event_time", "row_id"])[["indices", "values"]].itertuples(
            index=False
        ):
            for index, value in zip(indices, values, strict=True):
                vector[index] = value
        return pd.DataFrame({"entity": [rows.entity.iloc[0]], "vector": [vector]})

    deltas = spark.read.parquet(str(source)).select("entity", "event_time", "row_id", "indices", "values")
    applied = deltas.groupBy("entity").applyInPandas(folded, "entity STRING, vector ARRAY<DOUBLE>")
    applied.write.option("compression", "zstd").parquet(str(out))


def _drained(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield pa.record_batch({"rows": [sum(batch.num_rows for batch in batches)]})


def told_parts(rows: DataFrame) -> None:
    """Where the time goes before a kernel sees a row: each part holds those before it."""
    brought = together(rows)
    parts = {
        "scan": rows,
        "shuffle and sort": brought,
        "Arrow to the workers": brought.mapInArrow(_drained, "rows LONG"),
    }
    for name, part in parts.items():
        begun = time.perf_counter()
        part.write.format("noop").mode("overwrite").save()
        print(f"  up to {name}: {time.perf_counter() - begun:.2f} s")


def compact(spark: SparkSession, folder: Path, options: argparse.Namespace) -> None:
    source = write_sparse(folder, options.rows, options.entities)
    small = write_sparse(folder, max(options.rows // 100, 100), max(options.entities // 100, 1))

    def ours(of: Path) -> Callable[[Path], None]:
        def way(out: Path) -> None:
            done = chains(spark, of, SPARSE, CompactionPolicy(FullMerge(), delta_threshold=1), drop=True)
            done.segments.write.option("compression", "zstd").parquet(str(out))

        return way

    best(ours(small), folder / "warm", 1)
    tidemark = best(ours(source), folder / "ours", options.repeat)
    peer = best(lambda out: duck(LAST_VALUES, out, source=source), folder / "duck", options.repeat)
    with duckdb.connect() as connection:
        wrong = connection.execute(f"""SELECT count(*) FROM read_parquet('{folder}/duck/*.parquet') d
            JOIN read_parquet('{folder}/ours/*.parquet') o USING (entity)
            WHERE o.vector[d.dimension + 1] IS DISTINCT FROM d.value""").fetchone()
        cells = connection.execute(f"SELECT count(*) FROM read_parquet('{folder}/duck/*.parquet')").fetchone()
        told = connection.execute(
            f"SELECT sum(len(list_filter(seen, lambda x: x))) FROM read_parquet('{folder}/ours/*.parquet')"
        ).fetchone()
    assert wrong == (0,), f"{wrong} cells differ"
    assert cells == told, f"{cells} cells, {told} of ours"
    best(lambda out: python_loop(spark, small, out), folder / "warm", 1)
    loop = best(lambda out: python_loop(spark, source, out), folder / "loop", 1)
    raw, kept = size(source), size(folder / "ours")
    print(f"{options.rows:,} deltas of {CHANGED} of {DIMS} dimensions, {options.entities:,} entities")
    print(f"tidemark {tidemark:7.2f} s\nduckdb   {peer:7.2f} s   tidemark takes {tidemark / peer:.2f} of it")
    print(f"loop     {loop:7.2f} s   tidemark is {loop / tidemark:.1f} times as fast")
    told_parts(spark.read.parquet(str(source)))
    print(f"disk: raw {raw / 1e6:.1f} MB, compacted {kept / 1e6:.1f} MB: {kept / raw:.2f}")


def join(spark: SparkSession, folder: Path, options: argparse.Namespace) -> None:
    source, asked = write_values(folder, options.rows, options.entities, options.asked)
    policy = CompactionPolicy(TieredMerge(options.keep_recent), delta_threshold=options.keep_recent)
    packed = folder / "packed"
    write_chains(spark, chains(spark, source, ONE, policy, drop=False), str(packed))

    def ours(out: Path) -> None:
        held = read_chains(spark, str(packed), ONE)
        joined = join_as_of(spark.read.parquet(str(asked)), "entity", "at", chains=held)
        joined.select("n", "entity", "at", "value").write.option("compression", "zstd").parquet(str(out))

    best(ours, folder / "warm", 1)
    tidemark = best(ours, folder / "ours", options.repeat)
    peer = best(lambda out: duck(ASOF, out, source=source, asked=asked), folder / "duck", options.repeat)
    with duckdb.connect() as connection:
        wrong = connection.execute(f"""SELECT count(*) FILTER (o.value IS DISTINCT FROM d.value), count(*)
            FROM read_parquet('{folder}/duck/*.parquet') d JOIN read_parquet('{folder}/ours/*.parquet') o USING (n)
            """).fetchone()
    assert wrong == (0, options.asked), wrong
    print(f"{options.asked:,} rows against {options.rows:,} deltas of {options.entities:,} entities")
    print(f"tidemark {tidemark:7.2f} s\nduckdb   {peer:7.2f} s   tidemark takes {tidemark / peer:.2f} of it")
    held = spark.read.parquet(str(packed))
    told_parts(held.select(*columns_needed(ONE)))


def state(spark: SparkSession, folder: Path, options: argparse.Namespace) -> None:
    source = write_sparse(folder, options.rows, options.entities)
    policy = CompactionPolicy(TieredMerge(options.keep_recent), delta_threshold=options.keep_recent)
    packed = folder / "packed"
    held = chains(spark, source, SPARSE, policy, drop=False).segments.sortWithinPartitions("entity", "start_time")
    held.write.option("compression", "zstd").option("parquet.block.size", 1 << 20).parquet(str(packed))
    frame = ChainFrame(spark.read.parquet(str(packed)), SPARSE)
    entity, at = f"e{options.entities // 2:07d}", options.rows * 500_000
    begun = time.perf_counter()
    answer = frame.states(at, entity=entity).collect()
    seconds = time.perf_counter() - begun
    needed = frame.segments.where(f"entity = '{entity}'").where(needed_for(at, None))
    read = needed.selectExpr("size(event_times) AS deltas").collect()
    groups = [
        group.total_byte_size
        for file in packed.glob("*.parquet")
        for group in _groups_with(pq.ParquetFile(file), entity)
    ]
    deltas = [row.deltas for row in read]
    print(f"{options.rows:,} deltas, state of {entity}: {len(answer)} row in {seconds:.2f} s")
    print(f"checkpoints read: {len(read)}, deltas read: {sum(deltas)} (at most {options.keep_recent})")
    print(f"bytes of the row groups that can hold it: {sum(groups):,} of {size(packed):,}")


def _groups_with(file: pq.ParquetFile, entity: str) -> list[Any]:
    found = []
    for number in range(file.num_row_groups):
        group = file.metadata.row_group(number)
        column = next(group.column(i) for i in range(group.num_columns) if group.column(i).path_in_schema == "entity")
        if column.statistics.min <= entity <= column.statistics.max:
            found.append(group)
    return found


def kernels(folder: Path, options: argparse.Namespace) -> None:
    """The chain kernels against DuckDB on columns in memory, one thread each; files only to weigh them."""
    batch = sparse_deltas(options.rows, options.entities)
    names = pa.array([f"e{i:07d}" for i in range(options.entities)])
    changes = PooledDeltas(batch, batch.event_time, np.ones(len(batch), np.int64))

    def packed(policy: CompactionPolicy, frontiers: Frontiers) -> pa.Table:
        nothing = Segments.empty("float64", DIMS)
        step = restate_chains(nothing, changes, policy, as_of=0, frontiers=frontiers)
        kept = step.segments.take(np.flatnonzero(step.written))
        return pack(kept, names, names=None, full_rows=False)

    passed = Frontiers(LATEST, LATEST)
    full, tiered = (
        CompactionPolicy(FullMerge(), delta_threshold=1),
        CompactionPolicy(TieredMerge(10), delta_threshold=10),
    )
    connection = duckdb.connect(config={"threads": 1})
    connection.register("deltas", as_arrow(batch))
    peer = best_cpu(lambda: connection.sql(IN_MEMORY).to_arrow_table(), options.repeat)
    ours = best_cpu(lambda: packed(full, passed), options.repeat)
    print(f"{options.rows:,} deltas of {CHANGED} of {DIMS} dimensions, {options.entities:,} entities")
    print(f"compaction {ours:.2f} s, duckdb {peer:.2f} s of processor: {ours / peer:.2f}")
    pq.write_table(as_arrow(batch), folder / "raw.parquet", compression="zstd")
    for name, policy in (("full", full), ("tiered, 10 pending", tiered)):
        pq.write_table(packed(policy, passed), folder / "kept.parquet", compression="zstd")
        share = (folder / "kept.parquet").stat().st_size / (folder / "raw.parquet").stat().st_size
        print(f"disk after {name}: {share:.2f} of the raw deltas")
    _kernel_join(connection, names, options)


def _kernel_join(connection: duckdb.DuckDBPyConnection, names: pa.Array, options: argparse.Namespace) -> None:
    deltas, questions = value_tables(options.rows, len(names), options.rows // 10)
    step = restate_chains(
        Segments.empty("float64", 1),
        changes_of(deltas, names, ONE),
        CompactionPolicy(TieredMerge(10), delta_threshold=10),
        as_of=0,
    )
    table = pack(step.segments, names, names=["value"], full_rows=False)

    def asked() -> States:
        segments = unpack(table, names, dtype="float64", dims=1)
        codes = pa.compute.index_in(questions["entity"], value_set=names).to_numpy().astype(np.int64)
        times = questions["at"].to_numpy()
        return states_for(segments, codes, times, times)

    connection.register("values_of", deltas)
    connection.register("asked", questions)
    peer = best_cpu(lambda: connection.sql(ASOF_IN_MEMORY).to_arrow_table(), options.repeat)
    ours = best_cpu(asked, options.repeat)
    print(f"as-of join of {len(questions):,} rows {ours:.2f} s, duckdb {peer:.2f} s of processor: {ours / peer:.2f}")


def best_cpu(call: Callable[[], object], repeat: int) -> float:
    """Least processor seconds of several calls, after one that does not count."""
    call()
    found = []
    for _ in range(repeat):
        begun = time.process_time()
        call()
        found.append(time.process_time() - begun)
    return min(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figure", choices=["compact", "join", "state", "days", "kernels"])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--entities", type=int, default=100_000)
    parser.add_argument("--asked", type=int, default=1_000_000)
    parser.add_argument("--keep-recent", type=int, default=10)
    parser.add_argument("--days", type=int, default=300)
    parser.add_argument("--deltas-a-day", type=int, default=5_000)
    parser.add_argument("--repeat", type=int, default=2)
    options = parser.parse_args()
    if options.figure == "days":
        days(options)
        return
    if options.figure == "kernels":
        with tempfile.TemporaryDirectory() as folder:
            kernels(Path(folder), options)
        return
    spark = session()
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "50000")
    with tempfile.TemporaryDirectory() as folder:
        ways = {"compact": compact, "join": join, "state": state}
        ways[options.figure](spark, Path(folder), options)
    spark.stop()


if __name__ == "__main__":
    main()
