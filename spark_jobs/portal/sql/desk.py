"""The work behind the SQL page: what each request of it asks for, without a web server.

Each work has a thread of its own, so no thread of the web server waits for the lake server. A bounded number of them
is at work at a time.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from io import BytesIO
from threading import BoundedSemaphore, Lock, Thread
from typing import IO, Any

from spark_jobs.config import QUERIES, Settings
from spark_jobs.errors import ParameterError, TidemarkError
from spark_jobs.portal.cross_site import JSON, CrossSite, expect_same_site
from spark_jobs.portal.sql.as_of import PastStatement, instant, read_past
from spark_jobs.portal.sql.names import NamesForReaders
from spark_jobs.portal.sql.results import all_rows, first_rows
from spark_jobs.portal.sql.row_links import row_links
from spark_jobs.portal.sql.saved import SavedQueries
from spark_jobs.portal.sql.statement import Statement
from spark_jobs.sources import Source
from spark_jobs.statements import statements

PREFIX = "sql/"
"""The begin of the paths of the page's requests."""
MOST_AT_WORK = 8
"""The most works at a time: each has a session at the lake server, whose reader may open a hundred."""
MOST_BYTES = 1 << 20
"""The most bytes of a request."""
CSV = "text/csv; charset=utf-8"

_LOG = logging.getLogger(__name__)


class PageBusy(TidemarkError):
    """As many statements of the SQL page are at work as there may be."""

    code = "sql_page_busy"


@dataclass(frozen=True)
class Reply:
    """The answer to a request: its status, the type of its body, and the body from its begin on.

    A statement that is refused is an answer like others, JSON with `error` and `code`: browsers write other statuses to
    their consoles.
    """

    status: HTTPStatus
    kind: str
    body: IO[bytes]


@dataclass(frozen=True)
class Work:
    """A request at work. `reply` is done once it has ended; `cancel` ends it early, also in the lake server."""

    reply: Future[Reply]
    cancel: Callable[[], None]


Action = Callable[["_Request"], Any]


class SqlDesk:
    """The SQL page's requests of an installation.

    Args:
        settings: those of the installation.
        is_built: true for a mart that was built, although readers do not see it.
        sources: the sources by name, to which rows of their published tables lead.
    """

    def __init__(
        self, settings: Settings, is_built: Callable[[str], bool], sources: Callable[[], Mapping[str, Source]]
    ) -> None:
        self._settings, self._is_built, self._sources = settings, is_built, sources
        self._names, self._saved = NamesForReaders(settings), SavedQueries(settings.home / QUERIES)
        self._seats, self._lock = BoundedSemaphore(min(MOST_AT_WORK, settings.reader_statements)), Lock()
        self._at_work: dict[tuple[str, str], Statement] = {}
        self._actions: dict[str, Action] = {
            "run": self._run,
            "csv": self._csv,
            "cancel": self._cancel,
            "names": self._list_names,
            "columns": lambda request: self._names.columns(request.texts("tables")),
            "saved": lambda _: self._saved.all(),
            "save": self._save,
            "delete": lambda request: self._saved.delete(request.text("name")),
        }

    def begin(self, action: str, headers: Mapping[str, str], body: bytes, who: str) -> Work:
        """Begin with a request of a user.

        Args:
            action: the path of the request after PREFIX.
            headers: the request's headers by their names in lower case.
            body: a JSON object.
            who: the name of the user.
        """
        do = self._actions.get(action)
        if do is None:
            return _finish(_reply({"error": "there is no such page"}, HTTPStatus.NOT_FOUND))
        try:
            expect_same_site(headers)
            request = _Request.parse(body, who)
        except TidemarkError as error:
            is_ours = not isinstance(error, CrossSite)
            return _finish(_refusal(error, HTTPStatus.BAD_REQUEST if is_ours else HTTPStatus.FORBIDDEN))
        if action in ("cancel", "saved", "save", "delete"):  # these need no session
            return _finish(_answer(do, request))
        if not self._seats.acquire(blocking=False):
            return _finish(_refusal(_busy()))
        reply: Future[Reply] = Future()

        def work() -> None:
            try:
                reply.set_result(_answer(do, request))
            except Exception as error:
                _LOG.exception("a request of the SQL page failed: %s", action)
                failure = f"the portal failed ({type(error).__name__}); its log has more"
                reply.set_result(_reply({"error": failure, "code": "unexpected"}, HTTPStatus.INTERNAL_SERVER_ERROR))
            finally:
                self._seats.release()

        Thread(target=work, name=f"sql-page-{action}", daemon=True).start()
        return Work(reply, lambda: self._cancel(request))

    def close(self) -> None:
        """Cancel the statements at work."""
        with self._lock:
            at_work = [*self._at_work.values()]
        for statement in at_work:
            with suppress(TidemarkError):  # a server that has gone has no statements
                statement.cancel()

    def _run(self, request: _Request) -> dict[str, Any]:
        past, result = self._at(request, first_rows)
        names = [column["name"] for column in result["columns"]]
        links = row_links(request.text("statement"), self._sources(), names, result["rows"])
        return {**result, "why": links, "statement": past.text, "past": past.past, "present": past.present}

    def _csv(self, request: _Request) -> IO[bytes]:
        return self._at(request, all_rows)[1]

    def _at(self, request: _Request, take: Callable[[Any], Any]) -> tuple[PastStatement, Any]:
        """Run the one statement of a request; one of the same tab that is still at work ends."""
        past = self._as_known(_one_statement(request.text("statement")), request.text("as_of", ""))
        key = (request.who, request.text("tab"))
        statement = Statement(self._settings, past.text, self._is_built)
        with self._lock:
            before = self._at_work.get(key)
            self._at_work[key] = statement
        try:
            if before is not None:
                before.cancel()
            return past, statement.run(take)
        finally:
            with self._lock:
                if self._at_work.get(key) is statement:
                    del self._at_work[key]

    def _as_known(self, statement: str, as_of: str) -> PastStatement:
        if not as_of:
            return PastStatement(statement, [], [])
        at: datetime = instant(as_of)
        return read_past(statement, at, self._names.all().of_time)

    def _cancel(self, request: _Request) -> None:
        with self._lock:
            statement = self._at_work.get((request.who, request.text("tab", "")))
        if statement is not None:
            statement.cancel()

    def _list_names(self, _: _Request) -> dict[str, Any]:
        names = self._names.all()
        return {"tables": names.tables, "functions": names.functions}

    def _save(self, request: _Request) -> None:
        by, replace = request.who, request.values.get("replace") is True
        self._saved.save(request.text("name"), request.text("statement"), by, replace=replace)


