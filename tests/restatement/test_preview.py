"""What a plan shows of tables, as far as it needs no Spark: nothing is asked of tables that nothing was written to."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from spark_jobs.restatement.preview import _by_columns, differences
from spark_jobs.sources import Source, load_source
from spark_jobs.storage.lakes.overlay import OverlayLake

FLIGHTS: Source = load_source(Path(__file__).parents[2] / "dags" / "sources" / "flights.yml")


def test_tables_that_nothing_was_written_to_are_not_asked() -> None:
    lake = cast(OverlayLake, SimpleNamespace(wrote=lambda _: False))
    found = differences(lake, FLIGHTS, 10)
    assert [(table.table, table.rows, table.sample) for table in found] == [
        ("silver.departure_delays", 0, []),
        ("silver.rotations", 0, []),
        ("gold.flights", 0, []),
    ]
    assert found[-1].identity == ("tailnum",)


def test_a_state_is_shown_by_the_columns_of_its_view() -> None:
    when = datetime(2013, 1, 1, tzinfo=UTC)
    update: dict[str, Any] = {
        "change": "inserted", "diff": 1, "entity": "N1", "timestamp": when, "at_delta": 7, "delta_count": 2,
        "names": ["flights", "air_minutes", "miles", "delay_minutes"], "ints": [2, 90, 300, -4], "floats": None,
        "seen": [True] * 4,
    }  # fmt: skip
    shown = {"change": "inserted", "diff": 1, "tailnum": "N1", "flights": 2, "air_minutes": 90, "miles": 300}
    assert _by_columns(update, FLIGHTS) == shown | {"delay_minutes": -4, "timestamp": when, "delta_count": 2}
    gone = _by_columns(update | {"ints": None}, FLIGHTS)
    assert [gone[name] for name in update["names"]] == [None] * 4
