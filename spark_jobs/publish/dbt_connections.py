"""The connections of dbt to the lake server: how they open, and how an interrupt ends them."""

from __future__ import annotations

import socket
from contextlib import suppress
from functools import cache
from threading import Lock
from typing import Any

_one_at_a_time = Lock()


def adapt_connections() -> None:
    """Change dbt's connections in this process: sessions open one after the other, and an interrupt cuts them.

    Two sessions that open at the same instant can race for Hive's scratch directory.
    """
    with _one_at_a_time:
        _adapt()


@cache
def _adapt() -> None:
    from dbt.adapters.spark.connections import PyhiveConnectionWrapper, SparkConnectionManager

    open_of_dbt = SparkConnectionManager.open.__func__  # type: ignore[attr-defined]

    def open_alone(manager: type[SparkConnectionManager], connection: Any) -> Any:
        with _one_at_a_time:
            return open_of_dbt(manager, connection)

    SparkConnectionManager.open = classmethod(open_alone)  # type: ignore[method-assign, assignment]
    PyhiveConnectionWrapper.cancel = _hang_up  # type: ignore[method-assign, assignment]


def _hang_up(connection: Any) -> None:
    """Cut a connection of dbt; the server then ends the statement of that client.

    dbt itself would ask the server to cancel, over the connection on which another of its threads waits for the
    statement. Each of the two could then read the answer to the other, and both would wait for ever.
    """
    with suppress(OSError):
        connection.handle._transport._trans.handle.shutdown(socket.SHUT_RDWR)
