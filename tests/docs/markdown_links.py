"""Links between pages of Markdown, checked without MkDocs: does the page exist, and has it the anchor?"""

from __future__ import annotations

import html
import posixpath
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping

_FENCE = re.compile(r"^ *(```+|~~~+).*?^ *\1 *$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_LINKS = (
    re.compile(r"\]\(\s*<?([^()\s<>]+)>?(?:\s+\"[^\"]*\")?\s*\)"),
    re.compile(r"^ {0,3}\[[^\]\n^]+\]:\s+<?(\S+?)>?\s*$", re.MULTILINE),
    re.compile(r"\b(?:href|src)=\"([^\"]+)\""),
)
_HEADING = re.compile(r"^#{1,6} +(?P<text>.+?)(?: +#+)?(?: *\{:? *#(?P<id>[^\s}]+)[^}]*\})? *$", re.MULTILINE)
_IDS = (re.compile(r"\{:? *#([^\s}]+)[^}]*\}"), re.compile(r"\b(?:id|name)=\"([^\"]+)\""))
_MARKUP = re.compile(r"!?\[([^\]]*)\]\([^)]*\)|<[^>]+>")
_ELSEWHERE = re.compile(r"^[a-z][a-z0-9+.-]*:", re.IGNORECASE)


def broken_links(pages: Mapping[str, str], files: Iterable[str] = ()) -> list[str]:
    """The links that lead nowhere, as `page: target`.

    Args:
        pages: the text of each page, by its path.
        files: the paths of files that are no pages, such as images.
    """
    anchors = {page: page_anchors(text) for page, text in pages.items()}
    present = {*pages, *files}
    return [
        f"{page}: {target}"
        for page, text in pages.items()
        for target in links(text)
        if not _leads_somewhere(page, target, anchors, present)
    ]


def links(text: str) -> Iterator[str]:
    """Yield the targets of all links and images of a page that are on this site."""
    plain = _CODE.sub("`code`", _strip_blocks(text))
    for pattern in _LINKS:
        yield from (match[1] for match in pattern.finditer(plain) if not _ELSEWHERE.match(match[1]))


def page_anchors(text: str) -> set[str]:
    """The anchors of a page: those of its headings, as MkDocs makes them, and those that are written out."""
    plain = _strip_blocks(text)
    anchors = {match[1] for pattern in _IDS for match in pattern.finditer(plain)}
    for heading in _HEADING.finditer(plain):
        if heading["id"] is None:
            anchors.add(_unique(_slug(heading["text"]), anchors))
    return anchors


def _leads_somewhere(page: str, target: str, anchors: Mapping[str, set[str]], present: set[str]) -> bool:
    path, _, anchor = target.partition("#")
    to = posixpath.normpath(posixpath.join(posixpath.dirname(page), path)) if path else page
    return to in present and (not anchor or anchor in anchors.get(to, ()))


def _strip_blocks(text: str) -> str:
    return _COMMENT.sub("", _FENCE.sub("", text))


def _slug(heading: str) -> str:
    text = html.unescape(_MARKUP.sub(lambda match: match[1] or "", heading)).replace("`", "").replace("*", "")
    ascii_text = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", ascii_text).strip().lower())


def _unique(slug: str, taken: set[str]) -> str:
    """The slug, with a number if a heading before it has the same one."""
    numbered = [slug, *(f"{slug}_{number}" for number in range(1, len(taken) + 1))]
    return next(candidate for candidate in numbered if candidate not in taken)
