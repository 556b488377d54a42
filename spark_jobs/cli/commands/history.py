"""`state` and `windows`: published rows, now or as known at an earlier time."""

from __future__ import annotations

from typing import Annotated

import typer

from spark_jobs.cli.arguments import SourceArgument, instant, known_source, server_session
from spark_jobs.cli.output import JsonOption
from spark_jobs.cli.rows import LimitOption, as_fetched, emit_rows, fetch, most_rows
from spark_jobs.config import load_settings

PublishedAsOf = Annotated[
    str | None, typer.Option("--as-of", help="As the last publication up to this time showed them; default: now.")
]
KnownAsOf = Annotated[
    str | None,
    typer.Option("--as-of", help="From the deltas that were visible by this time, each by its own; default: now."),
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(state)
    app.command()(windows)


def state(
    source: SourceArgument,
    entity: Annotated[str | None, typer.Option(help="One entity; default: all.")] = None,
    at: Annotated[str | None, typer.Option("--at", help="State at this event time; default: the newest.")] = None,
    as_of: KnownAsOf = None,
    limit: LimitOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show states at an event time, as known at a visible time.

    Between two publications it knows more than the published tables, which show the earlier: `gold.<source>_as_of`.
    """
    settings = load_settings()
    checked = known_source(settings, source)
    times = {"event_us": _micros(at), "known_us": _micros(as_of)}
    with server_session(settings, "tidemark-state") as spark:
        from spark_jobs.engine.deltas import entity_class
        from spark_jobs.reads.as_of import entity_state, states_at
        from spark_jobs.storage.coordination.read_counts import count_read
        from spark_jobs.storage.lakes.spark_lake import SparkLake

        if entity is None:
            frame = states_at(SparkLake(spark), checked, **times)
            rows = fetch(frame.orderBy(checked.entity), most_rows(limit, as_json=as_json))
            count_read(settings.home, source)
        else:
            of_entity = entity_state(SparkLake(spark), checked, entity, **times)
            rows = as_fetched(of_entity)
            for delta_count in of_entity["delta_count"].to_pylist():
                count_read(settings.home, source, of_class=int(entity_class(delta_count)))
    emit_rows(as_json, rows)


def windows(
    source: SourceArgument,
    name: Annotated[str, typer.Argument(help="Name of a window definition of the source.")],
    as_of: PublishedAsOf = None,
    limit: LimitOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show rows of a window table, now or as of a visible time."""
    settings = load_settings()
    checked = known_source(settings, source)
    if name not in checked.windows:
        from spark_jobs.sources import unknown_name

        raise unknown_name(
            name,
            checked.windows,
            expected=f"one of the windows {', '.join(checked.windows) or '(none)'} of {source}",
            next_step=f"name one of them, or declare it in {source}.yml",
        )
    known_us = _micros(as_of)
    with server_session(settings, "tidemark-windows") as spark:
        from spark_jobs.definitions.definition import Definition
        from spark_jobs.reads.as_of import windows_as_of
        from spark_jobs.storage.lakes.spark_lake import SparkLake

        definition = Definition(checked, name)
        frame = windows_as_of(SparkLake(spark), definition, known_us)
        rows = fetch(frame.orderBy(*definition.identity), most_rows(limit, as_json=as_json))
    emit_rows(as_json, rows)


def _micros(text: str | None) -> int | None:
    from spark_jobs.storage.descriptions.times import micros

    return None if text is None else micros(instant(text))
