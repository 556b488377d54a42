"""Backfills through Airflow: real runs of a source's DAG for a range of drops, watched until they have ended."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from spark_jobs.errors import TidemarkError
from spark_jobs.server.airflow_api import AirflowApi, AirflowRefused

POLL_S = 1.0
CREATE_WAIT_S = 60.0
DAG_WAIT_S = 120.0
"""How long a DAG may take to appear after its file did: Airflow looks for new files every few seconds."""

ENDED = ("success", "failed")


class DagPaused(TidemarkError):
    """Runs of a paused DAG don't get on, and to unpause it would start runs that nobody asked for. Facts: `dag`."""

    code = "dag_paused"


class BackfillFailed(TidemarkError):
    """Runs of a backfill failed. Facts: `dag`, `runs` (run id -> state)."""

    code = "backfill_failed"


@dataclass(frozen=True, slots=True)
class BackfilledRun:
    """One run of a backfill: its id, the start of its interval, its state and how long it took (None: not ended)."""

    run_id: str
    lo: str
    state: str
    seconds: float | None


def backfill(
    api: AirflowApi,
    dag: str,
    lo: datetime,
    last: datetime,
    *,
    by_itself: bool,
    unpause: bool = False,
    pass_gap: bool = False,
    on_change: Callable[[list[BackfilledRun]], None] = lambda _: None,
) -> list[BackfilledRun]:
    """Run `dag` for every interval that starts in `[lo, last]`, one after another, again where it ran before, and wait
    until all have ended, behind other runs of the source too. Who stops waiting leaves the runs to Airflow.

    A paused DAG gets on with no run. One that starts runs only when asked (`by_itself` is false) is unpaused for the
    time of the backfill; one with a schedule would start a run of today as well, so it is unpaused, for good, only with
    `unpause`.

    Raises:
        AirflowRefused: Airflow does not know the DAG, or refuses the backfill (one at a time per DAG).
        DagPaused: the DAG is paused, has a schedule, and `unpause` is not given.
        BackfillFailed: a run failed.
    """
    paused = _wait_for_dag(api, dag)["is_paused"]
    if paused and by_itself and not unpause:
        raise _paused(dag)
    request = {
        "dag_id": dag,
        "from_date": lo.isoformat(),
        "to_date": last.isoformat(),
        "run_backwards": False,
        "dag_run_conf": {"pass_gap": True} if pass_gap else {},
        "reprocess_behavior": "completed",
        "max_active_runs": 1,
    }
    identity = _create(api, request)["id"]
    if paused:
        api.patch(f"dags/{dag}", {"is_paused": False})
    runs = _ended_runs(api, dag, identity, lo, last, on_change)
    # not before they have ended: runs of a paused DAG don't get on
    if paused and not by_itself:
        api.patch(f"dags/{dag}", {"is_paused": True})
    if any(run.state != "success" for run in runs):
        raise _failed(dag, runs)
    return runs


def _ended_runs(
    api: AirflowApi,
    dag: str,
    identity: int,
    lo: datetime,
    last: datetime,
    on_change: Callable[[list[BackfilledRun]], None],
) -> list[BackfilledRun]:
    """The runs of the backfill `identity` once all have ended."""
    seen: list[BackfilledRun] = []
    while True:
        runs = _runs(api, dag, lo, last)
        if runs != seen:
            on_change(runs)
            seen = runs
        ended = api.get(f"backfills/{identity}")["completed_at"] is not None
        if ended and runs and all(run.state in ENDED for run in runs):
            return runs
        time.sleep(POLL_S)


def _create(api: AirflowApi, request: dict[str, Any]) -> Any:
    """Create a backfill; on SQLite Airflow refuses with 503 while another of its processes writes, so: patiently."""
    deadline = time.monotonic() + CREATE_WAIT_S
    while True:
        try:
            return api.post("backfills", request)
        except AirflowRefused as refusal:
            if refusal.facts["status"] != 503 or time.monotonic() > deadline:
                raise
        time.sleep(POLL_S)


def _wait_for_dag(api: AirflowApi, dag: str) -> Any:
    """What Airflow says of the DAG, once it knows it."""
    deadline = time.monotonic() + DAG_WAIT_S
    while True:
        try:
            return api.get(f"dags/{dag}")
        except AirflowRefused as refusal:
            if refusal.facts["status"] != 404 or time.monotonic() > deadline:
                raise
        time.sleep(POLL_S)


def _runs(api: AirflowApi, dag: str, lo: datetime, last: datetime) -> list[BackfilledRun]:
    between = {"logical_date_gte": lo.isoformat(), "logical_date_lte": last.isoformat()}
    found = api.get(f"dags/{dag}/dagRuns", order_by="logical_date", limit=1000, **between)["dag_runs"]
    return [BackfilledRun(r["dag_run_id"], r["logical_date"], r["state"], _seconds(r)) for r in found]


def _seconds(run: dict[str, Any]) -> float | None:
    if run["start_date"] is None or run["end_date"] is None:
        return None
    begun, ended = (datetime.fromisoformat(run[name]) for name in ("start_date", "end_date"))
    return round((ended - begun).total_seconds(), 1)


def _paused(dag: str) -> DagPaused:
    return DagPaused(
        expected=f"the DAG {dag} to be unpaused, or to have no schedule",
        found="a paused one that is scheduled: unpausing it starts a run of the last drop as well, and from then on one"
        " after each drop",
        consequence="nothing was started",
        next_step="repeat it with --unpause if its schedule may begin; or write `dag: {schedule: manual}` in the source"
        " file; or use `tidemark run`, which needs no Airflow",
        dag=dag,
    )


def _failed(dag: str, runs: list[BackfilledRun]) -> BackfillFailed:
    told = ", ".join(f"{run.lo[:10]} {run.state}" for run in runs if run.state != "success") or "no run"
    return BackfillFailed(
        expected=f"every run of {dag} to succeed",
        found=told,
        consequence="nothing of a failed run is published",
        next_step="look at the run in Airflow's UI, or at its tasks' logs",
        dag=dag,
        runs={run.run_id: run.state for run in runs},
    )
