"""`retract`: take back what a drop or a file landed."""

from __future__ import annotations

from typing import Annotated

import typer

from spark_jobs.cli.arguments import SourceArgument, drops_between, known_source
from spark_jobs.cli.commands.run import document, for_people, progress, run_source
from spark_jobs.cli.output import JsonOption, emit
from spark_jobs.config import load_settings


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(retract)


def retract(
    source: SourceArgument,
    drop: Annotated[str, typer.Option("--drop", help="The drop: a date, or a date and time in UTC.")],
    file: Annotated[
        str | None, typer.Option("--file", help="Only this file, relative to the landing directory.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Take back what a drop, or one file of it, landed, and publish the difference.

    The files stay where they are, and stay out: a retracted file lands again once it has other bytes, or by
    `tidemark run … --file`.
    """
    from spark_jobs.jobs.request import Request

    settings = load_settings()
    checked = known_source(settings, source)
    lo, hi = drops_between(checked, drop, drop)
    with progress() as on_stage:
        report = run_source(
            settings,
            source,
            lo,
            hi,
            prefix="retract",
            request=Request(retract=True, only_file=file),
            on_stage=on_stage,
        )
    emit(as_json, document(report), lambda: for_people(report))
