"""A statement of a reader through the Thrift port, in a session of its own, which another thread can cancel."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from threading import Event, Lock
from typing import Any, TypeVar

from spark_jobs.config import Settings
from spark_jobs.errors import TidemarkError, first_condition
from spark_jobs.server.errors import ServerUnreachable
from spark_jobs.server.logins import login
from spark_jobs.server.thrift_client import thrift_connection
from spark_jobs.sql_refusals import own_sentence, sql_refusal

Result = TypeVar("Result")

PAUSES_S = (0.02, 0.5)
"""The shortest and the longest pause between two looks at a statement that runs."""
_GRACE_S = 60.0
"""The seconds for which an answer may take longer than the limit of readers' statements."""


class StatementCancelled(TidemarkError):
    """The statement was cancelled before its rows were there."""

    code = "statement_cancelled"


class RefusedByServer(TidemarkError):
    """The lake server refused a statement with a sentence of Tidemark's, such as that of a limit."""

    code = "refused_by_server"

    def sentence(self) -> str:
        """The server's own sentence, which has its own code."""
        return self.found


class Statement:
    """A statement that `run` runs once. The session ends with it, so nothing of it is left for the next one.

    Args:
        settings: those of the installation.
        text: the statement.
        is_built: true for a mart that was built, although readers do not see it.
    """

    def __init__(self, settings: Settings, text: str, is_built: Callable[[str], bool]) -> None:
        self._settings, self._text, self._is_built = settings, text, is_built
        self._cancelled, self._lock = Event(), Lock()
        self._operation: Any = None

    def run(self, take: Callable[[Cursor], Result]) -> Result:
        """Run the statement, and take its rows by `take`, in this thread.

        Raises:
            ServerUnreachable: the lake server does not answer.
            LoginMissing: there is no login of a reader.
            StatementCancelled: `cancel` was called.
            RefusedByServer, SqlRefused: the server refuses the statement.
        """
        from pyhive.exc import OperationalError

        with Session(self._settings) as session:
            try:
                cursor = session.cursor(self._text)
                with self._lock:
                    self._operation = cursor.operation
                self._wait(cursor)
                result = take(cursor)
                if self._cancelled.is_set():
                    raise _cancellation()
            except OperationalError as error:
                if self._cancelled.is_set():
                    raise _cancellation() from None
                raise _refusal(*_message(error), self._is_built) from None
            finally:
                with self._lock:
                    self._operation = None
            return result

    def cancel(self) -> None:
        """Cancel the statement, also in the server; nothing happens after its end."""
        self._cancelled.set()
        with self._lock:
            operation = self._operation
        if operation is None:
            return
        # the statement's own connection may be waiting for rows
        from TCLIService.ttypes import TCancelOperationReq

        with Session(self._settings) as session:
            session.client.CancelOperation(TCancelOperationReq(operationHandle=operation))

    def _wait(self, cursor: Cursor) -> None:
        """Wait until the statement has ended, or has rows to fetch."""
        from TCLIService.ttypes import TOperationState

        at_work = (
            TOperationState.INITIALIZED_STATE,
            TOperationState.PENDING_STATE,
            TOperationState.RUNNING_STATE,
        )
        pause_s, longest_s = PAUSES_S
        status = cursor.status()
        while status.operationState in at_work:
            if self._cancelled.wait(pause_s):
                raise _cancellation()
            pause_s = min(pause_s * 1.5, longest_s)
            status = cursor.status()
        if self._cancelled.is_set():
            raise _cancellation()
        if status.operationState != TOperationState.FINISHED_STATE:
            message = status.errorMessage or "the statement ended without a result"
            raise _refusal(message, status.sqlState, self._is_built)


class Cursor:
    """A statement that was sent, as PyHive has it."""

    def __init__(self, cursor: Any) -> None:
        self._cursor = cursor

    @property
    def operation(self) -> Any:
        """The server's handle of the statement."""
        return self._cursor._operationHandle

    def status(self) -> Any:
        """The state of the statement in the server."""
        return self._cursor.poll(get_progress_update=False)

    def columns(self) -> list[tuple[str, str]]:
        """The names and types of the result's columns; empty if the statement has no result."""
        described = self._cursor.description or []
        return [(name, kind.removesuffix("_TYPE").lower()) for name, kind, *_ in described]

    def rows(self, most: int) -> Generator[list[tuple[Any, ...]], int | None, None]:
        """The rows, at most `most` at a time. `send` of the next number of rows changes it."""
        while True:
            self._cursor.arraysize = most
            batch = self._cursor.fetchmany(most)
            if not batch:
                return
            most = (yield batch) or most


class Session:
    """A session of the first reader. Its end also ends its statements.

    Raises:
        ServerUnreachable: the lake server does not answer, or has gone.
        RefusedByServer: the reader has as many sessions or statements as it may have.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._connection: Any = None

    def __enter__(self) -> Session:
        from pyhive.exc import OperationalError
        from thrift.transport.TTransport import TTransportException

        # at their level `INFO` they repeat each statement
        logging.getLogger("pyhive").setLevel(logging.WARNING)
        timeout_s = self._settings.reader_seconds + _GRACE_S
        try:
            self._connection = thrift_connection(self._settings, login(self._settings, "reader"), timeout_s)
        except (TTransportException, EOFError, OSError) as error:
            raise _unreachable(self._settings, error) from None
        except OperationalError as error:
            raise _refusal(*_message(error)) from None
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        from thrift.transport.TTransport import TTransportException

        if isinstance(error, TTransportException | EOFError | ConnectionError | TimeoutError):
            # a late answer would be taken for the answer to closing the session
            self._connection._transport.close()
            raise _unreachable(self._settings, error) from None
        try:
            self._connection.close()
        except (TTransportException, EOFError, OSError):
            self._connection._transport.close()

    @property
    def client(self) -> Any:
        """The calls of Thrift."""
        return self._connection.client

    def cursor(self, statement: str) -> Cursor:
        """Send a statement, and do not wait for its end."""
        cursor = self._connection.cursor()
        cursor.execute(statement, async_=True)
        return Cursor(cursor)

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        """All rows of a short statement.

        Raises:
            RefusedByServer, SqlRefused: the server refuses it.
        """
        from pyhive.exc import OperationalError

        cursor = self._connection.cursor()
        try:
            cursor.execute(statement)
            return list(cursor.fetchall())
        except OperationalError as error:
            raise _refusal(*_message(error)) from None


def _message(error: Any) -> tuple[str, str | None]:
    """The message and the SQLSTATE of PyHive's error."""
    status = getattr(error.args[0], "status", None) if error.args else None
    return (str(error), None) if status is None else (status.errorMessage or "", status.sqlState)


def _refusal(message: str, sqlstate: str | None, is_built: Callable[[str], bool] = lambda _: False) -> TidemarkError:
    sentence = own_sentence(message)
    if sentence is not None:
        return RefusedByServer(expected="", found=sentence, condition=first_condition(message), sqlstate=sqlstate)
    return sql_refusal(message, sqlstate, is_built)


def _cancellation() -> StatementCancelled:
    return StatementCancelled(
        expected="the rows of the statement",
        found="its cancellation",
        consequence="the statement has ended in the server, too",
    )


def _unreachable(settings: Settings, error: BaseException) -> ServerUnreachable:
    address = f"{settings.server_host}:{settings.thrift_port}"
    return ServerUnreachable(
        expected=f"an answer of the lake server at {address}",
        found=str(error).partition("\n")[0] or type(error).__name__,
        consequence="nothing was run, or its rows are lost",
        next_step="start it with `tidemark up`, and run the statement again",
        address=address,
    )
