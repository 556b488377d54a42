"""`merge`: merge a source's chunks of many drops into a few."""

from __future__ import annotations

import dataclasses

import typer
from rich.text import Text

from spark_jobs.cli.arguments import SourceArgument, known_source, server_session
from spark_jobs.cli.output import JsonOption, emit
from spark_jobs.cli.progress import working
from spark_jobs.config import load_settings
from spark_jobs.model import pluralize


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(merge)


def merge(source: SourceArgument, as_json: JsonOption = False) -> None:
    """Merge the chunks of all published drops in bronze.

    Answers stay the same, and runs may continue. Runs merge the newest chunks by themselves from time to time: this
    command is for the time after a long backfill, or after a change of limits in the source file.
    """
    settings = load_settings()
    checked = known_source(settings, source)
    with working(f"merge {source}"), server_session(settings, "tidemark-merge") as spark:
        from spark_jobs.jobs.visits import merge as merge_source

        merges = merge_source(settings, checked, spark)
    before = f"{pluralize(merges.chunks_before, 'chunk')} of {pluralize(merges.rows, 'row')}"
    sentence = f"{source}: {before} became {merges.chunks_after:,}"
    emit(
        as_json,
        {"source": source, **dataclasses.asdict(merges)},
        lambda: Text(sentence if merges.chunks_before else f"{source}: nothing to merge"),
    )
