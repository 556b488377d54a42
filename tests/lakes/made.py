"""The lake of an earlier release, kept with what it said then: how it was made, how it is opened again, and what it is
asked. See README.md beside this file.

Run as a program it makes the lake with the release whose `spark_jobs` Python imports, so it uses only what that one
has.
"""

from __future__ import annotations

import json
import shutil
import sys
import tarfile
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

from pyspark.sql import DataFrame, SparkSession

from spark_jobs.config import Settings
from spark_jobs.jobs.stage import run_stage
from spark_jobs.sources import load_source
from spark_jobs.storage.lakes.spark_catalog import SparkCatalog
from spark_jobs.storage.lakes.spark_lake import SparkLake

try:
    from spark_jobs.jobs.request import Request
    from spark_jobs.reads.why import Why, why
except ImportError:  # a release whose `run_stage` takes what a run is about one by one, and whose reads lie elsewhere
    from spark_jobs.restatement.why import Why, why  # type: ignore[no-redef]  # of that release

    Request = None  # type: ignore[misc, assignment]  # of that release

STAGES = ("land", "seal", "window", "compact", "publish")
HERE = Path(__file__).parent
LAKES = ("ranked_row_ids", "without_format")
"""Each an archive and what the lake answered, as files of this folder."""
START, DAY, MINUTE = datetime(2024, 1, 1, tzinfo=UTC), timedelta(days=1), timedelta(minutes=1)
NIGHT = 24 * 60
DATABASES = ("bronze", "trace", "silver", "gold", "quality")
WINDOWS = ("hourly", "shifts")
KEPT = ("lake", "landing", "leases", "sources", "views", "names.json")
"""What of the home is archived; the metastore is not, since it names places of the machine."""

METERS = """
source: meters
start: 2024-01-01
every: 1 day
landing: {path: "meters/{date}/*", format: ndjson}
columns: {id: string, meter: string, at: timestamp, load: int, heat: float}
timelines: {taken: at}
event_time: taken
entity: meter
delta_id: id
windows:
  hourly:
    kind: sliding
    size: 60 min
    key: meter
    time: taken
    aggregates: {n: count(), total: sum(load), high: max(load), mean: avg(heat)}
    late: {policy: reemit, limit: 12 hours}
  shifts:
    kind: session
    gap: 90 min
    key: meter
    time: taken
    aggregates: {n: count(), total: sum(load)}
    late: reemit
state: {mode: add, datatype: int64, components: {readings: 1, load: load}}
"""
GAUGES = """
source: gauges
start: 2024-01-01
every: 1 day
landing: {path: "gauges/{date}/*", format: ndjson}
columns: {gauge: string, at: timestamp, level: int}
timelines: {taken: at}
event_time: taken
entity: gauge
state: {mode: add, datatype: int64, components: {readings: 1, level: level}}
compaction: {strategy: tiered, keep_recent: 1, delta_threshold: 3}
"""


def meter(minute: int, name: str, load: int) -> str:
    """A line of a meter, with its delta_id made of all its values: rows with one delta_id are equal."""
    at = f"{START + minute * MINUTE:%Y-%m-%dT%H:%M:%SZ}"
    return json.dumps({"id": f"{name}-{minute}-{load}", "meter": name, "at": at, "load": load, "heat": load / 3})


def gauge(minute: int, name: str, level: int) -> str:
    """A line of a gauge."""
    return json.dumps({"gauge": name, "at": f"{START + minute * MINUTE:%Y-%m-%dT%H:%M:%SZ}", "level": level})


