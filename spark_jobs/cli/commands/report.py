"""`report`: a source on one HTML page."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from spark_jobs.cli.arguments import SourceArgument, known_source, server_session
from spark_jobs.cli.output import JsonOption, emit
from spark_jobs.config import load_settings
from spark_jobs.errors import ParameterError


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(report)


def report(
    source: SourceArgument,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="The file to write; default: reports/SOURCE.html in TIDEMARK_HOME.", dir_okay=False),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write a source's report as one HTML file: frontiers, drops, lateness, windows, chains, gates."""
    settings = load_settings()
    checked = known_source(settings, source)
    path = out or settings.home / "reports" / f"{source}.html"
    if out is not None and not out.parent.is_dir():
        raise ParameterError(
            expected="a file in a folder that is there", found=str(out), next_step=f"make the folder {out.parent}"
        )
    from spark_jobs.jobs.report import as_html, source_report
    from spark_jobs.storage.lake import Lake

    with server_session(settings, "tidemark-report") as spark:
        made = source_report(Lake(spark), checked)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(as_html(made), encoding="utf-8")
    emit(as_json, {"path": str(path), **asdict(made)}, lambda: Text(f"report: {path}"))
