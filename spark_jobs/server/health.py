"""The health of each service, by a real question: a SQL query over Thrift, a call over Spark Connect, Airflow's own
health report."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import httpx

from spark_jobs.config import Settings
from spark_jobs.errors import TidemarkError
from spark_jobs.server.first_work_part import names_lacking_file
from spark_jobs.server.listeners import trace_extension
from spark_jobs.server.thrift_client import thrift_query
from spark_jobs.session import connect_version


@dataclass(frozen=True, slots=True)
class Health:
    """The health of a service: `ok` if it serves, its answer or the reason for none, and the seconds that this took."""

    ok: bool
    detail: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Service:
    """A service: its name, its URL or place, and its health."""

    name: str
    url: str
    health: Health


def sql_health(settings: Settings) -> Health:
    """The health of SQL over JDBC: the answer to `SELECT 1` through the Thrift port.

    The query is a writer's, since readers wait for one another, and may have reached their limits. The service does
    not count as healthy while readers wait for the names of a lost catalog.
    """
    health = measure_health(lambda: _sql(settings), settings)
    if not names_lacking_file(settings).exists():
        return health
    detail = "answers writers" if health.ok else health.detail
    lacking = "readers wait until the names of a lost catalog are made anew"
    return replace(health, ok=False, detail=f"{detail}; {lacking}")


def connect_health(settings: Settings) -> Health:
    """The health of Spark Connect: the answer to a question for Spark's version, asked with the token."""
    return measure_health(lambda: _connect(settings), settings)


def airflow_health(settings: Settings) -> Health:
    """The health of Airflow: its API server answers, and all its other processes have reported lately."""
    return measure_health(lambda: _airflow(settings), settings)


def measure_health(ask: Callable[[], tuple[bool, str]], settings: Settings) -> Health:
    """The health by an answer: True if the part serves, and a text; or the error that `ask` raises.

    It asks in a separate thread, so that a part that accepts a connection and never answers cannot block the caller."""
    timeout_s = settings.connect_timeout_s
    start = time.monotonic()
    answers: list[tuple[bool, str]] = []
    thread = threading.Thread(target=lambda: answers.append(_ask_safely(ask)), daemon=True)
    thread.start()
    thread.join(timeout_s)
    ok, detail = answers[0] if answers else (False, f"no answer within {timeout_s:g} s")
    return Health(ok, detail, round(time.monotonic() - start, 3))


def _ask_safely(ask: Callable[[], tuple[bool, str]]) -> tuple[bool, str]:
    try:
        return ask()
    except TidemarkError as refusal:
        return False, refusal.found
    except Exception as error:  # any error means that the service is not healthy, and gives the reason
        return False, f"{type(error).__name__}: {str(error).strip()[:200]}"


def _sql(settings: Settings) -> tuple[bool, str]:
    # connect first: Thrift logs an error if nobody listens at the port
    socket.create_connection((settings.server_host, settings.thrift_port), settings.connect_timeout_s).close()
    rows = thrift_query(settings, "SELECT 1", role="writer")
    return rows == [(1,)], "answers SQL" if rows == [(1,)] else f"SELECT 1 gave {rows}"


def _connect(settings: Settings) -> tuple[bool, str]:
    return True, f"Spark {connect_version(settings)}"


def airflow_reports(settings: Settings) -> dict[str, str]:
    """Airflow's own health report: the names of its processes, with `healthy` or another word.

    Raises:
        httpx.HTTPError: the API server does not answer.
    """
    url = f"{settings.airflow_url}/api/v2/monitor/health"
    with httpx.Client(timeout=10.0, trust_env=False) as client:
        answer = client.get(url, extensions=trace_extension(settings)).raise_for_status()
    return {name: str(part["status"]) for name, part in answer.json().items() if isinstance(part, dict)}


def _airflow(settings: Settings) -> tuple[bool, str]:
    parts = airflow_reports(settings)
    wanting = {name: status for name, status in parts.items() if status != "healthy"}
    return not wanting, ", ".join(
        f"{name} {status}" for name, status in wanting.items()
    ) or f"{len(parts)} parts healthy"
