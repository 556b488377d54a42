"""A run that ends at any commit, and is run again, leaves what an undisturbed run leaves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_jobs.config import Settings
from spark_jobs.model import STAGES
from spark_jobs.storage.descriptions.schema import Table
from spark_jobs.storage.lakes.file_lake import FileLake
from spark_jobs.storage.lakes.lake import RunLake
from spark_jobs.storage.lakes.spark_lake import SparkLake
from tests.empty_lake import empty
from tests.jobs.harness import published, run, write_drops, write_source
from tests.jobs.test_chains import UPSERT, upserts, write
from tests.jobs.test_pipeline import ALL, READINGS

pytestmark = [pytest.mark.spark, pytest.mark.long]


class Killed(BaseException):
    """The process ends here."""


@pytest.fixture
def home(spark_settings: Settings, tmp_path: Path) -> Settings:
    settings = spark_settings.model_copy(update={"home": tmp_path, "landing": tmp_path / "landing"})
    write_drops(settings, READINGS)
    return write_source(settings)


def _undisturbed(spark: SparkSession, home: Settings, names: Sequence[str] = ALL) -> dict[str, list[tuple[Any, ...]]]:
    for day in range(2):
        run(spark, home, day, day)
    expected = {table: published(spark, table, "final") for table in names}
    empty(spark)
    return expected


COMMITS = (
    "bronze.meters_chunks",
    "bronze.files",
    "trace.meters_updates",
    "trace.frontiers",
    "silver.hourly_history",
    "silver.shifts_history",
    "silver.late_history",
    "gold.state_history",
    "quality.results",
    "trace.published",
)
"""What a day with a late row commits, in order."""


def test_a_run_killed_after_each_of_its_commits_and_run_again(
    lake: SparkSession, home: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = _undisturbed(lake, home)
    run(lake, home, 0, 0)
    before = {table: published(lake, table) for table in ALL}
    for target in COMMITS:
        with monkeypatch.context() as patch, pytest.raises(Killed, match=target):
            kill_after(patch, target)
            run(lake, home, 1, 1)
        if target != COMMITS[-1]:
            assert before == {table: published(lake, table) for table in ALL}, f"visible after {target}"
    assert expected == {table: published(lake, table, "final") for table in ALL}
    _assert_at_rest(lake, home)
    assert expected == {table: published(lake, table, "final") for table in ALL}


GOLD = ("gold.meters", "gold.checkpoints", "gold.chains", "gold.refused")


def test_chains_after_a_kill_at_each_of_golds_commits_are_those_of_an_undisturbed_run(
    lake: SparkSession, home: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_source(home, UPSERT)
    for day, rows in upserts().items():
        write(home, day, rows)
    expected = _undisturbed(lake, home, GOLD)
    assert all(expected[table] for table in GOLD[:3])
    run(lake, home, 0, 0)
    before = {table: published(lake, table) for table in GOLD}
    for target in ("gold.state_history", "gold.chain_history", "quality.results", "trace.published"):
        with monkeypatch.context() as patch, pytest.raises(Killed, match=target):
            kill_after(patch, target)
            run(lake, home, 1, 1)
        if target != "trace.published":
            assert before == {table: published(lake, table) for table in GOLD}, f"visible after {target}"
    assert expected == {table: published(lake, table) for table in GOLD}
    _assert_at_rest(lake, home)


def _assert_at_rest(spark: SparkSession, home: Settings) -> None:
    """The first run with nothing new records the publication after which the run before was killed, and removes the
    batches that merges have replaced. The next one finds nothing to do."""
    first, second = ({s["stage"]: s["commits"] for s in run(spark, home, 1, 1)} for _ in range(2))
    assert {**first, "compact": 0} == {**dict.fromkeys(STAGES, 0), "publish": 1}
    assert second == dict.fromkeys(STAGES, 0)


def kill_after(patch: pytest.MonkeyPatch, target: str) -> None:
    """Let the commits through, and end the process after the one to the table `target`."""
    for name in ("append", "append_files", "append_dense", "replace_files", "record", "replace_record"):
        for kind in (SparkLake, FileLake):
            if hasattr(kind, name):
                patch.setattr(kind, name, _dying(getattr(kind, name), target))


def _dying(original: Callable[..., None], target: str) -> Callable[..., None]:
    def commit(self: RunLake, table: Table, *arguments: object) -> None:
        original(self, table, *arguments)
        if table.qualified == target:
            raise Killed(target)

    return commit
