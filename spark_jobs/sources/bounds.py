"""Columns and values in `checks:` of a source file: the columns exist, and the values are of their types."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from decimal import Context, Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

from pydantic_core import PydanticCustomError

from spark_jobs.sources.check_base import ROWS, STATE
from spark_jobs.sources.columns import DeclaredColumn
from spark_jobs.sources.data_checks import Between, Freshness, In, Matches, OfExpectation
from spark_jobs.sources.emissions import OWN_COLUMNS
from spark_jobs.sources.problems import Problem, name_problem, refuse, show
from spark_jobs.sources.quantities import DAY_US, parse_instant

if TYPE_CHECKING:
    from spark_jobs.sources.checks import Draft
    from spark_jobs.sources.data_checks import DataCheck

BOUNDS = ("window_start", "window_end")
STATE_TIME = "timestamp"
_ALL_DIGITS = Context(prec=38)
"""Arithmetic with as many digits as a column may have; the default context rounds a `Decimal` to 28."""


def as_typed(value: Any, column: DeclaredColumn) -> Any:
    """A value of a source file as a value of the column: times in microseconds, dates in days, decimals as `Decimal`.

    Raises:
        PydanticCustomError: the value is not of the column's type.
    """
    kind = column.kind
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind == "float" and number:
        return float(value)
    if kind == "int" and number and value == int(value) and -(2**63) <= value < 2**63:
        return int(value)
    if kind == "decimal" and (number or isinstance(value, str)):
        return _decimal(value, column)
    if kind == "timestamp":
        return parse_instant(value)
    if kind == "date" and not isinstance(value, dt.datetime) and parse_instant(value) % DAY_US == 0:
        return parse_instant(value) // DAY_US
    if (kind == "string" and isinstance(value, str)) or (kind == "bool" and isinstance(value, bool)):
        return value
    raise refuse(f"a value of the column's type, {column.type}", value)


def _decimal(value: Any, column: DeclaredColumn) -> Decimal:
    precision, scale = column.digits or (38, 0)
    try:
        exact = Decimal(str(value))
    except InvalidOperation:
        raise refuse(f"a value of the column's type, {column.type}", value) from None
    if not exact.is_finite() or exact.copy_abs() >= 10 ** (precision - scale):
        raise refuse(f"a value of the column's type, {column.type}", value)
    if _ALL_DIGITS.remainder(exact, Decimal(1).scaleb(-scale)):
        raise refuse(f"a value of the column's type, {column.type}", value)
    return exact


def check_data_checks(draft: Draft) -> Iterator[Problem]:
    """The problems of the checks of a draft: tables and columns that do not exist, and values of another type."""
    for name, check in draft.data_checks.items():
        if check is None:
            continue
        path = f"checks.{name}"
        tables = [ROWS, *draft.windows, *draft.emissions, *([STATE] if draft.state_mode is not None else [])]
        if check.table not in tables:
            yield name_problem(f"{path}.table", "table of the source", check.table, tables)
            continue
        columns = columns_of(draft, check.table)
        missing = [column for column in check.read if column not in columns]
        for column in missing:
            yield name_problem(f"{path}.{_field(check)}", f"column of {check.table}", column, columns)
        if not missing:
            yield from _value_problems(path, check, columns)


def columns_of(draft: Draft, table: str) -> dict[str, DeclaredColumn | None]:
    """The columns of a table that checks may name, with their types; None for a type that is known only in the run."""
    if table == ROWS:
        return dict(draft.columns)
    time = DeclaredColumn.model_validate("timestamp")
    if table == STATE:
        entity = DeclaredColumn.model_validate("string")  # the state's table stores every entity as text
        number = DeclaredColumn.model_validate("int" if draft.state_datatype == "int64" else "float")
        return {
            **({draft.values["entity"]: entity} if "entity" in draft.values else {}),
            **dict.fromkeys(draft.components, number),
            STATE_TIME: time,
            "delta_count": DeclaredColumn.model_validate("int"),
        }
    window = (draft.windows | draft.emissions)[table]
    keys = {key: draft.columns.get(key) for key in window.key}
    types = dict(zip(OWN_COLUMNS, map(DeclaredColumn.model_validate, ("int", "string", "timestamp")), strict=True))
    of_kind = types if table in draft.emissions else {}
    return {**keys, **dict.fromkeys(BOUNDS, time), **of_kind, **dict.fromkeys(window.aggregates)}


def _field(check: DataCheck) -> str:
    if isinstance(check, OfExpectation):
        return "arguments"
    return "columns" if "columns" in type(check).model_fields else "column"


def _value_problems(path: str, check: DataCheck, columns: Mapping[str, DeclaredColumn | None]) -> Iterator[Problem]:
    column = columns[check.read[0]] if check.read else None
    if column is None:
        return
    if isinstance(check, Matches) and column.kind != "string":
        yield Problem(f"{path}.column", "a column of type string", f"`{check.column}` of type {column.type}")
    if isinstance(check, Freshness) and column.kind != "timestamp":
        yield Problem(f"{path}.column", "a column of type timestamp", f"`{check.column}` of type {column.type}")
    if isinstance(check, Between) and column.kind == "bool":
        yield Problem(f"{path}.column", "a column whose values have an order", f"`{check.column}` of type bool")
    values: list[tuple[str, Any]] = []
    if isinstance(check, Between):
        values = [(f"{path}.{end}", value) for end in ("min", "max") if (value := getattr(check, end)) is not None]
    elif isinstance(check, In):
        values = [(f"{path}.values.{place}", value) for place, value in enumerate(check.values)]
    read = []
    for place, value in values:
        try:
            read.append(as_typed(value, column))
        except PydanticCustomError as refused:
            context = refused.context or {}
            yield Problem(place, context["expected"], context["found"])
    if isinstance(check, Between) and len(read) == 2 and read[0] > read[1]:
        yield Problem(path, "`min` at most `max`", f"{show(check.min)} to {show(check.max)}")
