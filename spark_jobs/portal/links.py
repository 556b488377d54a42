"""Links between pages: relative, so that they work both in files and behind a server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spark_jobs.portal.names import MOST_CHARACTERS, encode_key, encode_part
from spark_jobs.portal.values import key_text

_HTML = ".html"


class Links:
    """The links of one page. A link is None if there is no page to link to: then its text is shown without a link.

    Args:
        page: the page's name, such as `runs/flights/cli-1.html`.
        is_alone: true if the page is one file by itself, without links.
        most_rows: how many rows the page may link to; None: any number. `rows` lists the names of their pages.
    """

    def __init__(self, page: str, *, is_alone: bool = False, most_rows: int | None = None) -> None:
        self._up = "../" * page.count("/")
        self._is_alone = is_alone
        self._most_rows = most_rows
        self.rows: list[str] = []

    def to(self, *parts: str, at: str = "") -> str | None:
        """The link to a page by the parts of its name, which may be any texts; `at`: an anchor in the page."""
        name = "/".join(map(encode_part, parts)) + _HTML
        too_long = any(len(part) > MOST_CHARACTERS for part in name.split("/"))
        return None if self._is_alone or too_long else f"{self._up}{name}{at and '#'}{at}"

    def file(self, path: str) -> str | None:
        """The link to a file beside the pages, by its path as it is."""
        return None if self._is_alone else f"{self._up}{path}"

    @staticmethod
    def key(row: Mapping[str, Any], columns: Sequence[str]) -> list[str] | None:
        """The values of a row's key as `why` takes them; None if one is null."""
        values = [row[column] for column in columns]
        return None if None in values else [key_text(value) for value in values]

    def why(self, source: str, table: str, key: Sequence[str] | None) -> str | None:
        """The link to the page with the reasons for a published row."""
        if key is None or self._is_alone:
            return None
        last = encode_key(key) + _HTML
        name = f"why/{encode_part(source)}/{encode_part(table.rsplit('.', maxsplit=1)[-1])}/{last}"
        if len(last) > MOST_CHARACTERS:
            return None
        if self._most_rows is not None and name not in self.rows:
            if len(self.rows) >= self._most_rows:
                return None
            self.rows.append(name)
        return f"{self._up}{name}"
