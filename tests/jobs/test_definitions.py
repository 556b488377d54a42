"""Window definitions that are added, changed and removed: nothing runs before somebody accepts it, users read what was
published until the change is, and then exactly what the new definition says."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_jobs.config import Settings
from spark_jobs.definitions.versions import DefinitionChanged
from spark_jobs.jobs.request import Request
from spark_jobs.model import STAGES
from spark_jobs.storage.lakes.table_columns import TableDiffers
from tests.jobs.harness import (
    DAY,
    SOURCE,
    START,
    Reading,
    Session,
    minute_of,
    published,
    run,
    run_one,
    write_drops,
    write_source,
)
from tests.support.file_session import FileSession

NIGHT = 24 * 60
READINGS = [
    Reading(0, 10, "a", 5),
    Reading(0, 65, "a", 7),
    Reading(0, NIGHT - 30, "b", 2),
    Reading(1, 100, "a", 3),  # late beyond any limit of half a day
    Reading(1, NIGHT + 30, "a", 4),
]
SHIFTS = SOURCE.partition("  shifts:")[2].partition("state:")[0]
CHANGED = (
    SOURCE.replace("mean: avg(heat)}", "mean: avg(heat), low: min(load)}")
    .replace("limit: 12 hours", "limit: 3 days")
    .replace(f"  shifts:{SHIFTS}", "")
    .replace(
        "state:",
        "  quarters: {kind: tumbling, size: 6 h, key: meter, aggregates: {n: count()}, late: discard}\nstate:",
    )
)


def run_accepted(spark: Session, settings: Settings, *names: str) -> None:
    for name in names:
        given: dict[str, Any] = {"source": "meters", "lo": START, "hi": START + 2 * DAY, "run_id": "accepted"}
        run_one(spark, name, **given, settings=settings, request=Request(accept_definition=True))


@pytest.mark.spark
@pytest.mark.long
def test_a_changed_definition_is_published_as_one_correction_once_it_is_accepted(
    lake: SparkSession, spark_settings: Settings, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("home")
    home = write_source(spark_settings.model_copy(update={"home": folder, "landing": folder / "landing"}))
    write_drops(home, READINGS)
    run(lake, home, 0, 1)
    names = ("silver.hourly", "silver.shifts", "silver.late")
    before = {name: published(lake, name) for name in names}
    assert Counter(r.action for r in lake.table("silver.late").collect()) == {"discard": 1, "reemit": 1}

    write_source(home, CHANGED)
    with pytest.raises(DefinitionChanged) as refusal:
        run(lake, home, 0, 1)
    assert set(refusal.value.facts["parts"]) == {"window.hourly", "window.shifts", "window.quarters"}
    run_accepted(lake, home, "land", "seal", "window", "compact")
    assert {name: published(lake, name) for name in names} == before, "nothing shows before it is published"
    run_accepted(lake, home, "publish")

    late = {(r.definition, r.action) for r in lake.table("silver.late").collect()}
    assert late == {("hourly", "reemit"), ("quarters", "discard")}
    hourly = {minute_of(r.window_end): (r.n, r.total, r.low) for r in lake.table("silver.hourly").collect()}
    assert hourly[100] == (2, 10, 3), "the late row counts now, and the new aggregate has a value"
    quarters = {(r.meter, minute_of(r.window_start)): r.n for r in lake.table("silver.quarters").collect()}
    assert quarters == {("a", 0): 2, ("b", NIGHT - 360): 1, ("a", NIGHT): 1}
    assert "shifts" not in {row.tableName for row in lake.sql("SHOW TABLES IN silver").collect()}
    assert [summary["commits"] for summary in run(lake, home, 0, 1)] == [0] * len(STAGES)

    write_source(home, CHANGED.replace("size: 6 h, key: meter", "size: 6 h, key: [meter, load]"))
    with pytest.raises(TableDiffers, match="identified by"):
        run_accepted(lake, home, "land")


def test_an_adaptive_window_that_gets_a_rate_window_needs_another_name(tmp_path: Path) -> None:
    """Its `stats` get two fields more, which rows that are written do not have."""
    adaptive = "  paced: {kind: adaptive, target_batch_size: 2, key: meter, max: 6 h, aggregates: {n: count()}}\n"
    rated = adaptive.replace("max: 6 h", "max: 6 h, rate_window: 2 h")
    home = Settings(home=tmp_path, landing=tmp_path / "landing")
    home = write_source(home, SOURCE.replace("state:", f"{adaptive}state:"))
    lake = FileSession(Path(home.lake))
    write_drops(home, READINGS)
    run(lake, home, 0, 1)
    write_source(home, SOURCE.replace("state:", f"{rated}state:"))
    with pytest.raises(TableDiffers, match="stats"):
        run_accepted(lake, home, *STAGES)
    write_source(home, SOURCE.replace("state:", f"{rated.replace('paced', 'rated')}state:"))
    run_accepted(lake, home, *STAGES)
    assert {row.stats["rate_window"] for row in lake.table("silver.rated").collect()} > {0}
