"""The engine owes nothing to one machine: executors that are processes of their own publish the same bags."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

MASTER = "local-cluster[2,1,2048]"
"""Two executors with one core and 2 GiB each."""
HERE = Path(__file__).parent


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(3600)
def test_executors_of_their_own_publish_the_golden_bags() -> None:
    days = f"{HERE / 'test_golden.py'}::test_days_of_flights_and_of_weather_with_chains"
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", days],
        env={**os.environ, "TEST_SPARK_MASTER": MASTER},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
