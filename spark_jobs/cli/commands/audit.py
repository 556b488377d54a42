"""`audit`: all that landed and all that is published, against the files' ledger and what the trace gives anew."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Group
from rich.text import Text

from spark_jobs.cli.arguments import SourceArgument, drop_time, known_source, server_session
from spark_jobs.cli.output import JsonOption, emit, table
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
    """Prove a source: every file's rows in bronze and in the trace, a sample of files read again, windows and states
    computed anew from the trace. Changes nothing; results are in quality.results. Exit code 1 if something is wrong.
    """
    settings = load_settings()
    checked = known_source(settings, source)
    first = 0 if since is None else max(checked.drops.seq_no_at(drop_time(checked, since)), 0)
    with server_session(settings, "tidemark-audit") as spark:
        from spark_jobs.gates.verdicts import verdict_lines
        from spark_jobs.jobs.audit import audit as audit_source

        done = audit_source(settings, checked, spark, since=first)
    rows = [(v.name, v.verdict, v.observed, v.expectation) for v in done.verdicts]
    failed = [Text(verdict_lines(verdict).strip("\n")) for verdict in done.failed]
    summary = Text(f"{done.run_id}: {len(done.failed)} of {len(rows)} do not hold, in {done.seconds} s")
    emit(as_json, asdict(done), lambda: Group(table(["what", "verdict", "found", "expected"], rows), *failed, summary))
    if done.failed:
        raise typer.Exit(1)
