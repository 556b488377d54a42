"""`guard/LostTasks.scala`: a task whose thread is gone without a report is repeated."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.long]


def test_a_task_without_a_thread_is_repeated(spark: Any, tmp_path: Path) -> None:
    begun = tmp_path / "begun"

    def rows(batches: Any) -> Any:
        if begun.exists():
            yield from batches
        else:
            begun.touch()
            time.sleep(60)

    def count() -> int:
        return spark.range(0, 3, 1, 1).mapInArrow(rows, "id long").count()

    spark._jvm.org.apache.spark.scheduler.tidemark.LostTasks.watch(spark.sparkContext._jsc.sc())
    with ThreadPoolExecutor(1) as pool:
        counted = pool.submit(count)
        while not begun.exists():
            time.sleep(0.1)
        (thread,) = task_threads(spark)
        thread.setName("a thread without a task")
        assert counted.result(timeout=50) == 3


def task_threads(spark: Any) -> list[Any]:
    threads = spark._jvm.java.lang.Thread.getAllStackTraces().keySet()
    return [each for each in threads if each.getName().startswith("Executor task launch worker for task")]