@dataclass(frozen=True)
class _Request:
    """The values of a request, and the name of its user."""

    values: Mapping[str, Any]
    who: str

    @classmethod
    def parse(cls, body: bytes, who: str) -> _Request:
        try:
            values = json.loads(body) if len(body) <= MOST_BYTES else None
        except (ValueError, RecursionError):
            values = None
        if not isinstance(values, dict):
            raise _refuse(f"a JSON object of up to {MOST_BYTES:,} bytes", f"{len(body):,} bytes of something else")
        return cls(values, who)

    def text(self, name: str, default: str | None = None) -> str:
        """The text `name`; ParameterError: it is none, or it is missing and there is no `default`."""
        value = self.values.get(name, default)
        if not isinstance(value, str):
            raise _refuse(f"a text `{name}`", type(value).__name__)
        if not _is_unicode(value):
            raise _refuse(f"a text `{name}` of Unicode", "half a character (a lone surrogate)")
        return value

    def texts(self, name: str) -> list[str]:
        """The list of texts `name`; ParameterError: it is none."""
        value = self.values.get(name)
        if not isinstance(value, list) or not all(isinstance(each, str) and _is_unicode(each) for each in value):
            raise _refuse(f"a list of texts `{name}`", type(value).__name__)
        return value


def _is_unicode(text: str) -> bool:
    """True unless it has half of a surrogate pair, which JSON may have and no encoding takes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _one_statement(text: str) -> str:
    parts = statements(text)
    if len(parts) == 1:
        return parts[0]
    raise ParameterError(
        expected="one statement",
        found=f"{len(parts)} statements",
        consequence="nothing was run",
        next_step="select the statement to run" if parts else "write a statement, or choose a table",
    )


def _answer(do: Action, request: _Request) -> Reply:
    try:
        result = do(request)
    except TidemarkError as error:
        return _refusal(error)
    return _reply(result) if result is None or isinstance(result, dict | list) else Reply(HTTPStatus.OK, CSV, result)


def _reply(result: Any, status: HTTPStatus = HTTPStatus.OK) -> Reply:
    return Reply(status, JSON, BytesIO(json.dumps(result, ensure_ascii=False).encode()))


def _refusal(error: TidemarkError, status: HTTPStatus = HTTPStatus.OK) -> Reply:
    return _reply({"error": error.sentence(), "code": error.code}, status)


def _finish(reply: Reply) -> Work:
    ready: Future[Reply] = Future()
    ready.set_result(reply)
    return Work(ready, lambda: None)


def _refuse(expected: str, finding: str) -> ParameterError:
    return ParameterError(
        expected=expected, found=finding, consequence="nothing was done", next_step="load the page anew"
    )


def _busy() -> PageBusy:
    return PageBusy(
        expected=f"at most {MOST_AT_WORK} statements of the SQL page at work",
        found="as many",
        consequence="nothing was run",
        next_step="run it again in a while; `tidemark sql` has a limit of its own",
    )
