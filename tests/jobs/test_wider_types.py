"""A column's type is changed in the source file: a wider one is taken up, any other is refused with the way on."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.audit.audit import audit
from spark_jobs.config import Settings
from spark_jobs.definitions.definition import definitions
from spark_jobs.definitions.versions import DefinitionChanged
from spark_jobs.plans.plan import plan_run
from spark_jobs.sources import load_source
from spark_jobs.storage.delta.table_notes import properties
from spark_jobs.storage.descriptions.wider_types import widens
from spark_jobs.storage.lakes.table_columns import TableDiffers
from tests.jobs.harness import SOURCE, Reading, lake_of, published, run, write_lines, write_source

BEFORE = (
    SOURCE[: SOURCE.index("  shifts:")]
    .replace("load: int", "load: 'decimal(6, 1)'")
    .replace("heat: float", "heat: int")
)
BEFORE = BEFORE.replace("mean: avg(heat)", "warmest: max(heat)")


@pytest.mark.parametrize(
    ("stands", "wanted", "holds"),
    [
        ("bigint", "double", True),
        ("array<bigint>", "array<decimal(21,2)>", True),
        ("bigint", "decimal(20,2)", False),
        ("decimal(6,1)", "decimal(8,3)", True),
        ("decimal(6,1)", "decimal(7,3)", False),
        ("decimal(6,1)", "decimal(9,0)", False),
        ("double", "bigint", False),
        ("bigint", "string", False),
        ("bigint", "array<bigint>", False),
        ("timestamp", "date", False),
    ],
)
def test_a_type_is_wider_if_it_holds_every_value(stands: str, wanted: str, *, holds: bool) -> None:
    assert widens(stands, wanted) == holds


def whole(reading: Reading) -> str:
    """Its line with a whole number for its heat."""
    return json.dumps({**json.loads(reading.line()), "heat": reading.load})


@pytest.mark.spark
@pytest.mark.turns
def test_wider_types_are_taken_up_and_others_refused(
    lake: SparkSession, spark_settings: Settings, tmp_path: Path
) -> None:
    home = spark_settings.model_copy(update={"home": tmp_path, "landing": tmp_path / "landing"})
    home = write_source(home, BEFORE)
    write_lines(home, 0, [whole(Reading(0, 10 + i, "xy"[i % 2], 3 * i)) for i in range(5)])
    assert run(lake, home, 0, 0)[0]["rows"] == 5
    before = published(lake, "silver.hourly")
    wider = BEFORE.replace("decimal(6, 1)", "decimal(12, 3)").replace("heat: int", "heat: float")

    write_source(home, BEFORE.replace("decimal(6, 1)", "decimal(5, 1)"))
    with pytest.raises(TableDiffers, match="tidemark source reset"):
        run(lake, home, 0, 0, accept_definition=True)
    write_source(home, wider)
    source = load_source(home.sources / "meters.yml")
    with pytest.raises(DefinitionChanged, match="parse"):
        run(lake, home, 0, 0)
    planned = plan_run(home, source, source.drops.interval(0), lake, sample=0)
    assert planned.changed_definition == ["parse"]
    assert published(lake, "silver.hourly") == before, "a plan writes nothing"
    landed = run(lake, home, 0, 0, accept_definition=True)[0]
    assert (landed["rows"], landed["rows_back"]) == (0, 0), "values are what they were"
    types = dict(lake.table("silver.hourly").dtypes)
    noted = properties(lake_of(lake).folder.handle(definitions(source)[0].table()))
    assert noted["tidemark.identity"] == "meters,meter,window_start", "the table is the same one"
    assert lake.catalog.getTable("silver.hourly_history").description
    assert types["total"].endswith(",3)")
    assert types["warmest"] == "double"
    assert [tuple(map(float, row[3:6])) for row in published(lake, "silver.hourly")] == [
        tuple(map(float, row[3:6])) for row in before
    ]
    assert lake.table("silver.hourly").orderBy("window_end").collect()[0].total == Decimal("0.000")
    write_lines(home, 1, [whole(Reading(1, 1500, "x", 7))])
    run(lake, home, 1, 1)
    assert lake.table("bronze.meters_deltas").count() == 6
    assert not audit(home, source, lake).failed
    write_source(home, BEFORE)
    with pytest.raises(TableDiffers):
        run(lake, home, 1, 1, accept_definition=True)
