"""Markdown of texts from the code: tables, sections, and texts in which no character means anything by accident."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_CODE = re.compile(r"(`[^`]+`)")
_ENTITIES = {"<": "&lt;", "|": "&#124;", "{": "&#123;", "*": "&#42;", "[": "&#91;"}
_ENTITY = re.compile("|".join(map(re.escape, _ENTITIES)))


def prose(text: str) -> str:
    """A text on one line whose only markup is code between backticks."""
    parts = _CODE.split(" ".join(text.split()))
    return "".join(part if _CODE.fullmatch(part) else _escape(part) for part in parts)


def paragraphs(text: str) -> str:
    """The paragraphs of a docstring, each as `prose`."""
    return "\n\n".join(prose(part) for part in re.split(r"\n\s*\n", text.strip()))


def code(text: str) -> str:
    """A text as code. One that is empty, or only spaces, is put between quotes."""
    return f"`{text}`" if text.strip() else f'`"{text}"`'


def anchored_code(text: str, anchor: str) -> str:
    """A text as code that a link to `#anchor` leads to."""
    return f"{code(text)}{{#{anchor}}}"


def table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are Markdown; empty if there are no rows."""
    listed = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([f"| {' | '.join(headers)} |", f"|{' --- |' * len(headers)}", *listed]) if listed else ""


def section(level: int, heading: str, *parts: str) -> str:
    """A heading of this level, and below it the parts that are not empty."""
    return "\n\n".join([f"{'#' * level} {heading}", *filter(None, parts)])


def whole_page(title: str, *parts: str) -> str:
    """A page: its title, and below it the parts that are not empty."""
    return section(1, title, *parts) + "\n"


def as_sentence(text: str) -> str:
    """The text with a full stop if it has no end of its own, and a capital first letter if it begins with a word."""
    ended = text if text.endswith((".", "!", "?", "…")) else f"{text}."
    return ended if "." in ended.split()[0][:-1] else ended[:1].upper() + ended[1:]


def _escape(text: str) -> str:
    return _ENTITY.sub(lambda match: _ENTITIES[match[0]], text)
