"""Values of pages as HTML: times, long texts, numbers and words of the glossary. Every text of the data is escaped."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup

from spark_jobs.portal.glossary import named_entry
from spark_jobs.portal.links import Links
from spark_jobs.portal.values import format_value, is_number

LONG = 64
"""The most characters of a text that a cell shows at once; the whole text is one click away."""
_SHORT = 40
"""The characters of a long text that stay in view."""
_TIME = Markup('<time datetime="{}">{}</time>')
_LONG = Markup('<details class="long"><summary>{}…</summary>{}</details>')
_CELL, _NUMBER = Markup("<td>{}</td>"), Markup('<td class="num">{}</td>')
_WORD = Markup('<a class="word" href="{}" title="{}">{}</a>')


def markup(value: Any) -> Markup:
    """A value as HTML: a time that the reader's zone can replace, a long text that opens, else its text."""
    if isinstance(value, Markup):
        return value
    text = format_value(value)
    if isinstance(value, datetime):
        return _TIME.format((value if value.tzinfo else value.replace(tzinfo=UTC)).isoformat(), text)
    return _LONG.format(text[:_SHORT], text) if len(text) > LONG else Markup("{}").format(text)


def moment(time: datetime | None) -> Markup:
    """A time of the machine's clock as HTML, to the second."""
    return markup(None if time is None else time.replace(microsecond=0))


def cell(value: Any) -> Markup:
    """A value as a cell of a table; numbers are aligned to the right."""
    return (_NUMBER if is_number(value) else _CELL).format(markup(value))


def has_numbers(column: str, rows: Any) -> bool:
    """True if the first value of a column that is not null is a number."""
    values = (row[column] for row in rows if isinstance(row, Mapping) and row.get(column) is not None)
    return is_number(next(values, None))


def term(text: str, links: Links) -> Markup:
    """A word with the sentence of the glossary that explains it, as a link to its entry; other words as they are."""
    entry = named_entry(text)
    page = None if entry is None else links.to("glossary")
    if entry is None or page is None:
        return Markup("{}").format(text)
    return _WORD.format(f"{page}#{entry.anchor}", entry.sentence, text)
