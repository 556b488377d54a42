"""`maintain`: keep the lake small, and check that it is whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from spark_jobs.cli.arguments import known_source, server_session
from spark_jobs.cli.output import JsonOption, emit, table
from spark_jobs.cli.progress import working
from spark_jobs.config import load_settings

if TYPE_CHECKING:
    from spark_jobs.upkeep.maintenance import MaintenanceStep


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(maintain)


def maintain(
    source: Annotated[str | None, typer.Argument(help="One source alone, and nothing of the installation.")] = None,
    chains: Annotated[bool, typer.Option("--chains", help="Only compact the chains that are due.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Keep the lake small and check that it is whole.

    It merges chunks and trace, compacts chains that are due, folds history, joins small files, removes files out of use
    and audits each source. Where TIDEMARK_BACKUP names a place, it backs up. It removes old logs, reports and plans
    and, where Airflow runs, old records of its runs.

    No answer changes, and runs continue. Airflow does the same every week (DAG tidemark-maintenance). A failed
    step stops no other step; exit code 1 if a step failed.
    """
    from spark_jobs.sources import read_sources

    settings = load_settings()
    chosen = [known_source(settings, source)] if source else list(read_sources(settings.sources).sources.values())
    steps: list[MaintenanceStep] = []
    with server_session(settings, "tidemark-maintain") as spark:
        from spark_jobs.server.airflow_database import clean
        from spark_jobs.server.status import runs_airflow
        from spark_jobs.upkeep.maintenance import CHAINS_STEP, maintain_installation, maintain_source

        with working("maintain") as report_step:
            for each in chosen:
                steps += maintain_source(settings, each, spark, report_step, only=CHAINS_STEP if chains else None)
            if source is None and not chains:
                steps += maintain_installation(settings, clean if runs_airflow(settings) else None, report_step)
    emit(as_json, {"steps": [step.to_json() for step in steps]}, lambda: _view(steps))
    if any(step.failed for step in steps):
        raise typer.Exit(1)


def _view(steps: list[MaintenanceStep]) -> RenderableType:
    from spark_jobs.upkeep.maintenance import COLUMNS

    failed = [Text(f"{step.about}, {step.step} failed: {step.found}\n  next  {step.do}") for step in steps if step.do]
    return Group(table(COLUMNS, [step.row() for step in steps]), *failed)
