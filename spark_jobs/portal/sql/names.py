"""The names that a statement of a reader may have, as the lake server lists them: tables, columns, functions."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from threading import Lock
from typing import Any

from spark_jobs.config import Settings
from spark_jobs.portal.sql.as_of import SUFFIX
from spark_jobs.portal.sql.statement import Session
from spark_jobs.server.logins import READABLE, UNPUBLISHED
from spark_jobs.sql_refusals import SqlRefused
from spark_jobs.storage.descriptions.sql import name as quote

KEPT_S = 30.0
"""The seconds for which names are kept: a run that adds a table is rare."""
MOST_TABLES = 40
"""The most tables whose columns are looked up at once."""
_FIRST = ("gold", "silver", "marts", "quality")
"""The databases that are listed first."""
_OF_A_SOURCE = ("late_as_of", "state_as_of")
"""The functions over the tables of all sources: they take the name of a source beside the time."""


@dataclass(frozen=True)
class ReadableNames:
    """The tables that readers may read by database, and the functions that read the past, as `database.function`.

    `of_time`: those functions that take a time alone, in lower case.
    """

    tables: dict[str, list[str]]
    functions: list[str]
    of_time: frozenset[str]


class NamesForReaders:
    """The names in the catalog. They are looked up when they are first needed, and kept for a short time.

    Args:
        settings: those of the installation.
    """

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings, self._clock, self._lock = settings, clock, Lock()
        self._names: ReadableNames | None = None
        self._until = 0.0

    def all(self) -> ReadableNames:
        """All names. Raises ServerUnreachable if the lake server does not answer."""
        with self._lock:
            if self._names is None or self._clock() > self._until:
                self._names = self._look_up()
                self._until = self._clock() + KEPT_S
            return self._names

    def columns(self, tables: Sequence[str]) -> dict[str, list[list[str]]]:
        """The columns of tables of `all`, each as name, type and comment; other tables are left out."""
        listed = {f"{database}.{table}" for database, of_it in self.all().tables.items() for table in of_it}
        wanted = [table for table in dict.fromkeys(tables) if table in listed][:MOST_TABLES]
        if not wanted:
            return {}
        with Session(self._settings) as session:
            return {table: _columns(session, table) for table in wanted}

    def _look_up(self) -> ReadableNames:
        with Session(self._settings) as session:
            databases = [str(row[0]) for row in session.rows("SHOW DATABASES")]
            tables = {
                database: [str(row[1]) for row in session.rows(f"SHOW TABLES IN {quote(database)}")]
                for database in sorted(databases, key=_place)
                if any(fnmatchcase(database, pattern.partition(".")[0]) for pattern in _readable(self._settings))
            }
            readable = {
                database: [table for table in of_it if self._is_readable(f"{database}.{table}")]
                for database, of_it in tables.items()
            }
            functions = [
                str(name).removeprefix("spark_catalog.")
                for database in readable
                if database.rpartition("__")[2] in ("silver", "gold")
                for (name,) in session.rows(f"SHOW USER FUNCTIONS IN {quote(database)}")
                if str(name).startswith("spark_catalog.")
            ]
        past = [name for name in functions if name.endswith(SUFFIX)]
        of_time = {name.lower() for name in past if name.partition(".")[2] not in _OF_A_SOURCE}
        return ReadableNames({name: of_it for name, of_it in readable.items() if of_it}, functions, frozenset(of_time))

    def _is_readable(self, table: str) -> bool:
        """True if a reader may read the table by its own name."""
        is_listed = any(fnmatchcase(table, pattern) for pattern in _readable(self._settings))
        return is_listed and not any(fnmatchcase(table, pattern) for pattern in UNPUBLISHED)


def _readable(settings: Settings) -> tuple[str, ...]:
    from spark_jobs.server.logins import login

    return (*READABLE, f"scratch_{login(settings, 'reader').user}.*")


def _place(database: str) -> tuple[int, str]:
    """The place of a database in the list: the published ones first."""
    return (_FIRST.index(database) if database in _FIRST else len(_FIRST), database)


def _columns(session: Session, table: str) -> list[list[str]]:
    """The columns of a table that is there; those of one that has gone since are none."""
    try:
        described: list[tuple[Any, ...]] = session.rows(f"DESCRIBE {'.'.join(map(quote, table.split('.', 1)))}")
    except SqlRefused:
        return []
    columns = []
    for name, kind, comment in described:
        if not name or name.startswith("# "):
            break  # what follows is about partitions
        columns.append([str(name), str(kind), str(comment or "")])
    return columns
