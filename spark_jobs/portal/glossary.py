"""The glossary of the documentation, as the portal shows it: one text for both."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from markdown_it import MarkdownIt

from spark_jobs.config import SHIPPED

_LINK = re.compile(r"\[([^]]+)]\([^)]*\)")
_ALSO = {
    "late rows": "late row",
    "drops": "drop",
    "records": "quarantine",
    "in quarantine": "quarantine",
    "rejects": "quarantine",
    "rejected records": "quarantine",
    "duplicates": "duplicate",
    "let pass": "check",
    "windows": "window",
    "lateness": "late row",
    "chains": "chain",
    "checks": "check",
    "failing checks": "check",
    "last audit": "audit",
    "environments": "environment",
    "definition": "definition",
    "published up to": "published",
    "shows the publication": "publication",
    "revisions": "revision",
    "most revisions": "revision",
    "restated": "restatement",
    "frontiers": "frontier",
    "visible from": "visible time",
    "known from": "visible time",
    "marts": "mart",
    "states": "state",
    "deltas": "delta",
    "late": "late row",
    "sources": "source",
}
"""Words of pages that an entry of another form explains."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A word of the glossary: its anchor in a page, its meaning as HTML, and the first sentence of it as plain text."""

    word: str
    anchor: str
    meaning: str
    sentence: str


@cache
def entries() -> tuple[Entry, ...]:
    """The words of the glossary in the order of the page `docs/glossary.md`."""
    text = (SHIPPED / "docs" / "glossary.md").read_text()
    # the text before the first heading is about the documentation's other pages
    _, *sections = re.split(r"^## ", text, flags=re.MULTILINE)
    # text in angle brackets is text
    markdown = MarkdownIt("commonmark", {"html": False})
    words = (section.partition("\n") for section in sections)
    return tuple(Entry(word, anchor(word), markdown.render(meaning), _first(meaning)) for word, _, meaning in words)


def named_entry(text: str) -> Entry | None:
    """The entry that explains a word of a page; None if there is none."""
    word = text.replace("_", " ").lower()
    return _by_word().get(_ALSO.get(word, word))


@cache
def _by_word() -> dict[str, Entry]:
    return {entry.word.lower(): entry for entry in entries()}


def _first(meaning: str) -> str:
    """The first line of an entry, which is a sentence, without Markdown."""
    return _LINK.sub(r"\1", meaning.strip().partition("\n")[0]).replace("`", "")


def anchor(word: str) -> str:
    """The anchor of a heading, as MkDocs makes it, so that links between the entries work on both pages."""
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", word).strip().lower())
