"""`pin`, `pins` and `unpin`: copies of published tables, as known at one time or at each source's newest."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from spark_jobs.cli.arguments import instant, known_source, server_session
from spark_jobs.cli.output import JsonOption, emit, note, short_text, table
from spark_jobs.cli.progress import working
from spark_jobs.config import Settings, load_settings

if TYPE_CHECKING:
    from spark_jobs.sources import Source
    from spark_jobs.storage.lakes.spark_lake import SparkLake
    from spark_jobs.upkeep.pins import Pin


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(pin)
    app.command()(pins)
    app.command()(unpin)


def pin(
    name: Annotated[str, typer.Argument(help="Name of the pin; its tables are pins.<name>__<table>.")],
    only: Annotated[
        list[str] | None, typer.Option("--source", help="Pin this source alone; may be repeated. Default: all.")
    ] = None,
    at: Annotated[
        str | None,
        typer.Option("--at", help="Pin all as known at this visible time. Default: each source at its own newest."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Copy published tables, so that they outlive retention.

    The copy is of one source, of all sources at their own newest time, or of all sources at one time. The command
    refuses a named source without published rows, and any source without rows at --at. Without --source it leaves out
    and lists sources that have published nothing yet, and sources with a broken file.
    """
    settings = load_settings()
    from spark_jobs.storage.descriptions.times import micros
    from spark_jobs.storage.lakes.spark_lake import SparkLake
    from spark_jobs.upkeep.pins import check_name, make_pin

    check_name(name)
    at_us = None if at is None else micros(instant(at))
    named = [known_source(settings, source) for source in dict.fromkeys(only or [])]
    with working(f"pin {name}"), server_session(settings, "tidemark-pin") as spark:
        sources, left_out = (named, {}) if named else _sources_to_pin(settings, SparkLake(spark))
        made = make_pin(SparkLake(spark), sources, name, at_us)
    for source, why in left_out.items():
        note(f"{source} is left out: {why}")
    rows = [(f"pins.{copied}",) for copied in made.tables]
    emit(as_json, {**asdict(made), "left_out": left_out}, lambda: table(["table"], rows, title=_title(made)))


def _sources_to_pin(settings: Settings, lake: SparkLake) -> tuple[list[Source], dict[str, str]]:
    """The sources that have published, and why each of the others is left out."""
    from spark_jobs.sources import read_sources
    from spark_jobs.storage.coordination import publication

    folder = read_sources(settings.sources)
    left_out = {error.file: "its file has problems" for error in folder.errors}
    left_out |= {
        source.name: "it has published nothing"
        for source in folder.sources.values()
        if publication.load(lake, source).published_us == 0
    }
    return [source for name, source in folder.sources.items() if name not in left_out], left_out


def _title(made: Pin) -> str:
    what = made.sources[0] if len(made.sources) == 1 else f"{len(made.sources)} sources"
    if made.at is not None:
        newest = ", the newest" if made.kind == "newest" else ""
        return f"{made.name}: {what} as known at {short_text(made.at)}{newest}"
    return f"{made.name}: {what}, each at its own newest time: {_times(made)}"


def _times(made: Pin) -> str:
    return ", ".join(f"{source} {short_text(time)}" for source, time in made.times.items())


def pins(as_json: JsonOption = False) -> None:
    """List the pins with their sources and times."""
    settings = load_settings()
    with server_session(settings, "tidemark-pins") as spark:
        from spark_jobs.storage.lakes.spark_lake import SparkLake
        from spark_jobs.upkeep.pins import pins as standing

        pin_list = standing(SparkLake(spark))
    rows = [(p.name, _KINDS[p.kind], _times(p), len(p.tables)) for p in pin_list]
    emit(
        as_json, [asdict(p) for p in pin_list], lambda: table(["name", "pinned", "sources as known at", "tables"], rows)
    )


_KINDS = {"newest": "each source at its newest time", "time": "all at one time"}


def unpin(
    name: Annotated[str, typer.Argument(help="Name of a pin, also of one that was interrupted.")],
    as_json: JsonOption = False,
) -> None:
    """Drop a pin and its tables; published tables stay."""
    settings = load_settings()
    from spark_jobs.storage.lakes.spark_lake import SparkLake
    from spark_jobs.upkeep.pins import check_name, drop_pin

    check_name(name)
    with server_session(settings, "tidemark-unpin") as spark:
        dropped = [f"pins.{dropped}" for dropped in drop_pin(SparkLake(spark), name)]
    emit(as_json, {"dropped": dropped}, lambda: table(["dropped"], [(one,) for one in dropped]))
