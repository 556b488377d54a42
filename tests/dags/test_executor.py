"""A deferred task is resumed only once the end of its earlier process was read. The workers are real processes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytestmark = pytest.mark.slow

KEY = "land of a run, first try"


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "journal"


@pytest.fixture
def executor(journal: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    from airflow.executors.base_executor import BaseExecutor

    from spark_jobs.scheduling.executor import ResumingExecutor

    def work(workload: Any, **_: Any) -> None:
        for line in ("begins", "ends"):
            with journal.open("a") as file:
                file.write(f"{os.getpid()} {line}\n")
            time.sleep(workload.lasts_s)

    monkeypatch.setattr(BaseExecutor, "run_workload", work)
    started = ResumingExecutor(parallelism=2)
    started.start()
    yield started
    for worker in started.workers.values():
        worker.terminate()


def queue(executor: Any, lasts_s: float) -> None:
    from airflow.utils.state import TaskInstanceState

    executor.queued_tasks[KEY] = SimpleNamespace(
        key=KEY,
        ti=SimpleNamespace(priority_weight=1),
        display_name="land",
        running_state=None,
        success_state=TaskInstanceState.SUCCESS,
        failure_state=TaskInstanceState.FAILED,
        lasts_s=lasts_s,
    )


def lines(journal: Path) -> list[str]:
    return [line.split()[1] for line in journal.read_text().splitlines()] if journal.exists() else []


def beat_until(executor: Any, condition: Any) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        executor.heartbeat()
        time.sleep(0.02)


def test_a_task_stays_queued_until_the_end_of_its_earlier_process_was_read(executor: Any, journal: Path) -> None:
    queue(executor, 0.3)
    beat_until(executor, lambda: lines(journal))
    queue(executor, 0.1)
    beat_until(executor, lambda: KEY in executor.event_buffer)
    assert lines(journal) == ["begins", "ends"]
    assert KEY in executor.queued_tasks, "the scheduler passes over the end of a task that is queued"
    executor.event_buffer.clear()
    beat_until(executor, lambda: KEY in executor.event_buffer)
    assert lines(journal) == ["begins", "ends"] * 2
    assert not executor.queued_tasks


def test_a_task_whose_earlier_process_was_killed_is_resumed_after_a_while(
    executor: Any, journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_jobs.scheduling.executor.LOST_S", 0.5)
    queue(executor, 30)
    beat_until(executor, lambda: lines(journal))
    os.kill(int(journal.read_text().split()[0]), 9)
    queue(executor, 0.0)
    executor.heartbeat()
    assert KEY in executor.queued_tasks
    beat_until(executor, lambda: KEY in executor.event_buffer)
    assert lines(journal) == ["begins", "begins", "ends"]
