"""Checks of the parameters that all window functions share: a wrong one is refused before a job starts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

from spark_jobs.engine.windows.kinds.calendars import UNITS as CALENDAR_UNITS
from spark_jobs.engine.windows.kinds.calendars import Calendar
from spark_jobs.engine.windows.monoid import Aggregate
from spark_jobs.errors import ParameterError

GREATEST_TICKS = 2**63 - 1
_MOST_PERIODS = 1000
_INTEGERS = (ByteType, ShortType, IntegerType, LongType)
_TIMESTAMPS = (TimestampType, TimestampNTZType)
Duration = int | timedelta
"""A length of time: ticks of the time column, or (timestamp columns only) a timedelta."""


DEFAULT_ROWS_A_SLICE = 1 << 19
"""The default number of rows per slice: half a million rows take a task about a second; fewer are not worth a task."""
DEFAULT_MEMORY_BYTES = 100 * 2**20
LEAST_MEMORY_BYTES = 2**20


@dataclass(frozen=True)
class Running:
    """The settings of running a call; they change no window."""

    rows_a_slice: int | None = DEFAULT_ROWS_A_SLICE
    memory_max_bytes: int = DEFAULT_MEMORY_BYTES
    metrics: Any = None

    @classmethod
    def of_options(cls, rows_a_slice: Any, memory_max_bytes: Any, metrics: Any) -> Running:
        """The settings, once checked. Raises ParameterError for the first wrong one."""
        if rows_a_slice is not None and (not _is_whole(rows_a_slice) or rows_a_slice < 1):
            raise refuse("rows_a_slice", expected="an integer of 1 or more, or None", found=rows_a_slice)
        if not _is_whole(memory_max_bytes) or memory_max_bytes < LEAST_MEMORY_BYTES:
            raise refuse(
                "memory_max_bytes",
                expected=f"an integer of {LEAST_MEMORY_BYTES} (1 MiB) or more",
                found=memory_max_bytes,
                value=memory_max_bytes,
            )
        # checked by the name of its type, classic or Connect: to read its properties would wait for a result
        if metrics is not None and type(metrics).__name__ != "Observation":
            raise refuse("metrics", expected="a pyspark.sql.Observation", found=type(metrics).__name__)
        return cls(rows_a_slice, memory_max_bytes, metrics)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def refuse(parameter: str, *, expected: str, found: Any, next_step: str = "", **facts: Any) -> ParameterError:
    """The refusal of one parameter."""
    return ParameterError(
        expected=f"{parameter}: {expected}",
        found=found if isinstance(found, str) else repr(found),
        consequence="no job was started",
        next_step=next_step,
        parameter=parameter,
        **facts,
    )


@dataclass(frozen=True)
class Frame:
    """A DataFrame with the types of its columns by name; its methods check columns that parameters name."""

    df: DataFrame
    types: dict[str, DataType]

    @classmethod
    def of(cls, df: Any) -> Frame:
        """Read the schema of a DataFrame: this runs the analyser, but no job."""
        if not isinstance(df, DataFrame):
            raise refuse("df", expected="a Spark DataFrame", found=type(df).__name__)
        names = [field.name for field in df.schema]
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise refuse("df", expected="columns with names of their own", found=f"{repeated} more than once")
        return cls(df, {field.name: field.dataType for field in df.schema})

    def column(self, parameter: str, name: Any) -> DataType:
        """The type of a column that a parameter names."""
        if not isinstance(name, str):
            raise refuse(parameter, expected="a column name", found=name)
        if name not in self.types:
            raise refuse(parameter, expected=f"one of the columns {sorted(self.types)}", found=name, column=name)
        return self.types[name]

    def columns(self, parameter: str, names: Any) -> list[str]:
        """The names of one or several columns, each of a type by which rows can be grouped."""
        listed = [names] if isinstance(names, str) else names
        if not isinstance(listed, Sequence) or not listed:
            raise refuse(parameter, expected="one column name or several", found=names)
        for name in listed:
            kind = self.column(parameter, name)
            if _holds_unordered(kind):
                raise refuse(parameter, expected="columns that can be grouped by", found=f"{name}: {kind.typeName()}")
        if len(set(listed)) < len(listed):
            raise refuse(parameter, expected="each column once", found=list(listed))
        return list(listed)

    def time(self, name: Any) -> DataType:
        """The type of the time column."""
        kind = self.column("time", name)
        if not isinstance(kind, (*_INTEGERS, *_TIMESTAMPS)):
            raise refuse(
                "time",
                expected="an integer or timestamp column",
                found=f"{name}: {kind.simpleString()}",
                next_step=f"parse it first, as in to_timestamp({name})",
                column=name,
                type=kind.simpleString(),
            )
        return kind

    def aggregates(self, aggregates: Any, taken: Iterable[str], *, needed: bool) -> dict[str, pa.DataType]:
        """The output type of each aggregate. Names that are equal to Spark, ignoring case, are refused."""
        if not isinstance(aggregates, Mapping) or (needed and not aggregates):
            raise refuse("aggregates", expected='{"name": aggregate, …}, at least one', found=aggregates)
        names = {name.lower() for name in taken}
        outputs = {}
        for name, aggregate in aggregates.items():
            if not isinstance(aggregate, Aggregate):
                raise refuse(
                    "aggregates",
                    expected="aggregates such as count() or sum_(column)",
                    found=f"{name}: {aggregate!r}",
                    name=name,
                )
            if not isinstance(name, str) or name.lower() in names:
                raise refuse("aggregates", expected="output names of their own", found=f"{name!r} again", name=name)
            names.add(name.lower())
            outputs[name] = aggregate.output_type(self._input(aggregate))
        return outputs

    def _input(self, aggregate: Aggregate) -> pa.DataType:
        if aggregate.column is None:
            return pa.null()
        return to_arrow_type(self.column("aggregates", aggregate.column))


def _holds_unordered(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return any(_holds_unordered(field.dataType) for field in kind)
    return isinstance(kind, (MapType, VariantType)) or _holds_unordered_elements(kind)


def _holds_unordered_elements(kind: DataType) -> bool:
    element = getattr(kind, "elementType", None)
    return element is not None and _holds_unordered(element)


def is_integer(time: DataType) -> bool:
    """True if a time column has integers, which count ticks of the user's own."""
    return isinstance(time, _INTEGERS)


