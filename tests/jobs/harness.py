"""A small source and its files, runs of it in the shared session, and what the tables must say, worked out in plain
Python."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, overload

from pyspark.sql import SparkSession

from spark_jobs.config import Settings
from spark_jobs.jobs.request import ALL, Request
from spark_jobs.jobs.stage import attempt, run_stage
from spark_jobs.model import STAGES
from spark_jobs.reads.as_of import entity_state, states_at
from spark_jobs.sources import Source, find_source
from spark_jobs.storage.descriptions.times import micros
from spark_jobs.storage.lakes.file_lake import FileLake
from spark_jobs.storage.lakes.lake import RunLake
from spark_jobs.storage.lakes.spark_lake import SparkLake
from tests.support.file_session import FileSession
from tests.support.template_lake import take_in

Session = SparkSession | FileSession
"""The lake of a test, asked by SQL: Spark's, or one of files."""

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
    path = settings.landing_folder / path_of(drop, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def run(
    session: Session,
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
    given: dict[str, Any] = {"source": source, "lo": lo, "hi": hi, "run_id": f"test-{first}-{last}"}
    if "planned" in options:
        request = Request.of_plan(options["planned"], pass_gap=pass_gap)
    else:
        request = Request(pass_gap=pass_gap, **options)
    return [run_one(session, name, **given, settings=settings, request=request) for name in stages]


def run_one(
    session: Session,
    stage: str,
    *,
    source: str,
    lo: datetime,
    hi: datetime,
    run_id: str,
    settings: Settings,
    request: Request = ALL,
) -> dict[str, Any]:
    """One stage for the drops of `[lo, hi)`; returns its summary."""
    given: dict[str, Any] = {"run_id": run_id, "settings": settings, "request": request}
    if isinstance(session, FileSession):
        checked = find_source(settings.sources, source)
        return attempt(stage, checked, lake=session.lake, lo_us=micros(lo), hi_us=micros(hi), **given)
    take_in(settings, source)
    return run_stage(stage, source=source, lo=lo, hi=hi, spark=session, **given)


@overload
def lake_of(session: SparkSession) -> SparkLake: ...
@overload
def lake_of(session: FileSession) -> FileLake: ...
@overload
def lake_of(session: Session) -> RunLake: ...
def lake_of(session: Session) -> RunLake:
    """The lake of a test, as stages are given it."""
    return session.lake if isinstance(session, FileSession) else SparkLake(session)


def published(session: Session, table: str, *leave_out: str) -> list[tuple[Any, ...]]:
    """The rows of a published name or table function, sorted, without the columns that slicing may change."""
    frame = session.sql(f"SELECT * FROM {table}").drop("revision", "known_from", *leave_out)
    return sorted((tuple(row) for row in frame.collect()), key=repr)


def known_states(session: Session, source: Source, **times: int) -> list[dict[str, Any]]:
    """The states at an event time as they were known at a visible time, with the times of `states_at`."""
    if not isinstance(session, FileSession):
        return [row.asDict() for row in states_at(SparkLake(session), source, **times).collect()]
    entities = session.sql(f"SELECT DISTINCT entity FROM trace.{source.name}_updates").collect()
    states = [entity_state(session.lake, source, row.entity, **times) for row in entities]
    return [row for of_entity in states for row in of_entity.to_pylist()]


def minute_of(time: datetime) -> float:
    """A published time as minutes since START."""
    aware = time.replace(tzinfo=UTC) if time.tzinfo is None else time
    return (aware - START) / MINUTE
