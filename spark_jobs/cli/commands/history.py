"""`state` and `windows`: what is published, and what was known at an earlier time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from spark_jobs.cli.arguments import SourceArgument, instant, known_source, server_session
from spark_jobs.cli.output import JsonOption, emit, note, table
from spark_jobs.config import load_settings
from spark_jobs.errors import ParameterError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LimitOption = Annotated[int, typer.Option(min=0, help="Rows to show; 0 shows all.")]
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
    limit: LimitOption = 100,
    as_json: JsonOption = False,
) -> None:
    """State of entities at an event time, as known at a visible time.

    Between two publications it tells more than the published tables, which show the earlier: `gold.<source>_as_of`.
    """
    settings = load_settings()
    checked = known_source(settings, source)
    times = {"event_us": _micros(at), "known_us": _micros(as_of)}
    with server_session(settings, "tidemark-state") as spark:
        from spark_jobs.kernels.deltas.traffic import entity_class
        from spark_jobs.restatement.as_of import states_at
        from spark_jobs.storage.lake import Lake
        from spark_jobs.storage.read_counts import count_read

        frame = states_at(Lake(spark), checked, entity=entity, **times)
        columns, rows = frame.columns, _rows(frame.orderBy(checked.entity), limit)
        if entity is None:
            count_read(settings.home, source)
        elif rows:
            count_read(settings.home, source, of_class=int(entity_class(rows[0]["delta_count"])))
    _show(rows, columns, as_json)


def windows(
    source: SourceArgument,
    name: Annotated[str, typer.Argument(help="Name of a window definition of the source.")],
    as_of: PublishedAsOf = None,
    limit: LimitOption = 100,
    as_json: JsonOption = False,
) -> None:
    """Rows of a window table, as they were published at a visible time."""
    settings = load_settings()
    checked = known_source(settings, source)
    if name not in checked.windows:
        raise ParameterError(
            expected=f"one of the windows {', '.join(checked.windows) or '(none)'} of {source}",
            found=repr(name),
            next_step=f"name one of them, or declare it in {source}.yml",
        )
    known_us = _micros(as_of)
    with server_session(settings, "tidemark-windows") as spark:
        from spark_jobs.restatement.as_of import windows_as_of
        from spark_jobs.restatement.definitions import Definition
        from spark_jobs.storage.lake import Lake

        definition = Definition(checked, name)
        frame = windows_as_of(Lake(spark), definition, known_us)
        columns, rows = frame.columns, _rows(frame.orderBy(*definition.identity), limit)
    _show(rows, columns, as_json)


def _micros(text: str | None) -> int | None:
    from spark_jobs.storage.times import micros

    return None if text is None else micros(instant(text))


def _rows(frame: DataFrame, limit: int) -> list[dict[str, Any]]:
    from spark_jobs.storage.times import utc_rows

    fetched = utc_rows(frame.limit(limit + 1) if limit else frame)
    if limit and len(fetched) > limit:
        note(f"the first {limit} rows; --limit 0 shows all")
        return fetched[:limit]
    return fetched


def _show(rows: list[dict[str, Any]], columns: list[str], as_json: bool) -> None:
    emit(as_json, {"columns": columns, "rows": rows}, lambda: table(columns, [list(row.values()) for row in rows]))
