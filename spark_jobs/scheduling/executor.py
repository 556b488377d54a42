"""Airflow's local executor, changed to resume a deferred task only after the end of its earlier process is known."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from airflow.executors.local_executor import LocalExecutor
from airflow.utils.state import TaskInstanceState

LOST_S = 60.0
"""The most seconds that a task waits for the end of its earlier process. A killed worker never reports that end."""

ENDED = frozenset({TaskInstanceState.SUCCESS, TaskInstanceState.FAILED})


class ResumingExecutor(LocalExecutor):
    """LocalExecutor for deferred tasks.

    A task that waits for its turn ends its process and is resumed under the same key. If its turn comes at once, the
    scheduler may resume the task before it has read the report of that end. It would then take the report for that of
    the resumed process, and fail the task. A resumed task therefore stays queued until the end of its earlier process
    was read: the scheduler ignores such a report for a queued task.
    """

    def start(self) -> None:
        """Start the executor; the scheduler calls this once."""
        self._under_way: set[Any] = set()
        self._held_since: dict[Any, float] = {}
        super().start()

    def trigger_tasks(self, open_slots: int) -> None:
        """Start queued tasks, except those whose earlier process is not known to have ended."""
        now = time.monotonic()
        waiting = {}
        for key in self._under_way & self.queued_tasks.keys():
            if now - self._held_since.setdefault(key, now) < LOST_S:
                waiting[key] = self.queued_tasks.pop(key)
        super().trigger_tasks(open_slots)
        self.queued_tasks.update(waiting)

    def _process_workloads(self, workload_list: Sequence[Any]) -> None:
        for workload in workload_list:
            self._under_way.add(workload.key)
            self._held_since.pop(workload.key, None)
        super()._process_workloads(workload_list)

    def change_state(self, key: Any, state: Any, info: Any = None, remove_running: bool = True) -> None:
        """Note the new state of a task; called for each report of a worker."""
        if state in ENDED:
            self._under_way.discard(key)
        super().change_state(key, state, info, remove_running)
