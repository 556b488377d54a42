"""Pins: full copies of the published tables at one published time, in the database `pins`.

What is copied is read by the tables' functions of time, so every table says what was known at that one time, whatever
is published meanwhile. Where a source keeps chains, their states are copied one by one with the event times over which
they hold, so that the state at any event time is a query. A pin is plain tables of its own: it holds back neither since
nor vacuum, and outlives both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.checkpoints.versions import versions_at
from spark_jobs.errors import ParameterError, TidemarkError
from spark_jobs.restatement.as_of import check_time, in_force
from spark_jobs.restatement.chains import published_chains
from spark_jobs.sources import Source
from spark_jobs.storage import publication
from spark_jobs.storage.lake import Lake
from spark_jobs.storage.sql import literal, qualified
from spark_jobs.storage.tables import PINS
from spark_jobs.storage.times import instant, utc_rows
from spark_jobs.trace import frontiers
from spark_jobs.trace.horizon import published_horizon

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NAME = re.compile(r"(?=.{1,40}$)[a-z](_?[a-z0-9])*")
_COMMENT = "Copies of the published tables at one published time, and the list of them in pins.pins."


class PinExists(TidemarkError):
    """A pin of that name stands already. Fact: `name`."""

    code = "pin_exists"


@dataclass(frozen=True, slots=True)
class Pin:
    """A pin: its name, the visible time that it holds, and its tables, each `pins.<name>__<table>`."""

    name: str
    at: datetime
    sources: list[str]
    tables: list[str]


def make_pin(lake: Lake, sources: Sequence[Source], name: str, at_us: int | None = None) -> Pin:
    """Copy what the sources have published as known at `at_us`; None: the newest time at which all have published.

    The list is written last: a pin that is listed is whole. Sources that have published nothing are left out.

    Raises:
        ParameterError: the name can't be part of a table's, or nothing is published.
        PinExists: a pin of that name is listed.
        NotPublished, BelowSince: of a source, as `as_of_time`.
    """
    check_name(name)
    if any(pin.name == name for pin in pins(lake)):
        raise PinExists(
            expected="a name that no pin has", found=repr(name), consequence="nothing was copied",
            next_step="choose another; `tidemark pins` lists them", name=name,
        )  # fmt: skip
    current = {source.name: in_force(lake, source) for source in sources}
    shown = [source for source in sources if current[source.name].published_us > 0]
    if not shown:
        raise ParameterError(expected="a source that has published", found="none", next_step="run one first")
    newest = min(current[source.name].published_us for source in shown) - 1
    time_us = newest if at_us is None else at_us
    for source in shown:
        check_time(lake, source, current[source.name], time_us)
    lake.ensure({PINS.database: _COMMENT}, [PINS])
    tables = []
    for table, rows in [pair for source in shown for pair in _copied(lake, source, time_us)]:
        copied = f"{name}__{table}"
        _write(lake, copied, rows, f"{table} as known at {instant(time_us).isoformat()}.")
        tables.append(copied)
    pin = Pin(name, instant(time_us), [source.name for source in shown], tables)
    lake.append(PINS, lake.frame(PINS, [{"name": name, "at": pin.at, "sources": pin.sources, "tables": tables}]), None)
    return pin


def drop_pin(lake: Lake, name: str) -> list[str]:
    """Take a pin off the list and drop its tables, or those that an interrupted pin of that name left; returns them.

    Raises:
        ParameterError: there is neither.
    """
    check_name(name)
    # no other pin's tables begin so, as no name ends with an underscore or holds two
    tables = sorted(t for t in lake.names_if_present(PINS.database) if t.startswith(f"{name}__"))
    listed = any(pin.name == name for pin in pins(lake))
    if not tables and not listed:
        raise ParameterError(
            expected="the name of a pin", found=repr(name), next_step="`tidemark pins` lists those that stand"
        )
    # the list first: a pin that is listed is whole
    if listed:
        lake.run(f"DELETE FROM {qualified(PINS.database, PINS.table)} WHERE name = {literal(name)}")
    for table in tables:
        lake.define(f"DROP TABLE IF EXISTS {qualified(PINS.database, table)}")
    return tables


def check_name(name: str) -> None:
    """Refuse a pin's name that can't be part of a table's."""
    if not _NAME.fullmatch(name):
        raise ParameterError(
            expected="a pin's name of at most 40 lowercase letters, digits and single underscores between, a letter"
            " first",
            found=repr(name),
            next_step="choose a name such as `before_the_move`",
        )


def pins(lake: Lake) -> list[Pin]:
    """The pins that are whole, by name."""
    if PINS.table not in lake.names_if_present(PINS.database):
        return []
    rows = utc_rows(lake.read(PINS).orderBy("name"))
    return [Pin(row["name"], row["at"], row["sources"], row["tables"]) for row in rows]


def _write(lake: Lake, table: str, rows: DataFrame, comment: str) -> None:
    """A table of the pins that holds `rows`, in place of what an interrupted pin of that name left."""
    made = rows.writeTo(qualified(PINS.database, table)).using("delta")
    made.tableProperty("delta.enableDeletionVectors", "false").createOrReplace()
    lake.define(f"COMMENT ON TABLE {qualified(PINS.database, table)} IS {literal(comment)}")


def _copied(lake: Lake, source: Source, time_us: int) -> Iterator[tuple[str, DataFrame]]:
    """Names of the tables to copy, and what they held at that time."""
    # text in the statement: Spark does not bind parameters in a table function's arguments
    for window in source.windows:
        read = (
            f"SELECT * FROM {qualified('silver', f'{window}_as_of')}"
            f"(timestamp_micros(CAST({literal(str(time_us))} AS BIGINT)))"
        )
        yield window, lake.run(read)
    if source.windows:
        read = (
            f"SELECT * FROM silver.late_as_of({literal(source.name)},"
            f" timestamp_micros(CAST({literal(str(time_us))} AS BIGINT)))"
        )
        yield f"{source.name}_late", lake.run(read)
    if source.state is not None:
        read = (
            f"SELECT * FROM {qualified('gold', f'{source.name}_as_of')}"
            f"(timestamp_micros(CAST({literal(str(time_us))} AS BIGINT)))"
        )
        yield f"{source.name}_state", lake.run(read)
    if source.keeps_chains:
        # the newest now, whatever was published while other tables were copied: folding moves what an earlier one shows
        newest = publication.load(lake, source)
        horizon = published_horizon(source, frontiers.load(lake, source, near=newest.token), newest)
        versions = versions_at(published_chains(lake, source, newest), time_us, horizon)
        times = {c: F.timestamp_micros(c) for c in ("timestamp", "valid_from", "valid_to")}
        yield f"{source.name}_versions", versions.withColumns(times).withColumnRenamed("entity", source.entity)
