"""Pages that are files of the repository: the decisions, with an index, and the documents beside the code.

A link to another page of the site leads there. A link to a file that is no page becomes plain text.
"""

from __future__ import annotations

import functools
import os
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from docs.generate.markdown import table, whole_page

ROOT = Path(__file__).resolve().parents[2]
"""The folder of the checkout."""

DOCUMENTS = {
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
    "CONTRIBUTING.md": "contributing.md",
    "dags/sources/README.md": "source-files.md",
    "dags/README.md": "dags.md",
    "dbt/README.md": "dbt.md",
    "spark_jobs/engine/README.md": "engine.md",
    "spark_jobs/engine/spark/windows/README.md": "windows.md",
}
"""File of the repository -> its page below `docs/reference/`."""
_DECISIONS = "spark_jobs/decisions"
_HAND_WRITTEN = "docs"
_LINK = re.compile(r"(?<!!)\[(?P<text>[^\[\]]*)\]\((?P<target>[^()\s]+)\)")
_FENCE = re.compile(r"^( *)(```|~~~).*?^\1\2", re.MULTILINE | re.DOTALL)
_TITLE = re.compile(r"^# (?:\d+ )?(.+)$", re.MULTILINE)
_SENTENCE = re.compile(r".+?[.?!](?=\s|$)", re.DOTALL)
_INTRODUCTION = """
Each decision that somebody may want to undo later is a page: the problem, what was chosen, what else was considered,
and what was measured.
"""


@dataclass(frozen=True)
class Decision:
    """A decision: its number, its title without the number, and the first sentence of its text."""

    file: str
    number: str
    title: str
    sentence: str


def pages() -> dict[str, str]:
    """The text of each page, by its path below `docs/reference/`."""
    targets = page_paths()
    texts = {page: _rewrite_links((ROOT / file).read_text(encoding="utf-8"), file) for file, page in targets.items()}
    return {**texts, "decisions/index.md": _decision_index()}


@functools.cache
def page_paths() -> dict[str, str]:
    """File of the repository -> its page below `docs/reference/`, of all documents and decisions."""
    decisions = sorted((ROOT / _DECISIONS).glob("*.md"))
    return {**DOCUMENTS, **{f"{_DECISIONS}/{file.name}": f"decisions/{file.name}" for file in decisions}}


@functools.cache
def decisions() -> list[Decision]:
    """All decisions, by their number."""
    files = [file for file in page_paths() if file.startswith(_DECISIONS)]
    return [_decision(file) for file in sorted(files)]


def _decision(file: str) -> Decision:
    text = (ROOT / file).read_text(encoding="utf-8")
    title = _TITLE.search(text)
    assert title is not None, f"{file} has no title"
    body = re.sub(r"^\*\*[^*]+\.\*\*\s+", "", text[title.end() :].strip())
    sentence = _SENTENCE.match(body)
    name = PurePosixPath(file).name
    return Decision(name, name.partition("-")[0], title[1], " ".join((sentence[0] if sentence else body).split()))


def _decision_index() -> str:
    rows = [[f"[{d.number}]({d.file})", d.title, _rewrite_links(d.sentence, f"{_DECISIONS}/x")] for d in decisions()]
    return whole_page("Decisions", _INTRODUCTION.strip(), table(["number", "decision", "problem"], rows))


def _rewrite_links(text: str, file: str) -> str:
    """The text of a file of the repository with links as its page needs them; what is in fences stays."""
    fenced = [match.span() for match in _FENCE.finditer(text)]

    def rewrite(match: re.Match[str]) -> str:
        if any(begin <= match.start() < end for begin, end in fenced):
            return match[0]
        return _link(match["text"], match["target"], file)

    return _LINK.sub(rewrite, text)


def _link(text: str, target: str, file: str) -> str:
    if "://" in target or target.startswith(("#", "mailto:")):
        return f"[{text}]({target})"
    path, hash_sign, anchor = target.partition("#")
    absolute = os.path.normpath(PurePosixPath(file).parent / path)
    page = _page_of(absolute)
    if page is None:
        return text
    folder = PurePosixPath(page_paths().get(file, "decisions/index.md")).parent
    return f"[{text}]({os.path.relpath(page, folder)}{hash_sign}{anchor})"


def _page_of(file: str) -> str | None:
    """The page of a file, relative to `docs/reference/`."""
    if file.startswith(f"{_HAND_WRITTEN}/") and file.endswith(".md"):
        return os.path.relpath(file, "docs/reference")
    return page_paths().get(file)
