"""A DAG of a team's own, which runs once meters have published."""

from typing import Any

from airflow.sdk import Asset, dag, task


@dag(schedule=[Asset("tidemark://published/meters")], catchup=False)
def after_meters() -> None:
    """Say what was published."""

    @task
    def tell(triggering_asset_events: Any = None) -> list[str]:
        """One line for each publication since this DAG ran last."""
        events = [event for of_asset in triggering_asset_events.values() for event in of_asset]
        lines = [f"{e.extra['from']} to {e.extra['to']}: {e.extra['rows']} rows, see {e.extra['page']}" for e in events]
        for line in lines:
            print(line)
        return lines

    tell()


after_meters()
