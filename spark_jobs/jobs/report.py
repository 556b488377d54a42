"""The report of a source: where its frontiers stand, what its windows, late rows, chains and gates say, on one page.

Everything is read from the names that users read, so the page shows what is published. It is one HTML file without a
script and without anything that has to be fetched.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from datetime import datetime
from functools import reduce
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from expectations import GATES
from spark_jobs.reads.chain_metrics import chain_metrics
from spark_jobs.reads.point import ReadPoint
from spark_jobs.sources import Source
from spark_jobs.storage.chain_tables import CHAINS
from spark_jobs.storage.lake import Lake
from spark_jobs.storage.sql import qualified
from spark_jobs.storage.tables import FILES, VERDICTS
from spark_jobs.storage.times import instant, utc_rows
from spark_jobs.trace.frontiers import NO_HORIZON_US

TEMPLATE = "report.html.j2"
RUNS, DROPS = 5, 14
"""How many of the newest publications with their verdicts, and of the newest drops, are shown."""
LATE_BY = ("up to 1 hour", "up to 6 hours", "up to 1 day", "up to 1 week", "more than 1 week", "below the horizon")
_HOUR_US = 3_600_000_000

Row = dict[str, Any]


@dataclass(frozen=True)
class Report:
    """What the page shows. Times are aware, in UTC; `horizon` is None while no retention moved it.

    `windows`, `late`, `drops`, `publications`, `gates`: rows of their tables, column -> value. `lateness`: rows by how
    late they were, in the order of `LATE_BY`. `chains` is empty for a source that keeps none.
    """

    source: str
    frontiers: dict[str, datetime | None]
    entities: int | None
    windows: list[Row] = field(default_factory=list)
    late: list[Row] = field(default_factory=list)
    lateness: list[tuple[str, int]] = field(default_factory=list)
    chains: Row = field(default_factory=dict)
    drops: list[Row] = field(default_factory=list)
    publications: list[Row] = field(default_factory=list)
    gates: list[Row] = field(default_factory=list)


def source_report(lake: Lake, source: Source) -> Report:
    """Read what the report of a source shows.

    Raises:
        NotPublished: the source has published nothing.
    """
    point = ReadPoint.open(lake, source)
    late = _late(lake, source)
    by_lateness = dict.fromkeys(LATE_BY, 0)
    for row in late:
        by_lateness[row.pop("late_by")] += row["rows"]
    return Report(
        source.name,
        _frontiers(point),
        _entities(lake, source),
        _windows(lake, source),
        _by_action(late),
        list(by_lateness.items()),
        _chains(lake, source),
        _drops(lake, source),
        _publications(lake, source),
        _gates(lake, source),
    )


def as_html(report: Report) -> str:
    """The page. Every value is escaped."""
    environment = Environment(
        autoescape=True,
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["shown"] = _shown
    return environment.get_template(TEMPLATE).render(asdict(report))


def _shown(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _frontiers(point: ReadPoint) -> dict[str, datetime | None]:
    standing, current = point.frontiers, point.publication
    return {
        "horizon": None if point.horizon_us == NO_HORIZON_US else instant(point.horizon_us),
        "since": instant(standing.arrangement.since.time or 0),
        "complete": instant(current.complete_us),
        "published": instant(current.published_us),
        "reached": instant(current.reached_us),
        "seal": instant(standing.seal_us),
    }


def _of(lake: Lake, name: str, source: Source) -> DataFrame:
    """The source's rows of a name that all sources share."""
    return lake.spark.table(name).where(F.col("source") == source.name)


def _entities(lake: Lake, source: Source) -> int | None:
    return None if source.state is None else _of(lake, "gold.state", source).count()


def _windows(lake: Lake, source: Source) -> list[Row]:
    """One row per published definition: one that is not accepted yet has no name in silver."""
    published = lake.names("silver")
    counts = {
        "windows": F.count(F.lit(1)), "first_start": F.min("window_start"), "last_end": F.max("window_end"),
        "final": F.count_if("final"), "restated": F.count_if(F.col("revision") > 0),
        "most_revisions": F.max("revision"),
    }  # fmt: skip
    told = [count.alias(name) for name, count in counts.items()]
    found = [
        lake.spark.table(qualified("silver", window)).agg(F.lit(window).alias("definition"), *told)
        for window in sorted(published & {*source.windows})
    ]
    return utc_rows(reduce(DataFrame.unionByName, found)) if found else []


def _late(lake: Lake, source: Source) -> list[Row]:
    how = F.when(F.col("late_by").isNull(), LATE_BY[-1])
    for name, hours in zip(LATE_BY, (1, 6, 24, 24 * 7), strict=False):
        how = how.when(F.col("late_by") <= hours * _HOUR_US, name)
    rows = _of(lake, "silver.late", source).withColumn("late_by", how.otherwise(LATE_BY[-2]))
    told = [F.count(F.lit(1)).alias("rows"), F.max("known_from").alias("newest")]
    return utc_rows(rows.groupBy("definition", "action", "late_by").agg(*told).orderBy("definition", "action"))


def _by_action(late: list[Row]) -> list[Row]:
    found: dict[tuple[Any, Any], Row] = {}
    for row in late:
        seen = found.setdefault((row["definition"], row["action"]), row | {"rows": 0})
        seen["rows"] += row["rows"]
        seen["newest"] = max(seen["newest"], row["newest"])
    return list(found.values())


def _chains(lake: Lake, source: Source) -> Row:
    if not source.keeps_chains or CHAINS.table not in lake.names(CHAINS.database):
        return {}
    return asdict(chain_metrics(lake, source))


def _drops(lake: Lake, source: Source) -> list[Row]:
    net = [F.sum(F.col(c) - F.coalesce(f"{c}_back", F.lit(0))).alias(c) for c in ("rows", "rejects", "duplicates")]
    of_drop = _of(lake, FILES.qualified, source).groupBy(F.col("drop_lo").alias("drop"))
    return utc_rows(of_drop.agg(F.countDistinct("path").alias("files"), *net).orderBy(F.desc("drop")).limit(DROPS))


def _publications(lake: Lake, source: Source) -> list[Row]:
    found = _of(lake, "trace.publications", source).select("known_from", "reached", "run_id")
    return utc_rows(found.orderBy(F.desc("known_from")).limit(RUNS))


def _gates(lake: Lake, source: Source) -> list[Row]:
    """One row per gate of the newest runs: how many expectations held, and which did not."""
    verdicts = _of(lake, VERDICTS.qualified, source)
    newest = verdicts.select("token").distinct().orderBy(F.desc("token")).limit(RUNS)
    broken = F.format_string("%s (%s: %s)", "expectation", "measure", "observed")
    told = [
        F.count_if("success").alias("held"),
        F.sort_array(F.collect_list(F.when(~F.col("success"), broken))).alias("failed"),
    ]
    found = verdicts.join(newest, "token", "left_semi").groupBy("token", "run_id", "gate").agg(*told)
    in_order = F.array_position(F.array(*map(F.lit, GATES)), F.col("gate"))
    return utc_rows(found.orderBy(F.desc("token"), in_order).drop("token"))
