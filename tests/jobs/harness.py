"""A small source and its files, runs of it in the shared session, and what the tables must say, worked out in plain
Python."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from spark_jobs.config import Settings
from spark_jobs.jobs.request import Request
from spark_jobs.jobs.stage import run_stage
from spark_jobs.model import STAGES
from tests.support.template_lake import take_in

START = datetime(2024, 1, 1, tzinfo=UTC)
DAY, MINUTE = timedelta(days=1), timedelta(minutes=1)

SOURCE = """
source: meters
start: 2024-01-01
every: 1 day
landing: {path: "meters/{date}/*", format: ndjson}
columns: {id: string, meter: string, at: timestamp, seen: timestamp, load: int, heat: float}
timelines: {taken: at, seen: seen}
event_time: taken
arrival: seen
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


@dataclass(frozen=True)
class Reading:
    """One row: the day of the drop it lands in, its minute since START, and its values."""

    drop: int
    minute: int
    meter: str
    load: int
    seen: int | None = None

    @property
    def identity(self) -> str:
        return f"{self.meter}-{self.minute}-{self.load}"

    def line(self) -> str:
        at = START + self.minute * MINUTE
        seen = START + self.drop * DAY + MINUTE if self.seen is None else START + self.seen * MINUTE
        row = {"id": self.identity, "meter": self.meter, "at": _iso(at), "seen": _iso(seen), "load": self.load}
        return json.dumps({**row, "heat": self.load / 3})


def _iso(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


def write_source(settings: Settings, text: str = SOURCE, name: str = "meters") -> Settings:
    """Settings whose sources' folder holds just this source."""
    folder = settings.home / "sources"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.yml").write_text(text)
    return settings.model_copy(update={"sources": folder})


def write_drops(settings: Settings, readings: Iterable[Reading]) -> None:
    """Each reading in the file of its drop, in the order given."""
    by_drop: dict[int, list[str]] = {}
    for reading in readings:
        by_drop.setdefault(reading.drop, []).append(reading.line())
    for drop, lines in by_drop.items():
        write_lines(settings, drop, lines)


def path_of(drop: int, name: str = "a.ndjson") -> str:
    """The path of a file of a drop, relative to the landing directory."""
    return f"meters/{START + drop * DAY:%Y-%m-%d}/{name}"


def write_lines(settings: Settings, drop: int, lines: Sequence[str], name: str = "a.ndjson") -> Path:
    path = settings.landing / path_of(drop, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def run(
    spark: SparkSession,
    settings: Settings,
    first: int,
    last: int,
    *,
    source: str = "meters",
    start: datetime = START,
    pass_gap: bool = True,
    stages: Sequence[str] = STAGES,
    **options: Any,
) -> list[dict[str, Any]]:
    """The stages for the drops from `first` to `last`, both included, with `options` of the `Request`; returns their
    summaries. Tests run days in any order, so a gap is passed unless they say otherwise."""
    lo, hi = start + first * DAY, start + (last + 1) * DAY
    given = {"source": source, "lo": lo, "hi": hi, "run_id": f"test-{first}-{last}"}
    if "planned" in options:
        request = Request.of_plan(options["planned"], pass_gap=pass_gap)
    else:
        request = Request(pass_gap=pass_gap, **options)
    take_in(settings, source)
    return [run_stage(name, **given, settings=settings, spark=spark, request=request) for name in stages]


def published(spark: SparkSession, table: str, *leave_out: str) -> list[tuple[Any, ...]]:
    """The rows of a published name or table function, sorted, without the columns that slicing may change."""
    frame = spark.sql(f"SELECT * FROM {table}").drop("revision", "known_from", *leave_out)
    return sorted((tuple(row) for row in frame.collect()), key=repr)


def minute_of(time: datetime) -> float:
    """A published time as minutes since START."""
    aware = time.replace(tzinfo=UTC) if time.tzinfo is None else time
    return (aware - START) / MINUTE
