"""`doctor`: what is wrong, and what to do."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from spark_jobs.cli.arguments import server_session
from spark_jobs.cli.output import JsonOption, emit, table
from spark_jobs.config import Settings, load_settings
from spark_jobs.model import Finding

SIGNS = {"ok": "✓", "warning": "!", "wrong": "✗"}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(doctor)


def doctor(
    deep: Annotated[
        bool, typer.Option("--deep", help="Read every data file of the lake against its checksums.")
    ] = False,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair",
            help="Make anew from the lake what follows from it: the catalog, views, marts, notes, a publication that"
            " stands twice; remove what crashes left. Waits for stages at work; needs the lake server.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Examine Java, jars, ports, disk, versions, processes and tables; exit code 1 if something is wrong."""
    from spark_jobs.jobs.examination import examine_files, examine_lake
    from spark_jobs.server.doctor import examine

    settings = load_settings()
    findings = _repaired(settings) if repair else []
    findings += [*examine(settings), *examine_files(settings, deep=deep), *examine_lake(settings), *_names(settings)]
    rows = [(SIGNS[each.verdict], each.what, each.found, each.do) for each in findings]
    emit(as_json, [asdict(each) for each in findings], lambda: table(["", "what", "found", "what to do"], rows))
    if any(each.verdict == "wrong" for each in findings):
        raise typer.Exit(1)


def _repaired(settings: Settings) -> list[Finding]:
    from spark_jobs.jobs.repair import repair

    with server_session(settings, "tidemark-doctor") as spark:
        return repair(settings, spark) or [Finding("repair", "ok", "nothing to mend")]


def _names(settings: Settings) -> list[Finding]:
    """Findings about names that the catalog lacks; none if no server runs that could be asked."""
    from spark_jobs.jobs.examination import examine_names
    from spark_jobs.server.status import status

    if not any(service.name == "connect" and service.health.ok for service in status(settings).services):
        return []
    with server_session(settings, "tidemark-doctor") as spark:
        return [*examine_names(settings, spark)]
