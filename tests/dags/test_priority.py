"""A day's tasks come before those of any backfill where Airflow has fewer slots than tasks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytestmark = pytest.mark.slow


def test_the_tasks_of_a_backfill_weigh_less_than_all_others() -> None:
    from spark_jobs.scheduling.priority import DayFirst

    def task_of(run_id: str) -> Any:
        return SimpleNamespace(run_id=run_id)

    weights = {
        name: DayFirst().get_weight(task_of(name))
        for name in ("scheduled__2013-01-01", "manual__2013-01-01", "backfill__2013-01-01", "drops__2013-01-01__x")
    }
    assert min(weights["scheduled__2013-01-01"], weights["manual__2013-01-01"]) > max(
        weights["backfill__2013-01-01"], weights["drops__2013-01-01__x"]
    )


def test_airflow_knows_the_weights_by_the_packages_entry_point() -> None:
    from airflow.plugins_manager import get_priority_weight_strategy_plugins

    assert "spark_jobs.scheduling.priority.DayFirst" in get_priority_weight_strategy_plugins()