def write(home: Settings, source: str, drop: int, name: str, *lines: str) -> Path:
    """A file of a drop."""
    path = home.landing_folder / file_of(source, drop, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def file_of(source: str, drop: int, name: str) -> str:
    """The path of a file, relative to the landing directory."""
    return f"{source}/{START + drop * DAY:%Y-%m-%d}/{name}.ndjson"


def run(spark: SparkSession, home: Settings, source: str, first: int, last: int, run_id: str, **options: Any) -> Any:
    """All stages over some drops; their summaries."""
    told: dict[str, Any] = {
        "source": source,
        "lo": START + first * DAY,
        "hi": START + (last + 1) * DAY,
        "run_id": run_id,
    }
    about: dict[str, Any] = options if Request is None else {"request": Request(**options)}
    return [run_stage(stage, **told, settings=home, spark=spark, **about) for stage in STAGES]


def make(spark: SparkSession, home: Settings) -> None:
    """Two sources, one with delta_ids and windows, one with chains; late rows, duplicates, rejects, a row of the day
    after, a retraction, a file that changed and files that joined."""
    (home.sources / "meters.yml").write_text(METERS)
    (home.sources / "gauges.yml").write_text(GAUGES)
    write(home, "meters", 0, "a", meter(10, "a", 5))
    write(
        home,
        "meters",
        0,
        "b",
        meter(65, "a", 7),
        '{"id": "broken',
        meter(NIGHT - 30, "a", 1),
        meter(NIGHT + 20, "b", 9),
    )
    write(home, "meters", 0, "c", meter(65, "a", 7), meter(300, "c", 4), meter(310, "c", 6))
    write(home, "meters", 1, "a", meter(NIGHT - 20, "a", 3), meter(NIGHT + 30, "a", 4), meter(300, "c", 4))
    write(home, "meters", 1, "b", meter(NIGHT + 500, "b", 6), "nonsense")
    write(home, "meters", 2, "a", meter(2 * NIGHT + 5, "b", 1), meter(40, "c", 2))
    run(spark, home, "meters", 0, 0, "meters-0")
    run(spark, home, "meters", 1, 2, "meters-1-2")
    run(spark, home, "meters", 0, 0, "meters-retraction", retract=True, only_file=file_of("meters", 0, "a"))
    write(home, "meters", 1, "0", meter(NIGHT + 40, "c", 8))
    write(home, "meters", 1, "a", meter(NIGHT - 20, "a", 3), meter(NIGHT + 31, "a", 40), meter(300, "c", 4))
    run(spark, home, "meters", 1, 1, "meters-change")
    write(home, "meters", 3, "a", meter(3 * NIGHT + 5, "a", 2))
    write(home, "meters", 3, "b", meter(3 * NIGHT + 7, "a", 3), meter(3 * NIGHT - 100, "c", 3))
    run(spark, home, "meters", 3, 3, "meters-3")

    write(home, "gauges", 0, "a", gauge(5, "north", 3), gauge(15, "south", 4))
    write(home, "gauges", 0, "b", *[gauge(20 + i, "north", i) for i in range(5)])
    write(home, "gauges", 1, "a", gauge(NIGHT + 1, "north", 2), gauge(30, "south", 6))
    run(spark, home, "gauges", 0, 1, "gauges-0-1")
    write(home, "gauges", 0, "0", gauge(21, "north", 100))
    run(spark, home, "gauges", 0, 0, "gauges-joined")
    write(home, "gauges", 2, "a", *[gauge(2 * NIGHT + i, "south", i) for i in range(5)])
    run(spark, home, "gauges", 2, 2, "gauges-2")


def answers(spark: SparkSession, home: Settings) -> dict[str, Any]:
    """What the lake says, as JSON: published tables, now and as of several times, what landed and why."""
    seals = [START + (drop + 1) * DAY - timedelta(microseconds=1) for drop in range(3)]
    told: dict[str, Any] = {}
    for table in (*(f"silver.{w}" for w in WINDOWS), "silver.late", "gold.state", "gold.meters", "gold.gauges"):
        told[table] = rows(spark.table(table))
    for table in (*(f"silver.{w}" for w in WINDOWS), "gold.meters", "gold.gauges"):
        told[f"{table}_changes"] = rows(spark.table(f"{table}_changes"))
        for seal in seals:
            as_of = f"{table}_as_of(timestamp'{seal:%Y-%m-%dT%H:%M:%S.%fZ}')"
            told[as_of] = rows_as_of(spark, as_of)
    for table in ("bronze.duplicates", "bronze.quarantine", "bronze.files"):
        told[table] = rows(spark.table(table))
    deltas = [spark.table(f"bronze.{source}_deltas") for source in ("meters", "gauges")]
    told["bronze.deltas"] = rows(deltas[0].unionByName(deltas[1]))
    for source, table, key in keys(spark):
        of_row = why(SparkLake(spark), load_source(home.sources / f"{source}.yml"), table, key)
        told[f"why {table} {' '.join(key)}"] = json.loads(json.dumps(deltas_of(of_row), default=str))
    return told


def rows_as_of(spark: SparkSession, function: str) -> list[dict[str, Any]]:
    """The rows as of a time: none before the first publication, for which releases since decision 0261 refuse."""
    try:
        return rows(spark.sql(f"SELECT * FROM {function}"))
    except Exception as error:
        if "before_first_publication" not in str(error):
            raise
        return []


def keys(spark: SparkSession) -> list[tuple[str, str, list[str]]]:
    """Source, table and key of some windows and of every state."""
    found = []
    for window in WINDOWS:
        windows = spark.table(f"silver.{window}").where("meter <> 'b'").select("meter", "window_start")
        for row in windows.orderBy("meter", "window_start").limit(4).collect():
            found.append(("meters", f"silver.{window}", [row[0], f"{row[1]:%Y-%m-%dT%H:%M:%SZ}"]))
    for source in ("meters", "gauges"):
        column = source[:-1]
        found += [
            (source, f"gold.{source}", [row[0]]) for row in spark.table(f"gold.{source}").select(column).collect()
        ]
    return sorted(found)


def deltas_of(told: Why) -> dict[str, Any]:
    """The deltas behind a row, and what caused each of its revisions."""
    causes = [{**cause, "revision": r.revision} for r in told.revisions for cause in r.causes]
    return {"deltas": told.deltas, "causes": causes}


def rows(frame: DataFrame) -> list[dict[str, Any]]:
    """The rows of a frame as JSON has them, without what the clock says, in an order of their own."""
    clocked = [name for name in frame.columns if name in ("landed_at", "first_seen", "last_seen")]
    listed = [row.asDict(recursive=True) for row in frame.drop(*clocked).collect()]
    return sorted(json.loads(json.dumps(listed, default=str)), key=lambda row: json.dumps(row, sort_keys=True))


def saved(home: Settings, lake: str, names: list[str]) -> None:
    """Archive the lake's files and the statements that define its names."""
    (home.home / "names.json").write_text(json.dumps(names))
    with tarfile.open(HERE / f"{lake}.tar.xz", "w:xz", preset=9) as archive:
        for kept in KEPT:
            if not (home.home / kept).exists():
                continue  # a release that keeps it elsewhere, or not at all
            archive.add(home.home / kept, kept, filter=lambda entry: None if entry.name.endswith(".crc") else entry)


def opened(spark: SparkSession, home: Settings, lake: str = LAKES[0]) -> Settings:
    """An archived lake in the session's empty one, as an upgrade finds it: its tables and names are those of then.

    Returns settings with its sources and landing directory.
    """
    from spark_jobs.storage.delta.places import lake_root

    with tarfile.open(HERE / f"{lake}.tar.xz") as archive:
        archive.extractall(home.home, filter="data")
    for database in DATABASES:
        place = Path(lake_root(spark)) / f"{database}.db"
        shutil.rmtree(place, ignore_errors=True)
        shutil.move(home.home / "lake" / place.name, place)
        spark.sql(f"CREATE DATABASE {database}")
        for table in sorted(place.iterdir()):
            spark.sql(f"CREATE TABLE {database}.`{table.name}` USING delta LOCATION '{table}'")
    for statement in json.loads((home.home / "names.json").read_text()):
        spark.sql(statement)
    return home.model_copy(update={"sources": home.home / "sources", "landing": home.home / "landing"})


def said(lake: str = LAKES[0]) -> Mapping[str, Any]:
    """What the lake answered when it was made."""
    answered: Mapping[str, Any] = json.loads((HERE / f"{lake}.json").read_text())
    return answered


class _Listening(SparkCatalog):
    """A catalog that keeps the statements by which names come to be."""

    statements: ClassVar[list[str]] = []

    def define(self, statement: str) -> None:
        if statement.startswith("CREATE OR REPLACE"):
            self.statements.append(statement)
        super().define(statement)


def main() -> None:
    """Make a lake in the folder that the command line names first, which is empty, and archive it beside this file
    under the name that it names second."""
    from spark_jobs.session import open_session
    from spark_jobs.storage.lakes import spark_lake

    spark_lake.SparkCatalog = _Listening  # type: ignore[misc]  # a release lacks a setting for it
    quick = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
    home = Settings(
        home=Path(sys.argv[1]), spark="classic", master="local[2]", heap="2g", shuffle_partitions=2, java_options=quick
    )
    home = home.model_copy(update={"landing": home.home / "landing", "sources": home.home / "sources"})
    home.sources.mkdir(parents=True)
    spark = open_session(home, "an older lake")
    spark.conf.set("spark.sql.codegen.wholeStage", "false")
    spark.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    make(spark, home)
    told = answers(spark, home)
    (HERE / f"{sys.argv[2]}.json").write_text(json.dumps(told, indent=1, sort_keys=True) + "\n")
    saved(home, sys.argv[2], list(dict.fromkeys(_Listening.statements)))
    spark.stop()


if __name__ == "__main__":
    main()
