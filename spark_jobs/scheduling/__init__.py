"""What Airflow itself runs of Tidemark: the timetable of a source's drops, how runs wait for their turn, and the
executor of its tasks.

Airflow's scheduler, API server and triggerer import it where the package is installed; they need no DAG file.
"""
