"""The bronze gate as it is, beside each of its invariants as SQL of Great Expectations' UnexpectedRowsExpectation:
`python -m tests.benchmarks.gates_sql [ROWS…]`.

Lands days of so many rows (850 and 400,000) in a classic session of Spark, then asks both ways about the last day: from
reading to verdicts, the least of three times. Seconds by the clock, and of it processor seconds of this process.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from spark_jobs.config import Settings
from spark_jobs.gates import judge_gate
from spark_jobs.gates.measures import bronze
from spark_jobs.jobs.stage import run_stage
from spark_jobs.session import open_session
from spark_jobs.sources import Source, find_source
from spark_jobs.sources.drops import PLACE_BITS
from spark_jobs.storage.descriptions.tables import FILES
from spark_jobs.storage.lakes.spark_lake import SparkLake
from tests.benchmarks.pipeline import FIRST, SOURCE, write_day

_LEDGER = (
    "SELECT l.seq_no, l.n, r.n FROM (SELECT seq_no, sum({what} + {what}_back) n FROM bronze.files"
    " WHERE source = '{source}' AND landing IN ({landings}) GROUP BY seq_no) l"
    " LEFT JOIN (SELECT seq_no, {count} n FROM {table} GROUP BY seq_no) r USING (seq_no)"
    " WHERE l.n <> coalesce(r.n, 0) AND (SELECT count(*) FROM {{batch}}) >= 0"
)
_OF_SOURCE = "(SELECT * FROM bronze.{table} WHERE source = '{source}' AND landing IN ({landings}))"


def queries(source: Source, landings: list[int]) -> dict[str, str]:
    """Per invariant of the bronze gate the rows that break it."""
    of = {"source": source.name, "landings": ", ".join(map(str, landings))}
    ids, times = "row_ids", "event_times"
    arrays = [*(f"t_{t}" for t in source.timelines), *(f"c_{c}" for c in source.columns), "delta_ids", "extra"]
    loose = [("event_min", "event_max", times), *((f"min_{t}", f"max_{t}", f"t_{t}") for t in source.timelines)]
    chunks = f"(SELECT * FROM bronze.{source.name}_chunks WHERE landing IN ({of['landings']}))"
    listed = {what: _OF_SOURCE.format(table=f"{what}_history", **of) for what in ("quarantine", "duplicates")}
    shown = "SELECT chunk_id, entity, seq_no, landing FROM {batch} WHERE "
    return {
        "ledger_rows": _LEDGER.format(what="rows", count="sum(rows)", table=chunks, **of),
        "ledger_rejects": _LEDGER.format(
            what="rejects", count="sum(coalesce(records, 1))", table=listed["quarantine"], **of
        ),
        "ledger_duplicates": _LEDGER.format(what="duplicates", count="count(*)", table=listed["duplicates"], **of),
        "repeated_row_ids": "SELECT landing, diff, id, count(*) FROM {batch} LATERAL VIEW explode(row_ids) e AS id"
        " GROUP BY landing, diff, id HAVING count(*) > 1",
        "chunks_with_unordered_row_ids": f"{shown} sort_array({ids}) <> {ids} OR size(array_distinct({ids})) <> rows",
        "chunks_with_foreign_row_ids": f"{shown} shiftright(array_min({ids}), {PLACE_BITS}) <> seq_no"
        f" OR shiftright(array_max({ids}), {PLACE_BITS}) <> seq_no",
        "chunks_with_uneven_arrays": shown + " OR ".join(f"size({a}) <> rows" for a in (ids, times, *arrays)),
        "chunks_with_loose_bounds": shown
        + " OR ".join(f"NOT {lo} <=> array_min({a}) OR NOT {hi} <=> array_max({a})" for lo, hi, a in loose),
        "chunks_falsely_sorted": shown
        + " OR ".join(f"(sorted_{t} AND sort_array(t_{t}) <> t_{t})" for t in source.timelines),
        "chunks_without_entity": f"{shown} entity IS NULL",
        "rows_without_event_time": f"{shown} exists({times}, t -> t IS NULL)",
    }


def by_sql(spark: Any, source: Source, landings: list[int]) -> int:
    """How many of the expectations hold."""
    import great_expectations as gx

    asset = gx.get_context(mode="ephemeral").data_sources.add_spark("lake").add_dataframe_asset("chunks")
    landed = spark.table(f"bronze.{source.name}_chunks").where(f"landing IN ({', '.join(map(str, landings))})")
    suite = gx.ExpectationSuite(
        name="bronze",
        expectations=[
            gx.expectations.UnexpectedRowsExpectation(unexpected_rows_query=query)
            for query in queries(source, landings).values()
        ],
    )
    batch = asset.add_batch_definition_whole_dataframe("landed").get_batch({"dataframe": landed})
    results = batch.validate(suite, result_format="COMPLETE").results
    wrong = [r.exception_info for r in results if not r.success]
    assert not wrong, wrong
    return len(results)


def least(work: Callable[[], Any], times: int = 3) -> tuple[float, float]:
    """Seconds by the clock and of this process's processors, of the fastest time."""
    spent = []
    for _ in range(times):
        begun, used = time.monotonic(), time.process_time()
        work()
        spent.append((time.monotonic() - begun, time.process_time() - used))
    return min(spent)


def main(sizes: list[int]) -> None:
    """Print both ways for each size."""
    os.environ["TIDEMARK_SPARK"] = "classic"
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        sources = home / "sources"
        sources.mkdir()
        (sources / "large.yml").write_text(SOURCE)
        settings = Settings(
            home=home / "home", lake=str(home / "lake"), landing=home / "landing", sources=sources, spark="classic"
        )
        spark = open_session(settings, "gates")
        source, lake = find_source(sources, "large"), SparkLake(spark)
        for place, rows in enumerate([200, *sizes]):
            day = FIRST + timedelta(days=place)
            write_day(home / "landing", day, rows, place)
            lo = datetime(day.year, day.month, day.day, tzinfo=UTC)
            run: dict[str, Any] = {"source": "large", "lo": lo, "hi": lo + timedelta(days=1), "run_id": f"day-{place}"}
            run_stage("land", **run, settings=settings, spark=spark)
            landings = sorted({row["landing"] for row in lake.records(FILES) if row["run_id"] == run["run_id"]})

            def as_it_is(landings: list[int] = landings) -> None:
                measured = bronze(lake, source, landings=landings)
                verdicts = judge_gate("bronze", measured.values, settings=settings, source="large", run_id="r")
                assert not [verdict for verdict in verdicts if verdict.stops], verdicts

            ways = {"as it is": as_it_is, "by SQL": lambda landings=landings: by_sql(spark, source, landings)}
            for name, way in ways.items():
                clock, used = least(way)
                print(f"{rows:>9,} rows, 11 invariants {name}: {clock:6.2f} s, {used:5.2f} s here", flush=True)
        spark.stop()


if __name__ == "__main__":
    main([int(size) for size in sys.argv[1:]] or [850, 400_000])
