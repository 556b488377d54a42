"""`doctor`: faults of the installation, each with the next step."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from spark_jobs.cli.arguments import server_session
from spark_jobs.cli.output import JsonOption, emit, table
from spark_jobs.cli.progress import working
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
            help="Make anew, from the lake: the catalog, views, marts, notes, a publication that"
            " is stored twice; remove remains of crashes. Waits for stages at work; needs the lake server.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Examine Java, jars, ports, disk, processes and tables.

    Exit code 1 if something is wrong.
    """
    from spark_jobs.audit.examination import examine_lake
    from spark_jobs.server.doctor import examine

    settings = load_settings()
    with working("doctor") as report_step:
        if repair:
            report_step("repair")
        findings = _repair_sources(settings) if repair else []
        report_step("programs, processes and settings")
        findings += examine(settings)
        findings += examine_lake(settings, deep=deep, report_step=report_step)
        report_step("names in the catalog")
        findings += _names(settings)
    rows = [(SIGNS[each.verdict], each.what, each.found, each.do) for each in findings]
    emit(as_json, [asdict(each) for each in findings], lambda: table(["", "what", "found", "what to do"], rows))
    if any(each.verdict == "wrong" for each in findings):
        raise typer.Exit(1)


def _repair_sources(settings: Settings) -> list[Finding]:
    from spark_jobs.audit.repair import repair

    with server_session(settings, "tidemark-doctor") as spark:
        return repair(settings, spark) or [Finding("repair", "ok", "nothing to mend")]


def _names(settings: Settings) -> list[Finding]:
    """Findings about names that the catalog lacks; none if no server runs that could be asked."""
    from spark_jobs.audit.examination import examine_names
    from spark_jobs.server.status import status

    if not any(service.name == "connect" and service.health.ok for service in status(settings).services):
        return []
    with server_session(settings, "tidemark-doctor") as spark:
        return [*examine_names(settings, spark)]
