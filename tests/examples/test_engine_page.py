"""The documentation's engine example runs, and prints the output that the page shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.turns]

CHECKOUT = Path(__file__).parents[2]
EXAMPLE = re.compile(r"```python\n(?P<program>.*?)```\n\n```\n(?P<output>\+--.*?)```", re.DOTALL)


def test_the_engine_example_runs_as_it_stands(tmp_path: Path) -> None:
    example = EXAMPLE.search((CHECKOUT / "docs" / "howto" / "engine.md").read_text(encoding="utf-8"))
    assert example is not None
    own = {"TIDEMARK_SPARK": "classic", "TIDEMARK_HOME": str(tmp_path), "PYTHONPATH": str(CHECKOUT)}
    done = subprocess.run(
        [sys.executable, "-c", example["program"]],
        env={**os.environ, **own},
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == example["output"].strip()
