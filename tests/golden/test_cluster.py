"""The engine owes nothing to one machine: executors that are processes of their own publish the same bags."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from spark_jobs.config import Settings
from spark_jobs.jvm.jars import S3
from tests.moto import BUCKET, s3_server

MASTER = "local-cluster[2,1,2048]"
"""Two executors with one core and 2 GiB each."""
HERE = Path(__file__).parent
GOLDEN, COMMITS = HERE / "test_golden.py", HERE.parent / "storage" / "test_commits.py"


def passes_on_a_cluster(*tests: str, **environment: str) -> None:
    """Run tests in a session with executors of their own, whose lake the environment may put elsewhere."""
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests],
        env={**os.environ, "TIDEMARK_TEST_TURNS": "1", "TEST_SPARK_MASTER": MASTER, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert f"{len(tests)} passed" in ended.stdout


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(3600)
def test_executors_of_their_own_publish_the_golden_bags() -> None:
    passes_on_a_cluster(f"{GOLDEN}::test_days_of_flights_and_of_weather_with_chains")


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("days", ["two", "seven"])
def test_a_lake_and_a_landing_on_s3_publish_the_golden_bags(settings: Settings, tmp_path: Path, days: str) -> None:
    S3.fetch(settings)
    with s3_server(tmp_path) as environment:
        passes_on_a_cluster(
            f"{COMMITS}::test_commits_of_both_at_once_are_all_there",
            f"{COMMITS}::test_a_version_that_is_there_is_not_written_again",
            f"{GOLDEN}::test_days_of_flights[{days}]",
            TEST_LAKE=f"s3a://{BUCKET}/lake",
            TEST_LANDING=f"s3a://{BUCKET}/landing",
            **environment,
        )


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(1800)
def test_files_that_arrive_on_s3_land_in_a_lake_on_the_disk(settings: Settings, tmp_path: Path) -> None:
    with s3_server(tmp_path) as environment:
        passes_on_a_cluster(
            f"{GOLDEN}::test_days_of_flights[two]", TEST_LANDING=f"s3a://{BUCKET}/landing", **environment
        )
