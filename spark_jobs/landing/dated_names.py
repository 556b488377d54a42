"""Dates in the names of files and folders, such as `2024-03-01` or `trips_20240301.csv`."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import date

_DATE = re.compile(r"(?<!\d)(\d{4})([-_]?)(\d{2})\2(\d{2})(?!\d)")


def date_in(text: str) -> date | None:
    """The last date in a path or name; None without one."""
    for year, _, month, day in reversed(_DATE.findall(text)):
        with suppress(ValueError):
            return date(int(year), int(month), int(day))
    return None


def without_dates(name: str) -> str:
    """A name without its dates and the marks around them; empty for a name that is a date alone."""
    return re.sub(r"[\W_]*\0[\W_]*", " ", _DATE.sub(_blank, name)).strip()


def _blank(match: re.Match[str]) -> str:
    """A mark in place of a date; other digits stay, such as those of an order's number."""
    return match[0] if date_in(match[0]) is None else "\0"
