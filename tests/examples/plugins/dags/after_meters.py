"""A DAG of a team's own, which runs once meters have published."""

from airflow.sdk import Asset, dag, task


@dag(schedule=[Asset("tidemark://published/meters")], catchup=False)
def after_meters():
    """Say what was published."""

    @task
    def tell(inlet_events=None):
        print(inlet_events)

    tell()


after_meters()
