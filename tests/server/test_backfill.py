"""What a backfill asks of Airflow: of a paused DAG nothing that starts runs nobody asked for."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, cast

import pytest

from spark_jobs.server import backfill as backfills
from spark_jobs.server.airflow_api import AirflowApi, AirflowRefused
from spark_jobs.server.backfill import BackfilledRun, BackfillFailed, DagPaused, backfill

DAY = datetime(2015, 1, 1, tzinfo=UTC)


class Airflow:
    """As much of Airflow's API as a backfill uses: its one run ends once it has been looked at twice, unless the DAG
    is paused. `calls` are those that change something."""

    def __init__(self, *, paused: bool, outcome: str = "success", refuses: bool = False) -> None:
        self.paused, self.outcome, self.refuses = paused, outcome, refuses
        self.calls: list[tuple[str, Any]] = []
        self.looks = 0

    def get(self, path: str, **_: Any) -> Any:
        if path == "dags/meters":
            return {"is_paused": self.paused}
        if path == "backfills/7":
            return {"completed_at": "2015-01-02T00:00:00Z" if self.looks > 2 else None}
        self.looks += not self.paused
        state = self.outcome if self.looks > 2 else "running"
        run = {"dag_run_id": "r", "logical_date": "2015-01-01T00:00:00Z", "state": state}
        return {"dag_runs": [{**run, "start_date": None, "end_date": None}]}

    def patch(self, path: str, body: Any) -> Any:
        self.paused = body["is_paused"]
        self.calls.append(("paused", self.paused))

    def post(self, path: str, body: Any) -> Any:
        if self.refuses:
            raise AirflowRefused(expected="a", found="b", status=409, path=path)
        self.calls.append((path, body["dag_run_conf"]))
        return {"id": 7}


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backfills, "POLL_S", 0.0)


def run(airflow: Airflow, *, by_itself: bool = False, **options: bool) -> list[BackfilledRun]:
    return backfill(cast(AirflowApi, airflow), "meters", DAY, DAY, by_itself=by_itself, **options)


def test_a_paused_dag_that_nothing_starts_is_unpaused_until_the_runs_have_ended() -> None:
    airflow = Airflow(paused=True)
    assert [each.state for each in run(airflow)] == ["success"]
    assert airflow.calls == [("backfills", {}), ("paused", False), ("paused", True)]


def test_a_paused_dag_with_a_schedule_stays_paused_unless_told() -> None:
    airflow = Airflow(paused=True)
    with pytest.raises(DagPaused, match="--unpause"):
        run(airflow, by_itself=True)
    assert airflow.calls == []
    run(airflow, by_itself=True, unpause=True)
    assert airflow.calls == [("backfills", {}), ("paused", False)]


def test_a_dag_that_is_not_paused_is_left_so() -> None:
    airflow = Airflow(paused=False)
    run(airflow, by_itself=True, pass_gap=True)
    assert airflow.calls == [("backfills", {"pass_gap": True})]


def test_a_failed_run_is_told_and_the_dag_is_paused_again() -> None:
    airflow = Airflow(paused=True, outcome="failed")
    with pytest.raises(BackfillFailed, match="2015-01-01 failed"):
        run(airflow)
    assert airflow.paused


def test_a_backfill_that_airflow_refuses_unpauses_nothing() -> None:
    airflow = Airflow(paused=True, refuses=True)
    with pytest.raises(AirflowRefused):
        run(airflow)
    assert airflow.paused
