"""Pins: full copies of published tables in the database `pins`, of each source at its newest time or of all at one.

The copies are read by the tables' functions of time. So all tables of a source are as known at one time, whatever is
published meanwhile. For a source that keeps chains, every version of a state is copied with the event times for which
it is valid, so that a query gives the state at any event time. A pin consists of plain tables of its own: it holds back
neither since nor vacuum, and outlives both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.definitions.definition import definitions
from spark_jobs.engine.deltas import BelowSince
from spark_jobs.engine.spark.checkpoints import versions_at
from spark_jobs.errors import ParameterError, TidemarkError
from spark_jobs.reads.point import ReadPoint
from spark_jobs.restatement.chains import published_chains
from spark_jobs.sources import Source
from spark_jobs.storage.delta.rewriting import forget_versions
from spark_jobs.storage.descriptions.chain_tables import CHAINS
from spark_jobs.storage.descriptions.people_tables import PINS
from spark_jobs.storage.descriptions.schema import Column
from spark_jobs.storage.descriptions.sql import literal, qualified
from spark_jobs.storage.descriptions.tables import LATE
from spark_jobs.storage.descriptions.times import instant, micros, utc_rows
from spark_jobs.storage.lakes.frames import frame_of
from spark_jobs.storage.lakes.lake import FrameLake
from spark_jobs.storage.names.copies import write_copy
from spark_jobs.storage.names.views import state_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NAME = re.compile(r"(?=.{1,40}$)[a-z](_?[a-z0-9])*")
_COMMENT = "Copies of published tables as known at one time, and the list of them in pins.pins."


class PinExists(TidemarkError):
    """There is a pin of that name already. Fact: `name`."""

    code = "pin_exists"


class PinEmpty(TidemarkError):
    """A source has no row to pin at the time. Facts: `source`, `at_us`."""

    code = "pin_empty"


NEWEST, TIME = "newest", "time"
_VALID_TIMES = (
    Column("valid_from", "TIMESTAMP", "Event time from which the state is valid."),
    Column("valid_to", "TIMESTAMP", "Event time from which it is no longer valid; null: it is valid to the end."),
)
"""The columns for the event times between which a version of a state is valid."""


@dataclass(frozen=True, slots=True)
class Pin:
    """A pin: its name, its sources, and its tables, each `pins.<name>__<table>`.

    `kind` is `newest` (each source at its newest published time) or `time` (all at one time). `times`: the visible time
    by source. `at`: the one time of all sources; None if they differ.
    """

    name: str
    at: datetime | None
    sources: list[str]
    tables: list[str]
    kind: str = TIME
    times: dict[str, datetime] = field(default_factory=dict)


def make_pin(lake: FrameLake, sources: Sequence[Source], name: str, at_us: int | None = None) -> Pin:
    """Copy the published tables of the sources: all as known at `at_us`, or (None) each as known at its newest time.

    The list of pins is written last, so a pin that is listed is whole.

    Raises:
        ParameterError: the name can't be part of a table's name, or there is no source.
        PinExists: a pin of that name is listed.
        NotPublished, BelowSince, BeforeFirstPublication: of a source, as `ReadPoint.of_publication`.
        PinEmpty: a source has no row at the time.
    """
    check_name(name)
    if any(pin.name == name for pin in pins(lake)):
        raise PinExists(
            expected="a name that no pin has", found=repr(name), consequence="nothing was copied",
            next_step="choose another; `tidemark pins` lists them", name=name,
        )  # fmt: skip
    if not sources:
        raise ParameterError(
            expected="a source that has published", found="none", consequence="nothing was copied",
            next_step="run one first",
        )  # fmt: skip
    times_us = {source.name: ReadPoint.of_publication(lake, source, at_us).known_us for source in sources}
    copies = {source.name: list(_copy_tables(lake, source, times_us[source.name])) for source in sources}
    for source in sources:
        _refuse_empty(source, copies[source.name], times_us[source.name])
    lake.catalog.ensure({PINS.database: _COMMENT}, [PINS])
    lake.catalog.widen([PINS])
    tables = []
    for source in sources:
        for copy in copies[source.name]:
            tables.append(copy.write(lake, name, times_us[source.name]))
    times = {source: instant(time_us) for source, time_us in times_us.items()}
    at = next(iter(times.values())) if len({*times.values()}) == 1 else None
    pin = Pin(name, at, list(times), tables, NEWEST if at_us is None else TIME, times)
    lake.append(PINS, frame_of(lake.spark, PINS, [asdict(pin)]), None)
    return pin


def _refuse_empty(source: Source, copies: Sequence[_Copy], time_us: int) -> None:
    if any(not copy.rows.isEmpty() for copy in copies):
        return
    raise PinEmpty(
        expected=f"rows of {source.name} as known at {instant(time_us).isoformat()}",
        found="none in any of its tables",
        consequence="nothing was copied",
        next_step="pin the other sources by --source, or ask for a later time",
        source=source.name,
        at_us=time_us,
    )


def drop_pin(lake: FrameLake, name: str) -> list[str]:
    """Remove a pin from the list and drop its tables, or those that an interrupted pin of that name left.

    Returns the tables' names without the database.

    Raises:
        ParameterError: there is no pin of that name, and no such table.
    """
    check_name(name)
    # no other pin's tables begin so, as no pin's name ends with an underscore or has two together
    tables = sorted(t for t in lake.catalog.names_if_present(PINS.database) if t.startswith(f"{name}__"))
    listed = any(pin.name == name for pin in pins(lake))
    if not tables and not listed:
        raise ParameterError(
            expected="the name of a pin", found=repr(name), next_step="`tidemark pins` lists those that stand"
        )
    # the list goes first, so that a pin that is listed is whole
    if listed:
        lake.spark.sql(f"DELETE FROM {qualified(PINS.database, PINS.table)} WHERE name = {literal(name)}")
    for table in tables:
        lake.catalog.define(f"DROP TABLE IF EXISTS {qualified(PINS.database, table)}")
    return tables


def copy_again(lake: FrameLake, source: Source) -> list[str]:
    """Copy the source's tables in all pins anew, as known at the pins' times, after its history was changed.

    If a pin's time can't be read any more, the source's tables in it are dropped. Returns the names of all of them.
    """
    copied: list[str] = []
    for pin in pins(lake):
        if source.name not in pin.times:
            continue
        at_us = micros(pin.times[source.name])
        try:
            ReadPoint.open(lake, source, at_us)
            copies = {copy.table: copy for copy in _copy_tables(lake, source, at_us)}
        except BelowSince:
            copies = {}
        for table in _tables_of(source):
            stood = f"{pin.name}__{table}"
            if table in copies:
                copies[table].write(lake, pin.name, at_us)
                # the files of the earlier copy are still named by the table's first version
                forget_versions(lake.folder.handle_of(PINS.database, stood))
            elif stood in pin.tables:
                lake.catalog.define(f"DROP TABLE IF EXISTS {qualified(PINS.database, stood)}")
            if table in copies or stood in pin.tables:
                copied.append(f"{PINS.database}.{stood}")
    return copied


def _tables_of(source: Source) -> list[str]:
    return [*source.windows, f"{source.name}_late", f"{source.name}_state", f"{source.name}_versions"]


def check_name(name: str) -> None:
    """Refuse a pin's name that can't be part of a table's name.

    Raises:
        ParameterError: the name has other characters than it may have, or more than 40.
    """
    if not _NAME.fullmatch(name):
        raise ParameterError(
            expected="a pin's name of at most 40 lowercase letters, digits and single underscores between, a letter"
            " first",
            found=repr(name),
            next_step="choose a name such as `before_the_move`",
        )


def pins(lake: FrameLake) -> list[Pin]:
    """The pins that are whole, ordered by name; a pin of an older version has one time for all of its sources."""
    if PINS.table not in lake.catalog.names_if_present(PINS.database):
        return []
    return [_pin_of(row) for row in utc_rows(lake.read(PINS).orderBy("name"))]


def _pin_of(row: dict[str, Any]) -> Pin:
    times = dict(row.get("times") or dict.fromkeys(row["sources"], row["at"]))
    return Pin(row["name"], row["at"], row["sources"], row["tables"], row.get("kind") or TIME, times)


@dataclass(frozen=True, slots=True)
class _Copy:
    """A table to copy: its name, its rows as of the pin's time, and its columns."""

    table: str
    rows: DataFrame
    columns: Sequence[Column]

    def write(self, lake: FrameLake, pin: str, time_us: int) -> str:
        """Write the copy for a pin, in place of an earlier one; returns its name without the database."""
        name = f"{pin}__{self.table}"
        comment = f"{self.table} as known at {instant(time_us).isoformat()}."
        write_copy(lake, PINS.database, name, self.rows, comment, self.columns)
        return name


