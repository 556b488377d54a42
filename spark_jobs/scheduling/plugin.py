"""Airflow's plugin with the timetable, the deadline, the priority and the portal. Airflow finds it by the package's
entry point `airflow.plugins`."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin

from spark_jobs.config import PORTAL_PREFIX
from spark_jobs.portal.app import LazyPortal, external_views
from spark_jobs.scheduling.deadline import DropEnd
from spark_jobs.scheduling.priority import DayFirst
from spark_jobs.scheduling.timetable import DropTimetable


class TidemarkPlugin(AirflowPlugin):
    """The classes and pages that Tidemark adds to Airflow."""

    name = "tidemark"
    timetables = [DropTimetable]  # noqa: RUF012 (Airflow's own form)
    deadline_references = [DropEnd]  # noqa: RUF012
    priority_weight_strategies = [DayFirst]  # noqa: RUF012
    fastapi_apps = [{"app": LazyPortal(), "url_prefix": PORTAL_PREFIX, "name": "Tidemark"}]  # noqa: RUF012
    external_views = external_views()
