"""`pin`, `pins` and `unpin`: copies of the published tables at one published time."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from spark_jobs.cli.arguments import instant, server_session
from spark_jobs.cli.output import JsonOption, emit, table
from spark_jobs.config import load_settings


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(pin)
    app.command()(pins)
    app.command()(unpin)


def pin(
    name: Annotated[str, typer.Argument(help="Name of the pin; its tables are pins.<name>__<table>.")],
    at: Annotated[
        str | None, typer.Option("--at", help="Visible time to copy; default: the newest that all have published.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Copy what all sources have published, as known at one time; it outlives retention."""
    settings = load_settings()
    from spark_jobs.restatement.pins import check_name, make_pin
    from spark_jobs.sources import read_sources
    from spark_jobs.storage.lake import Lake
    from spark_jobs.storage.times import micros

    check_name(name)
    at_us = None if at is None else micros(instant(at))
    sources = list(read_sources(settings.sources).sources.values())
    with server_session(settings, "tidemark-pin") as spark:
        made = make_pin(Lake(spark), sources, name, at_us)
    rows = [(f"pins.{copied}",) for copied in made.tables]
    emit(as_json, asdict(made), lambda: table(["table"], rows, title=f"{made.name}, as known at {made.at.isoformat()}"))


def pins(as_json: JsonOption = False) -> None:
    """The pins that stand."""
    settings = load_settings()
    with server_session(settings, "tidemark-pins") as spark:
        from spark_jobs.restatement.pins import pins as standing
        from spark_jobs.storage.lake import Lake

        found = standing(Lake(spark))
    rows = [(p.name, p.at, ", ".join(p.sources), len(p.tables)) for p in found]
    emit(as_json, [asdict(p) for p in found], lambda: table(["name", "at", "sources", "tables"], rows))


def unpin(
    name: Annotated[str, typer.Argument(help="Name of a pin, also of one that was interrupted.")],
    as_json: JsonOption = False,
) -> None:
    """Drop a pin and its tables; what is published stays as it is."""
    settings = load_settings()
    from spark_jobs.restatement.pins import check_name, drop_pin
    from spark_jobs.storage.lake import Lake

    check_name(name)
    with server_session(settings, "tidemark-unpin") as spark:
        dropped = [f"pins.{dropped}" for dropped in drop_pin(Lake(spark), name)]
    emit(as_json, {"dropped": dropped}, lambda: table(["dropped"], [(one,) for one in dropped]))