def _copy_tables(lake: FrameLake, source: Source, time_us: int) -> Iterator[_Copy]:
    """The source's tables to copy, as known at that time (microseconds)."""
    # text in the statement: Spark does not bind parameters in a table function's arguments
    for definition in definitions(source):
        read = (
            f"SELECT * FROM {qualified('silver', f'{definition.name}_as_of')}"
            f"(timestamp_micros(CAST({literal(str(time_us))} AS BIGINT)))"
        )
        yield _Copy(definition.name, lake.spark.sql(read), definition.table().columns)
    if source.windows:
        read = (
            f"SELECT * FROM silver.late_as_of({literal(source.name)},"
            f" timestamp_micros(CAST({literal(str(time_us))} AS BIGINT)))"
        )
        yield _Copy(f"{source.name}_late", lake.spark.sql(read), LATE.columns)
    if source.state is not None:
        read = (
            f"SELECT * FROM {qualified('gold', f'{source.name}_as_of')}"
            f"(timestamp_micros(CAST({literal(str(time_us))} AS BIGINT)))"
        )
        yield _Copy(f"{source.name}_state", lake.spark.sql(read), state_columns(source)[1])
    if source.keeps_chains:
        # at the newest publication of now, maybe a later one than above: folding moves rows that an earlier one shows
        newest = ReadPoint.open(lake, source)
        versions = versions_at(published_chains(lake, source, newest.publication), time_us, newest.horizon_us)
        times = {c: F.timestamp_micros(c) for c in ("timestamp", "valid_from", "valid_to")}
        rows = versions.withColumns(times).withColumnRenamed("entity", source.entity)
        yield _Copy(f"{source.name}_versions", rows, [*CHAINS.columns, *state_columns(source)[1], *_VALID_TIMES])
