"""Clients of SQL over JDBC that ask, keep a run at work, or take long."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any

import pytest
from pyhive import hive
from TCLIService.ttypes import TCloseOperationReq

from spark_jobs.config import Settings
from spark_jobs.server.logins import login
from spark_jobs.server.thrift_client import thrift_connection

Ask = Callable[[str], list[tuple[Any, ...]]]

FOR_LONG = "SELECT count(*) FROM range(1000000000000) WHERE hash(id) = 7"


@contextmanager
def reader_connection(settings: Settings) -> Iterator[Any]:
    with closing(thrift_connection(settings, login(settings, "reader"), timeout_s=120)) as connection:
        yield connection


@contextmanager
def asking(settings: Settings, role: str) -> Iterator[Ask]:
    """Ask as the login of a role, over one connection: not for two threads."""
    connection = thrift_connection(settings, login(settings, role), timeout_s=120)

    def ask(statement: str) -> list[tuple[Any, ...]]:
        cursor = connection.cursor()
        try:
            cursor.execute(statement)
            return list(cursor.fetchall()) if cursor.description else []
        finally:
            cursor.close()

    try:
        yield ask
    finally:
        connection.close()


@contextmanager
def run_at_work(settings: Settings) -> Iterator[None]:
    """Statements of a writer, one after another, the first of which has been answered."""
    begun, over = threading.Event(), threading.Event()

    def work() -> None:
        with asking(settings, "writer") as ask:
            while not over.is_set():
                ask("SELECT count(*) FROM range(1000)")
                begun.set()

    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(work)
        try:
            assert begun.wait(60)
            yield
        finally:
            over.set()
            working.result()


@contextmanager
def reader_at_work(settings: Settings) -> Iterator[None]:
    """A reader's statement whose rows are being fetched, until another connection closes it."""
    with reader_connection(settings) as connection, reader_connection(settings) as other:
        cursor = connection.cursor()
        # one task: another core is left; rows are computed as they are fetched
        cursor.execute(FOR_LONG.replace("(1000000000000)", "(0, 1000000000000, 1, 1)"))

        def fetch() -> None:
            with pytest.raises(hive.OperationalError):
                cursor.fetchall()

        with ThreadPoolExecutor(1) as pool:
            fetching = pool.submit(fetch)
            try:
                yield
            finally:
                other.client.CloseOperation(TCloseOperationReq(operationHandle=cursor._operationHandle))
                fetching.result()
