"""The parts of Tidemark that Airflow itself runs: the timetable of a source's drops, the triggers with which runs wait,
the alerts, and the executor of its tasks.

Airflow's scheduler, API server and triggerer import this package from the installation; they need no DAG file for it.
"""
