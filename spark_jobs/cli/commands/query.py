"""`query`: the landed rows of one entity in a range of time, or its latest values."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spark_jobs.cli.arguments import SourceArgument, instant, known_source
from spark_jobs.cli.drops import lake_of
from spark_jobs.cli.output import JsonOption, emit, table
from spark_jobs.config import load_settings
from spark_jobs.errors import ParameterError

if TYPE_CHECKING:
    from spark_jobs.engine.chunks import Latest
    from spark_jobs.sources import Source


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(query)


def query(
    source: SourceArgument,
    entity: Annotated[str, typer.Option(help="The entity, exactly.")],
    timeline: Annotated[str | None, typer.Option(help="A timeline of the source; default: its only one.")] = None,
    first: Annotated[str | None, typer.Option("--from", help="Start of the range, included.")] = None,
    last: Annotated[str | None, typer.Option("--to", help="End of the range, included.")] = None,
    latest_at: Annotated[str | None, typer.Option(help="Each component's latest value at this time.")] = None,
    components: Annotated[str | None, typer.Option(help="Columns, separated by commas; default: all.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the landed rows of an entity in a range of time.

    With --latest-at it shows the entity's latest values at one time.
    """
    settings = load_settings()
    checked = known_source(settings, source)
    timeline = _only_timeline(checked) if timeline is None else timeline
    span = _parse_times(first, last, latest_at)
    names = None if components is None else [name.strip() for name in components.split(",")]
    with lake_of(settings) as lake:
        from spark_jobs.reads.source_chunks import SourceChunks
        from spark_jobs.storage.coordination.lake_format import check_format
        from spark_jobs.storage.descriptions.times import micros

        check_format(lake)
        landed = SourceChunks(lake, checked)
        if len(span) == 1:
            rows = _latest_rows(landed.latest_at(entity, timeline, micros(span[0]), names))
            columns = ["component", "time", "row_id", "value"]
        else:
            table_of_rows = landed.range_query(entity, timeline, micros(span[0]), micros(span[1]), names)
            rows, columns = table_of_rows.to_pylist(), table_of_rows.column_names
    emit(as_json, {"columns": columns, "rows": rows}, lambda: table(columns, [list(row.values()) for row in rows]))


def _only_timeline(source: Source) -> str:
    if len(source.timelines) == 1:
        return next(iter(source.timelines))
    raise ParameterError(
        expected="--timeline, as the source has several",
        found="none",
        next_step=f"name one of {', '.join(source.timelines)}",
    )


def _parse_times(first: str | None, last: str | None, latest_at: str | None) -> list[datetime]:
    """The range's two ends, or the one time of a latest-at."""
    ends = [text for text in (first, last) if text is not None]
    if (latest_at is not None and ends) or (latest_at is None and len(ends) < 2):
        given = [name for name, text in (("--from", first), ("--to", last), ("--latest-at", latest_at)) if text]
        raise ParameterError(
            expected="either --from and --to, or --latest-at",
            found=" and ".join(given) or "none of them",
            next_step="give both ends of a range, or the one time",
        )
    span = [instant(text) for text in (ends if latest_at is None else [latest_at])]
    if span[0] > span[-1]:
        raise ParameterError(expected="--from at or before --to", found=" and ".join(ends), next_step="swap both ends")
    return span


def _latest_rows(latest_by_name: dict[str, Latest]) -> list[dict[str, Any]]:
    from spark_jobs.storage.descriptions.times import instant as of_micros

    return [
        {
            "component": name,
            "time": None if latest.time is None else of_micros(latest.time),
            "row_id": latest.row_id,
            "value": latest.value,
        }
        for name, latest in latest_by_name.items()
    ]
