"""Quoting: the one place where names and text become SQL.

Everything that reaches SQL text from outside passes through `name` (identifiers), `literal` (text) or `whole`
(numbers). Named parameters do not work: Delta 4.4's parser leaves those of Spark 4.2 unbound, over Connect whatever the
settings.
"""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from spark_jobs.engine.calendar import DAYS, MONTHS
from spark_jobs.errors import ParameterError
from spark_jobs.sources import Schedule


def name(identifier: str) -> str:
    """An identifier in back quotes; refuses one that is empty or has a NUL character."""
    if not identifier or "\x00" in identifier:
        raise ParameterError(
            expected="a column or table name", found=repr(identifier), next_step="name it in the source file"
        )
    return "`" + identifier.replace("`", "``") + "`"


def qualified(*parts: str) -> str:
    """`database`.`table`."""
    return ".".join(name(part) for part in parts)


def literal(text: str) -> str:
    """A string literal that reads back as exactly `text`."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    return f"'{escaped}'"


def whole(number: int) -> str:
    """A BIGINT literal; refuses any other value than a whole number of 64 signed bits."""
    if isinstance(number, bool) or int(number) != number or not -(2**63) <= number < 2**63:
        raise ParameterError(expected="a whole number of 64 signed bits", found=repr(number))
    return f"{int(number)}L"


def drop_start_sql(drops: Schedule, seq_no: str) -> str:
    """SQL: the start of a drop, in microseconds since 1970. `seq_no`: SQL of the drop's number.

    For drops by the calendar, it is computed in Spark's own time zones, by the same rules as in the kernels.
    """
    if drops.calendar is None:
        return f"({drops.start_us}L + {seq_no} * {drops.every_us}L)"
    (count, unit), zone = drops.calendar, ZoneInfo(drops.timezone)
    first = f"DATE'{datetime.fromtimestamp(drops.start_us // 10**6, UTC).astimezone(zone):%Y-%m-%d}'"
    if unit in DAYS:
        day = f"date_add({first}, CAST({seq_no} * {count * DAYS[unit]} AS INT))"
    else:
        day = f"add_months({first}, CAST({seq_no} * {count * MONTHS[unit]} AS INT))"
    # not a cast of the date: that gives midnight in the session's own time zone
    return f"unix_micros(to_utc_timestamp(timestamp_seconds(unix_date({day}) * 86400L), {literal(drops.timezone)}))"
