"""Erasures in tests: files of drops, what tables say now and then, and the search for what is left of a value."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_jobs.config import Settings
from spark_jobs.erasure.erase import erase
from spark_jobs.erasure.words import names_value
from spark_jobs.landing.choices import Choice
from spark_jobs.sources import Source
from spark_jobs.storage.delta.places import lake_root
from tests.jobs.harness import DAY, START, published

DROPS = 3
"""The number of drops in whose publications `at_times` reads."""
LEFT_OUT = ("revision", "at_delta", "row_id", "source")
"""Columns in which two lakes with the same rows may differ."""


class Killed(BaseException):
    """The command's process ends here."""


def land(settings: Settings, source: str, drop: int, lines: list[str], name: str = "a.ndjson") -> Path:
    """Write the file of a drop; returns its path."""
    day = (START + drop * DAY).date()
    path = Path(settings.landing) / source / str(day) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{text}\n" for text in lines))
    return path


def at_times(lake: SparkSession, table: str) -> dict[str, Any]:
    """The rows of a published table now and as of each publication, without `LEFT_OUT`."""
    answers: dict[str, Any] = {"now": published(lake, table, *LEFT_OUT)}
    for drop in range(DROPS):
        seal = START + (drop + 1) * DAY - timedelta(microseconds=1)
        as_of = f"{table}_as_of(timestamp'{seal:%Y-%m-%dT%H:%M:%S.%fZ}')"
        rows = lake.sql(f"SELECT * FROM {as_of}")
        columns = [column for column in rows.columns if column not in LEFT_OUT]
        answers[str(drop)] = sorted(map(repr, rows.select(*columns).collect()))
    return answers


def erase_until(step: str, lake: SparkSession, home: Settings, source: Source, choice: Choice) -> None:
    """Begin or go on with an erasure, and have its process end before a step."""

    def on_step(name: str) -> None:
        if name == step:
            raise Killed

    with pytest.raises(Killed):
        erase(home, source, lake, choice, "asked", on_step)


def assert_nothing_left(lake: SparkSession, home: Settings, value: str) -> None:
    """No file of the lake or of the home has the value, but for those that landed."""
    for root in (Path(lake_root(lake)), home.home):
        for path in root.rglob("*"):
            if path.is_file() and Path(home.landing) not in path.parents:
                with path.open("rb") as file:
                    assert not names_value(file, value), path


def rows_in_files(lake: SparkSession) -> list[Any]:
    """The rows of each file by the ledger: those that landed, and those that were rejected or duplicates."""
    total = "sum(rows - rows_back + rejects - rejects_back + duplicates - duplicates_back)"
    return lake.sql(f"SELECT path, {total} AS n FROM bronze.files GROUP BY path ORDER BY path").collect()