def ticks(parameter: str, length: Any, time: DataType, *, least: int | None) -> int:
    """A length of time in ticks; `least` is the smallest number that is accepted (None: any)."""
    if isinstance(length, timedelta):
        if is_integer(time):
            raise refuse(
                parameter, expected="a number of units of the integer time column", found=length, value=str(length)
            )
        length = length // timedelta(microseconds=1)
    if isinstance(length, bool) or not isinstance(length, int):
        raise refuse(parameter, expected="an integer or a timedelta", found=length, value=length)
    if (least is not None and length < least) or abs(length) > GREATEST_TICKS:
        bounds = f"{least} .. 2**63-1 ticks" if least is not None else "a number of ticks within int64"
        raise refuse(parameter, expected=bounds, found=length, value=length)
    return length


def calendar(size: str, zone: str | None) -> Calendar:
    """A period such as "2 weeks" of the calendar of an IANA time zone."""
    count, _, unit = size.strip().lower().partition(" ")
    unit = unit.strip().removesuffix("s")
    if not count.isdecimal() or not 1 <= int(count) <= _MOST_PERIODS or unit not in CALENDAR_UNITS:
        units = ", ".join(CALENDAR_UNITS)
        raise refuse("size", expected=f"ticks, a timedelta, or a count of {units}", found=size, value=size)
    try:
        ZoneInfo(zone or "UTC")
    except (ZoneInfoNotFoundError, ValueError, TypeError, OSError):
        raise refuse("zone", expected="an IANA time zone such as Europe/Berlin", found=zone, value=zone) from None
    return Calendar(int(count), unit, zone or "UTC")
