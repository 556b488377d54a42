"""`doctor`: what is wrong, and what to do."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from spark_jobs.cli.output import JsonOption, emit, table
from spark_jobs.config import load_settings

SIGNS = {"ok": "✓", "warning": "!", "wrong": "✗"}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(doctor)


def doctor(
    deep: Annotated[
        bool, typer.Option("--deep", help="Read every data file of the lake against its checksums.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Examine Java, jars, ports, disk, versions, processes and tables; exit code 1 if something is wrong."""
    from spark_jobs.jobs.examination import examine_lake
    from spark_jobs.server.doctor import examine

    settings = load_settings()
    findings = [*examine(settings, deep=deep), *examine_lake(settings)]
    rows = [(SIGNS[each.verdict], each.what, each.found, each.do) for each in findings]
    emit(as_json, [asdict(each) for each in findings], lambda: table(["", "what", "found", "what to do"], rows))
    if any(each.verdict == "wrong" for each in findings):
        raise typer.Exit(1)
