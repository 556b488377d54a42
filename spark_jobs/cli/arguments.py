"""Arguments of commands: sources by name, drops by date, instants. Also sessions on the lake server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from spark_jobs.config import Settings
from spark_jobs.errors import ParameterError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_jobs.sources import Source

SourceArgument = Annotated[str, typer.Argument(help="Name of a source: its YAML file without the ending.")]
FIRST_DROP = "First drop, by its start: a date, or a date and time in UTC (of the source's time zone, if it has one)."
LAST_DROP = "Last drop, included, by its start."
FirstDrop = Annotated[str, typer.Option("--from", help=FIRST_DROP)]
FileOption = Annotated[
    str | None, typer.Option("--file", help="Only this file, relative to the landing directory; others stay aside.")
]
AcceptDefinitionOption = Annotated[
    bool, typer.Option("--accept-definition", help="Recompute what a changed source file affects, and publish it.")
]
PassGapOption = Annotated[
    bool,
    typer.Option("--pass-gap", help="Move the seal past drops that were never run; reads as of their times lose them."),
]


def known_source(settings: Settings, name: str) -> Source:
    """The checked source `name`; the refusal of an unknown name lists the known ones."""
    from spark_jobs.sources import find_source

    return find_source(settings.sources, name)


def instant(text: str) -> datetime:
    """A date or ISO-8601 instant as a time; it is in UTC unless it has an offset."""
    from spark_jobs.storage.descriptions.times import parse_time

    try:
        return parse_time(text)
    except (ValueError, OverflowError):
        raise _no_instant(text) from None


def drop_time(source: Source, text: str) -> int:
    """The instant, in microseconds, of a date or ISO-8601 instant by which people name a drop of a source.

    It is in the time zone of the drops unless it has an offset.
    """
    try:
        return source.drops.time_named(text)
    except (ValueError, OverflowError):
        raise _no_instant(text) from None


def _no_instant(text: str) -> ParameterError:
    # a time may be outside the years 1 to 9999 once it is in UTC
    return ParameterError(
        expected="a date such as 2013-01-07, or an instant such as 2013-01-07T12:00:00Z",
        found=repr(text),
        next_step="write it in the form of ISO 8601, of the years 1 to 9999 in UTC",
    )


def drops_between(source: Source, first: str, last: str) -> tuple[datetime, datetime]:
    """The time span `[lo, hi)` of the drops from the one that `first` names to the one that `last` names, included."""
    from spark_jobs.storage.descriptions.times import instant as of_micros

    drops = source.drops.seq_nos(drop_time(source, first), drop_time(source, last))
    return of_micros(source.drops.start(drops.start)), of_micros(source.drops.start(drops.stop))


def drops_each(source: Source, first: str, last: str) -> list[tuple[datetime, datetime]]:
    """The time span `[lo, hi)` of each drop from the one that `first` names to the one that `last` names, included."""
    from spark_jobs.storage.descriptions.times import instant as of_micros

    drops = source.drops.seq_nos(drop_time(source, first), drop_time(source, last))
    return [(of_micros(lo), of_micros(hi)) for lo, hi in map(source.drops.interval, drops)]


@contextmanager
def server_session(settings: Settings, name: str) -> Iterator[SparkSession]:
    """A session on the lake server, ended with the block; a failure or an interrupt cancels its work.

    Raises:
        LakeNewer: a later version of Tidemark has written the lake.
        LakeOlder: a read misses a column or table that an older version did not make.
    """
    from spark_jobs.session import working_session

    with working_session(settings, name) as session, refuse_older_lakes(session, settings):
        yield session


@contextmanager
def refuse_older_lakes(session: SparkSession, settings: Settings) -> Iterator[None]:
    """Replace an error in the block by a refusal if a read misses a column or table that an older version did not make.

    The refusal names the command that adds it. On a lake that a later version has written, the block does not begin.

    Raises:
        LakeNewer: a later version of Tidemark has written the lake.
        LakeOlder: a read misses a column or table that an older version did not make.
    """
    from pyarrow import ArrowInvalid
    from pyspark.errors import AnalysisException

    from spark_jobs.storage.coordination.lake_format import check_format
    from spark_jobs.storage.lakes.spark_lake import SparkLake

    check_format(SparkLake(session))
    try:
        yield
    except (AnalysisException, ArrowInvalid, KeyError) as error:
        from spark_jobs.definitions.catalog import LakeOlder, check_tables
        from spark_jobs.sources import read_sources

        for source in read_sources(settings.sources).sources.values():
            try:
                check_tables(SparkLake(session), source)
            except LakeOlder as older:
                if older.explains(str(error)):
                    raise older from error
        raise
