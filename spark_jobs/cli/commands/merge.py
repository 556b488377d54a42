"""`merge`: a source's chunks of many drops become few."""

from __future__ import annotations

import dataclasses

import typer
from rich.text import Text

from spark_jobs.cli.arguments import SourceArgument, known_source, server_session
from spark_jobs.cli.output import JsonOption, emit
from spark_jobs.config import load_settings


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(merge)


def merge(source: SourceArgument, as_json: JsonOption = False) -> None:
    """Merge the chunks of all published drops in bronze; answers stay the same. Safe while a run is on.

    Runs merge the newest chunks by themselves from time to time: this is for after a long backfill, or after other
    limits in the source file.
    """
    settings = load_settings()
    checked = known_source(settings, source)
    with server_session(settings, "tidemark-merge") as spark:
        from spark_jobs.jobs.visits import merge as merge_source

        done = merge_source(settings, checked, spark)
    told = f"{source}: {done.chunks_before:,} chunks of {done.rows:,} rows became {done.chunks_after:,}"
    emit(
        as_json,
        {"source": source, **dataclasses.asdict(done)},
        lambda: Text(told if done.chunks_before else f"{source}: nothing to merge"),
    )
