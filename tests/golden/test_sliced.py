"""Hot keys that the pipeline cuts into slices publish what whole keys do."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_jobs.config import Settings
from spark_jobs.engine.windows import Spread
from spark_jobs.restatement import windows
from tests.golden.test_golden import compare, home
from tests.jobs.harness import run, write_source
from tests.jobs.test_windows import records, source_text, write
from tests.support.distribution import distribute_all

pytestmark = [pytest.mark.spark, pytest.mark.turns]

__all__ = ["home"]


@pytest.mark.parametrize("way", ["in threads", pytest.param("in tasks", marks=pytest.mark.long)])
def test_keys_cut_into_slices_publish_the_same_days(
    lake: SparkSession, home: Settings, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    cut = 0
    spread = windows.spread

    def counted(*args: Any, **how: Any) -> Spread:
        nonlocal cut
        over = spread(*args, **how)
        cut += len(over.hot)
        return over

    monkeypatch.setattr(windows, "_rows_a_slice", lambda *_: 8)
    monkeypatch.setattr(windows, "spread", counted)
    if way == "in tasks":
        distribute_all(monkeypatch)
    write_source(home, source_text())
    write(home, records(seed=31))
    for day in (2, 0, 3, 1):
        run(lake, home, day, day)
    assert cut > 10
    compare("meters-2031", lake)
