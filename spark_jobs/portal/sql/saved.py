"""Saved queries: files `NAME.sql` in a folder of the home, which all users of the SQL page share.

The first line of a file is a comment with the user who saved it and the time.
"""

from __future__ import annotations

import re
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from spark_jobs.errors import ParameterError

MOST_QUERIES, MOST_CHARACTERS = 500, 100_000
"""The most saved queries, and the most characters of one."""
_NAME = re.compile(r"\w(?:[\w .,()+-]{0,78}[\w)+])?")
_BY = re.compile(r"-- saved by (.*) at (\S+)\n")
_END = ".sql"


class SavedQueries:
    """The saved queries of an installation.

    Args:
        folder: the folder of their files; the first query that is saved creates it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def all(self) -> list[dict[str, Any]]:
        """Each query as `name`, `statement`, `by` and `at`, sorted by name; files of other names are left out."""
        paths = sorted(self._folder.glob(f"*{_END}"), key=lambda path: path.name.casefold())
        return [self._read(path) for path in paths if path.is_file() and _NAME.fullmatch(path.name.removesuffix(_END))]

    def save(self, name: str, statement: str, by: str, *, replace: bool) -> None:
        """Save a query.

        Raises:
            ParameterError: the name or the statement is refused, or, without `replace`, the name is taken.
        """
        path = self._path(name)
        if not statement.strip() or len(statement) > MOST_CHARACTERS:
            raise _refusal(f"a statement of up to {MOST_CHARACTERS:,} characters", f"{len(statement):,}", "shorten it")
        if path.exists() and not replace:
            raise _refusal("a name that no saved query has", name, "choose another name, or replace the query")
        if not path.exists() and len(self.all()) >= MOST_QUERIES:
            raise _refusal(f"up to {MOST_QUERIES} saved queries", f"{MOST_QUERIES}", "delete one that nobody needs")
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        author = re.sub(r"\s+", " ", by).strip()
        head = f"-- saved by {author} at {datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}\n"
        with tempfile.NamedTemporaryFile(
            "w", dir=self._folder, prefix=".", encoding="utf-8", newline="", delete=False
        ) as file:
            file.write(f"{head}{statement}\n")
        Path(file.name).replace(path)

    def delete(self, name: str) -> None:
        """Delete a query; nothing happens if there is none of this name."""
        self._path(name).unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        # `\w` has no separator of paths, and a name begins with it: so no name leads out of the folder
        if _NAME.fullmatch(name) is None or len(f"{name}{_END}".encode()) > 200:
            raise _refusal(
                "a name of up to 80 letters, digits, spaces and _ . , ( ) + -, the first a letter or a digit",
                name[:100],
                "choose another name",
            )
        return self._folder / f"{name}{_END}"

    @staticmethod
    def _read(path: Path) -> dict[str, Any]:
        text = path.read_text(encoding="utf-8", errors="replace")
        head = _BY.match(text)
        by, at = (None, None) if head is None else head.groups()
        statement = text if head is None else text[head.end() :]
        return {"name": path.name.removesuffix(_END), "statement": statement.removesuffix("\n"), "by": by, "at": at}


def _refusal(expected: str, finding: str, next_step: str) -> ParameterError:
    return ParameterError(expected=expected, found=finding, consequence="nothing was saved", next_step=next_step)
