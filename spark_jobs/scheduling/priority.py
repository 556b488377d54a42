"""Which tasks Airflow starts first where more could run than it has slots for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.task.priority_strategy import PriorityWeightStrategy

from spark_jobs.model import is_backfill

if TYPE_CHECKING:
    from airflow.models.taskinstance import TaskInstance

BACKFILL, DAY = 1, 10


class DayFirst(PriorityWeightStrategy):
    """A day's tasks before those of any source's backfill."""

    def get_weight(self, ti: TaskInstance) -> int:
        """The weight of a task of a run."""
        return BACKFILL if is_backfill(ti.run_id) else DAY
