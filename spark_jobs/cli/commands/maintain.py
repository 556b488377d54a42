"""`maintain`: keep the lake small and known to be whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from spark_jobs.cli.arguments import known_source, server_session
from spark_jobs.cli.output import JsonOption, emit, table
from spark_jobs.config import load_settings

if TYPE_CHECKING:
    from spark_jobs.jobs.maintenance import Step


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(maintain)


def maintain(
    source: Annotated[str | None, typer.Argument(help="One source alone, and nothing of the installation.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Merge chunks and trace, fold history, join small files, remove what is out of use, audit; back up, where
    TIDEMARK_BACKUP says where to, and remove old logs, reports, plans and, where Airflow runs, records of its runs.

    No answer changes, and runs go on. Airflow does the same every week (DAG tidemark-maintenance). A step that fails
    stops no other one; exit code 1 if any did.
    """
    from spark_jobs.sources import read_sources

    settings = load_settings()
    chosen = [known_source(settings, source)] if source else list(read_sources(settings.sources).sources.values())
    steps: list[Step] = []
    with server_session(settings, "tidemark-maintain") as spark:
        from spark_jobs.jobs.maintenance import maintain_installation, maintain_source
        from spark_jobs.server.airflow_database import clean
        from spark_jobs.server.status import runs_airflow

        for each in chosen:
            steps += maintain_source(settings, each, spark)
        if source is None:
            steps += maintain_installation(settings, clean if runs_airflow(settings) else None)
    emit(as_json, {"steps": [step.to_json() for step in steps]}, lambda: _shown(steps))
    if any(step.failed for step in steps):
        raise typer.Exit(1)


def _shown(steps: list[Step]) -> RenderableType:
    from spark_jobs.jobs.maintenance import COLUMNS

    failed = [Text(f"{step.about}, {step.step} failed: {step.found}\n  next  {step.do}") for step in steps if step.do]
    return Group(table(COLUMNS, [step.row() for step in steps]), *failed)
