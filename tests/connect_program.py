"""A program with a Spark Connect server of its own, in a process apart from the tests' classic session."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.installations import CHECKOUT

_OF_SESSION = ("PYSPARK_SUBMIT_ARGS", "SPARK_CONNECT_MODE_ENABLED")
"""Variables that the tests' own session sets in this process. A program with them would open the catalog of that
session, which is locked."""


def run_program(program: str, folder: Path, timeout_s: float = 600) -> str:
    """Run a program that must succeed, in `folder`, where Spark makes `spark-warehouse`; returns its output."""
    command = [sys.executable, "-c", program]
    done = subprocess.run(
        command, env=environment(folder), cwd=folder, capture_output=True, text=True, check=False, timeout=timeout_s
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def environment(folder: Path) -> dict[str, str]:
    """The environment of such a program, without the settings of the tests' own session; Spark's scratch files are in
    the folder."""
    return {
        **{name: value for name, value in os.environ.items() if name not in _OF_SESSION},
        "PYTHONPATH": str(CHECKOUT),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_DIRS": str(folder),
        # on a port that is free
        "SPARK_TESTING": "1",
    }
