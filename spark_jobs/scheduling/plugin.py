"""Tells Airflow of the timetable; Airflow finds the plugin by the package's entry point `airflow.plugins`."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin

from spark_jobs.scheduling.timetable import DropTimetable


class TidemarkPlugin(AirflowPlugin):
    """What Tidemark adds to Airflow."""

    name = "tidemark"
    timetables = [DropTimetable]  # noqa: RUF012 (Airflow's own form)
