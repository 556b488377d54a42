"""The time from which Airflow counts the deadline of a run."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from airflow.sdk.definitions.deadline import BaseDeadlineReference, deadline_reference

if TYPE_CHECKING:
    from sqlalchemy.orm import Session


@deadline_reference
class DropEnd(BaseDeadlineReference):
    """The end of the run's drop, from which its deadline counts. It is looked up, since months, and days around a
    change of clocks, differ in length."""

    required_kwargs = frozenset({"dag_id", "run_id"})

    def _evaluate_with(self, *, session: Session, **kwargs: Any) -> datetime | None:
        """The end of the run's data interval. The scheduler calls this when it makes a run."""
        from airflow.models import DagRun
        from sqlalchemy import select

        of_run = (DagRun.dag_id == kwargs["dag_id"], DagRun.run_id == kwargs["run_id"])
        end: datetime | None = session.scalar(select(DagRun.data_interval_end).where(*of_run))
        return end
