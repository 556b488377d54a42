"""The order in which Airflow starts tasks when it has fewer slots than tasks that could run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.task.priority_strategy import PriorityWeightStrategy

from spark_jobs.model import is_backfill

if TYPE_CHECKING:
    from airflow.models.taskinstance import TaskInstance

BACKFILL, DAY = 1, 10


class DayFirst(PriorityWeightStrategy):
    """Puts the tasks of a daily run before those of any source's backfill."""

    def get_weight(self, ti: TaskInstance) -> int:
        """The weight of a task: DAY, or the smaller BACKFILL if its run is a backfill."""
        return BACKFILL if is_backfill(ti.run_id) else DAY
