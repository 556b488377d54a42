"""Compact: fold the touched entities' chains into states, and merge what the trace's frontiers allow."""

from __future__ import annotations

from spark_jobs.jobs.context import Stage
from spark_jobs.restatement.states import state_corrections
from spark_jobs.storage.tables import STATE


def compact(stage: Stage) -> None:
    """Write the corrections of `gold.state`; nothing is visible before `publish`."""
    if stage.scope.nothing_to_do():
        return
    rows = state_corrections(stage.lake, stage.scope, stage.fence.token)
    if rows is not None:
        stage.lake.append(STATE, rows, stage.fence)
