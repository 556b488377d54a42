"""Values as pages show them; the templates escape these texts."""

from __future__ import annotations

import json
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from spark_jobs.storage.descriptions.times import instant_text

ELEMENTS = 10
"""The most elements of a list that a page shows; a vector may have 80,000."""


def format_value(value: Any) -> str:
    """A value of a table as text.

    Instants are in UTC, without seconds or microseconds if these are zero. Whole numbers have separators, decimals all
    of their digits. A list or mapping is JSON; of a long list only the first ELEMENTS are shown. None is a dash.
    """
    if value is None:
        return "–"
    if isinstance(value, datetime):
        return instant_text(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, date):
        return value.isoformat()
    return _nested_text(value) if isinstance(value, (list, dict)) else str(value)


def is_number(value: Any) -> bool:
    """True for a whole number, a float or a decimal; truth values are none."""
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _nested_text(value: list[Any] | dict[str, Any]) -> str:
    if isinstance(value, dict) or len(value) <= ELEMENTS:
        return json.dumps(value, default=str, ensure_ascii=False)
    first = json.dumps(value[:ELEMENTS], default=str, ensure_ascii=False)
    return f"{first[:-1]}, … {len(value) - ELEMENTS:,} more]"


def key_text(value: Any) -> str:
    """A value of a key as people write it: instants and dates as ISO 8601 has them."""
    return str(value.isoformat()).replace("+00:00", "Z") if isinstance(value, date) else str(value)
