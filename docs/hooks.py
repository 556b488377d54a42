"""Hooks of MkDocs: the navigation and lists of pages follow the files that are there.

In `mkdocs.yml`, an entry of `nav` may be a pattern such as `howto/*.md`: it stands for the pages that match and have no
place before it, `index.md` first and the others by name. In a page, a line `<!-- nav: How to -->` becomes a list of
links to the pages of this entry.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_LIST = re.compile(r"^<!-- nav: (.+) -->$", re.MULTILINE)
_TITLE = re.compile(r"^# (.+?)(?: \{#.*\})?$", re.MULTILINE)


def on_config(config: Any) -> Any:
    """Put files in the place of patterns in the navigation."""
    config.nav = _expand(config.nav, Path(config.docs_dir), set())
    return config


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    """Put lists of links in the place of `<!-- nav: … -->`."""
    sections = {title: value for entry in config.nav if isinstance(entry, dict) for title, value in entry.items()}
    here = posixpath.dirname(page.file.src_uri) or "."
    folder = Path(config.docs_dir)
    return _LIST.sub(lambda match: "\n".join(_bullets(sections.get(match[1], []), folder, here)), markdown)


def matching_pages(folder: Path, pattern: str) -> list[str]:
    """The pages below a folder that match a pattern, as paths from that folder."""
    files = sorted(folder.glob(pattern), key=lambda file: (file.name != "index.md", file.name))
    return [file.relative_to(folder).as_posix() for file in files]


def _expand(entry: Any, folder: Path, placed: set[str]) -> Any:
    """The entry with pages in the place of patterns, without entries that have no page; `placed`: the pages that have
    their place."""
    if isinstance(entry, dict):
        inner = {title: _expand(value, folder, placed) for title, value in entry.items()}
        return {title: _unwrap(value, entry[title]) for title, value in inner.items() if value}
    if isinstance(entry, list):
        parts = [_expand(value, folder, placed) for value in entry]
        return [one for part in parts if part for one in (part if isinstance(part, list) else [part])]
    pages = [page for page in matching_pages(folder, entry) if page not in placed]
    placed.update(pages)
    return pages


def _unwrap(pages: Any, entry: Any) -> Any:
    """The page itself if the entry names one page, and not a section."""
    return pages[0] if isinstance(entry, str) and len(pages) == 1 else pages


def _bullets(entry: Any, folder: Path, here: str, indent: str = "") -> Iterator[str]:
    """Yield the lines of a list of links to the pages of an entry; sections are lists within the list."""
    if isinstance(entry, str):
        yield f"{indent}- [{_title(folder / entry)}]({posixpath.relpath(entry, here)})"
    elif isinstance(entry, list):
        for part in entry:
            yield from _bullets(part, folder, here, indent)
    else:
        for title, inner in entry.items():
            yield f"{indent}- {title}"
            yield from _bullets(inner, folder, here, f"{indent}    ")


def _title(page: Path) -> str:
    title = _TITLE.search(page.read_text(encoding="utf-8"))
    return title[1] if title else page.stem
