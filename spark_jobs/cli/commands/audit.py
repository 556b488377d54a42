"""`audit`: landed rows compared with the files' ledger, and published rows with rows computed anew from the trace."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Group
from rich.text import Text

from spark_jobs.cli.arguments import SourceArgument, drop_time, known_source, server_session
from spark_jobs.cli.output import JsonOption, emit, table
from spark_jobs.cli.progress import working
from spark_jobs.config import load_settings


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(audit)


def audit(
    source: SourceArgument,
    since: Annotated[
        str | None, typer.Option("--since", help="First drop whose files are looked at; default: all.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Prove that the stored rows of a source are those of its files.

    It counts every file's rows in bronze and in the trace, reads a sample of files again, and computes windows and
    states anew from the trace. It changes nothing; results are in quality.results. Exit code 1 if something is wrong.
    """
    settings = load_settings()
    checked = known_source(settings, source)
    first = 0 if since is None else max(checked.drops.seq_no_at(drop_time(checked, since)), 0)
    with server_session(settings, "tidemark-audit") as spark:
        from spark_jobs.audit.audit import audit as audit_source
        from spark_jobs.gates.verdicts import verdict_lines

        with working(f"audit {source}") as report_step:
            report = audit_source(settings, checked, spark, since=first, report_step=report_step)
    rows = [(v.name, v.verdict, v.observed, v.expectation) for v in report.verdicts]
    failed = [Text(verdict_lines(verdict).strip("\n")) for verdict in report.failed]
    summary = Text(f"{report.run_id}: {len(report.failed)} of {len(rows)} do not hold, in {report.seconds} s")
    emit(
        as_json, asdict(report), lambda: Group(table(["what", "verdict", "found", "expected"], rows), *failed, summary)
    )
    if report.failed:
        raise typer.Exit(1)
