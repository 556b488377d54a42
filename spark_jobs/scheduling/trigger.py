"""Waiting for a run's turn without a task slot: Airflow's triggerer checks the line of runs that wait for a source."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from airflow.sdk.exceptions import AirflowRuntimeError
from airflow.triggers.base import BaseTrigger, TriggerEvent
from asgiref.sync import sync_to_async

from spark_jobs.storage.coordination.turns import Line, Turn

POLL_S = 2.0

UNDER_WAY = ("queued", "running")
"""States of a DAG run that has not ended."""


class DagRuns:
    """The runs of one DAG, as Airflow reports them inside a task or a trigger; `before` is an earlier run to let
    pass."""

    def __init__(self, dag_id: str, before: str | None = None) -> None:
        self._dag_id = dag_id
        self._before = before
        self._remark = ""

    def is_on(self, run_id: str) -> bool:
        """True if the run has not ended, or if Airflow does not answer now. False for a run that Airflow does not know.

        Runs are counted, since a request for the state of an unknown run makes an error in Airflow's log.
        """
        from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

        try:
            on = RuntimeTaskInstance.get_dr_count(self._dag_id, run_ids=[run_id], states=[*UNDER_WAY]) > 0
        except AirflowRuntimeError:
            self._remark = "as far as is known: Airflow does not answer now"
            return True
        self._remark = ""
        return on

    def remark(self) -> str:
        """A remark that Airflow did not answer the last question; empty if it did."""
        return self._remark

    def earlier_run(self, lo_us: int) -> str | None:
        """The earlier run to let pass, in words; None once it has ended, or if there is none."""
        if self._before is not None and self.is_on(self._before):
            return f"run {self._before}, whose drops are earlier"
        return None


class TurnTrigger(BaseTrigger):
    """Fires once the run has its turn; until then the task's log names the run that it waits for."""

    def __init__(
        self,
        *,
        leases: str,
        dag_id: str,
        run_id: str,
        lo_us: int,
        drops: str,
        before: str | None,
        first: bool = False,
    ) -> None:
        super().__init__()
        self._arguments = {
            "leases": leases,
            "dag_id": dag_id,
            "run_id": run_id,
            "lo_us": lo_us,
            "drops": drops,
            "before": before,
            "first": first,
        }
        turn = Turn(run_id, lo_us, drops, staged=True, first=first)
        self._waiting = Line(Path(leases), dag_id, turn, DagRuns(dag_id, before))

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """The class path and the arguments with which the triggerer makes the trigger again."""
        return f"{type(self).__module__}.{type(self).__qualname__}", self._arguments

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Check the line until the run has its turn, which the last check has then taken."""
        logged = None
        while (whom := await sync_to_async(self._waiting.step)()) is not None:
            if whom != logged:
                self.log.info("waits for %s", whom)
                logged = whom
            await asyncio.sleep(POLL_S)
        yield TriggerEvent(None)
