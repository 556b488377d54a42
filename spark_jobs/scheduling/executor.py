"""Airflow's local executor, which resumes a task only once it knows that the process that deferred it has ended."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from airflow.executors.local_executor import LocalExecutor
from airflow.utils.state import TaskInstanceState

LOST_S = 60.0
"""How long a task waits for the end of its earlier process. A worker that was killed never reports it."""

ENDED = frozenset({TaskInstanceState.SUCCESS, TaskInstanceState.FAILED})


class ResumingExecutor(LocalExecutor):
    """LocalExecutor for deferred tasks.

    A task that waits for its turn ends its process and is resumed under the same key. Where its turn comes at once,
    the scheduler may resume it before it has read of that end; it takes the end for that of the resumed process then,
    and fails the task. A resumed task therefore stays queued until the end of its earlier process was read: the
    scheduler passes over the end of a task that is queued.
    """

    def start(self) -> None:
        """Called by the scheduler, once."""
        self._under_way: set[Any] = set()
        self._held_since: dict[Any, float] = {}
        super().start()

    def trigger_tasks(self, open_slots: int) -> None:
        """Start what is queued, except tasks whose earlier process has not been seen to end."""
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
        """Called for each report of a worker."""
        if state in ENDED:
            self._under_way.discard(key)
        super().change_state(key, state, info, remove_running)
