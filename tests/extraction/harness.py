"""The meters of `tests.jobs.harness`, in a database or a topic."""

from __future__ import annotations

import itertools
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from spark_jobs.config import Settings
from spark_jobs.jobs.request import Request
from spark_jobs.jobs.stage import run_stage
from spark_jobs.model import STAGES
from tests.jobs.harness import DAY, SOURCE, START, write_source

FILES = 'landing: {path: "meters/{date}/*", format: ndjson}'
_RUNS = itertools.count()


def source_with(landing: str) -> str:
    """The source with another landing."""
    assert FILES in SOURCE
    return SOURCE.replace(FILES, landing)


def home_with(settings: Settings, home: Path, landing: str, connections: dict[str, Any]) -> Settings:
    """An installation whose one source lands so."""
    file = home / "connections.yml"
    home.mkdir(parents=True, exist_ok=True)
    file.touch(mode=0o600)
    file.write_text(json.dumps(connections))
    update = {"home": home, "landing": home / "ländings of 50% #1", "connections": file}
    return write_source(settings.model_copy(update=update), source_with(landing))


def land(spark: SparkSession, settings: Settings, first: int, last: int, **options: Any) -> dict[str, Any]:
    """The first stage of a run of these drops; of what it reports its own rows, without those of earlier ones that no
    later stage has taken on."""
    told = run(spark, settings, first, last, stages=STAGES[:1], **options)[0]
    return {**told, **{name: told[name] - told[f"resumed_{name}"] for name in ("rows", "rows_back")}}


def run(
    spark: SparkSession, settings: Settings, first: int, last: int, *, stages: tuple[str, ...] = STAGES, **options: Any
) -> list[dict[str, Any]]:
    """A run of these drops; each has an id of its own."""
    lo, hi = START + first * DAY, START + (last + 1) * DAY
    given: dict[str, Any] = {"source": "meters", "lo": lo, "hi": hi, "run_id": f"test-{next(_RUNS)}"}
    request = Request(**options)
    return [run_stage(name, **given, settings=settings, spark=spark, request=request) for name in stages]


def time(drop: int, minute: int = 0) -> datetime:
    """A minute of a drop."""
    return START.replace(tzinfo=UTC) + drop * DAY + minute * (DAY / 1440)


def loads(spark: SparkSession) -> list[tuple[str, int]]:
    """Identity and load of the rows that stand in bronze, sorted."""
    rows = spark.sql(
        "SELECT delta_id, get_json_object(components, '$.load') AS load FROM bronze.meters_deltas"
    ).collect()
    return sorted((row.delta_id, int(row.load)) for row in rows)
