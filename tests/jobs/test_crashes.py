"""A run that ends at any commit, and is run again, leaves what an undisturbed run leaves."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.config import Settings
from spark_jobs.storage.lake import Lake
from tests.jobs.harness import DATABASES, published, run, write_drops, write_source
from tests.jobs.test_pipeline import ALL, READINGS

pytestmark = [pytest.mark.spark, pytest.mark.long]


class Killed(BaseException):
    """The process ends here."""


@pytest.fixture
def home(spark_settings: Settings, tmp_path: Path) -> Settings:
    settings = spark_settings.model_copy(update={"home": tmp_path, "landing": tmp_path / "landing"})
    write_drops(settings, READINGS)
    return write_source(settings)


def _undisturbed(spark: SparkSession, home: Settings) -> dict[str, list]:
    for day in range(2):
        run(spark, home, day, day)
    expected = {table: published(spark, table, "final") for table in ALL}
    for database in DATABASES:
        spark.sql(f"DROP DATABASE IF EXISTS {database} CASCADE")
    return expected


def test_a_run_killed_after_each_of_its_commits_and_run_again(
    lake: SparkSession, home: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = _undisturbed(lake, home)
    run(lake, home, 0, 0)
    before = {table: published(lake, table) for table in ALL}
    made: list[str] = []
    for name in ("append", "replace_source"):
        _count_and_kill(monkeypatch, name, made)
    killed_at = []
    while True:
        made.clear()
        budget = len(killed_at) + 1
        monkeypatch.setattr(Lake, "budget", budget, raising=False)
        try:
            run(lake, home, 1, 1)
        except Killed as end:
            killed_at.append(str(end))
            if str(end) != "trace.published":
                assert before == {table: published(lake, table) for table in ALL}, f"visible after {end}"
            if str(end) == "trace.published":
                break
        else:
            break
    assert killed_at[0] == "bronze.meters_chunks"
    assert {"bronze.files", "trace.frontiers", "gold.state_history"} <= set(killed_at)
    monkeypatch.setattr(Lake, "budget", 10**6)
    run(lake, home, 1, 1)
    assert expected == {table: published(lake, table, "final") for table in ALL}


def _count_and_kill(monkeypatch: pytest.MonkeyPatch, name: str, made: list[str]) -> None:
    """Let the commit through, then end the process if it was the last one of this attempt's budget."""
    original = getattr(Lake, name)

    def commit(self: Lake, table: object, *arguments: object) -> None:
        original(self, table, *arguments)
        made.append(table.qualified)  # type: ignore[attr-defined]
        if len(made) >= self.budget:  # type: ignore[attr-defined]
            raise Killed(made[-1])

    monkeypatch.setattr(Lake, name, commit)
