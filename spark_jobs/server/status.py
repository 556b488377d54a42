"""The status of an installation: the services and processes that run under a home, and their health."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from spark_jobs.code_version import code_version
from spark_jobs.config import Settings
from spark_jobs.server import processes
from spark_jobs.server.airflow_parts import API_SERVER
from spark_jobs.server.connect_client import connect_address
from spark_jobs.server.health import Service, airflow_health, connect_health, sql_health
from spark_jobs.server.lake_lock import loss
from spark_jobs.server.state import SupervisorState, lingering_supervisor, running_supervisor
from spark_jobs.server.surroundings import catalog_service, executors_service, store_service

POLL_S = 0.5

SETTLING_S = 120.0
"""The seconds after its start from which on a part that does not answer counts as hanging, no longer as starting."""


@dataclass(frozen=True, slots=True)
class InstallationStatus:
    """The status of the installation at a moment.

    Attributes:
        supervisor: the supervisor's last state, or None if it does not run.
        services: SQL, Spark Connect and, if it was asked for, Airflow; empty if the supervisor does not run.
        surroundings: the catalog, the store and the executors of the lake server; empty if the supervisor does not run.
        stale: True if the lake server runs another version of the code than the files have.
        orphans: ids of processes that a supervisor of this home left behind.
        loss: a sentence about how this home lost its lake to another one, if that is why nothing runs.
    """

    home: str
    supervisor: SupervisorState | None
    services: tuple[Service, ...]
    stale: bool
    orphans: tuple[int, ...]
    loss: str | None = None
    surroundings: tuple[Service, ...] = ()

    @property
    def ok(self) -> bool:
        """True if there are services, all serve with the present code and what they need, and no process is left
        over."""
        healthy = bool(self.services) and all(each.health.ok for each in (*self.services, *self.surroundings))
        return healthy and not self.stale and not self.orphans

    @property
    def starting(self) -> bool:
        """True if a part was started or restarted within `SETTLING_S` seconds, or is about to be."""
        parts = self.supervisor.parts if self.supervisor else ()
        now = time.monotonic()
        fresh = any(part.condition == "running" and now - part.started_monotonic < SETTLING_S for part in parts)
        return fresh or any(part.condition == "restarting" for part in parts)


def status(settings: Settings, *, wait_s: float = 0.0) -> InstallationStatus:
    """The status now, with an answer of every service; takes 1 to 3 s, or `connect_timeout_s` if a service is silent.

    Args:
        wait_s: the seconds for which to ask again while a part that was just started or restarted does not answer.
    """
    deadline = time.monotonic() + wait_s
    while True:
        result = _ask(settings)
        silent = any(not each.health.ok for each in (*result.services, *result.surroundings))
        if not silent or not result.starting or time.monotonic() > deadline:
            return result
        time.sleep(POLL_S)


def runs_airflow(settings: Settings) -> bool:
    """True if Airflow runs for this home: a supervisor keeps it running, and has not given up its API server; or the
    settings say that its processes are services of their own.

    Airflow need not answer now."""
    if settings.airflow_host is not None:
        return True
    state = running_supervisor(settings)
    if state is None or not state.airflow:
        return False
    api_server = state.part(API_SERVER)
    return api_server is None or api_server.condition != "failed"


def _ask(settings: Settings) -> InstallationStatus:
    running = running_supervisor(settings)
    is_supervised = running is not None or lingering_supervisor(settings) is not None
    services, surroundings = ((), ()) if running is None else _answers(settings, running)
    return InstallationStatus(
        home=str(settings.home),
        supervisor=running,
        services=services,
        surroundings=surroundings,
        stale=running is not None and running.code != code_version(),
        orphans=() if is_supervised else tuple(process.pid for process in processes.marked_processes(settings.home)),
        loss=None if is_supervised else loss(settings),
    )


def _answers(settings: Settings, running: SupervisorState) -> tuple[tuple[Service, ...], tuple[Service, ...]]:
    """The services and the surroundings, asked all at once: each that is silent takes `connect_timeout_s`."""
    questions: list[Callable[[Settings], Service]] = [
        lambda settings: Service("sql", settings.jdbc_url, sql_health(settings)),
        lambda settings: Service("connect", connect_address(settings), connect_health(settings)),
        *([lambda settings: Service("airflow", settings.airflow_url, airflow_health(settings))] * running.airflow),
    ]
    around = [catalog_service, store_service, executors_service]
    with ThreadPoolExecutor() as threads:
        answers = tuple(threads.map(lambda ask: ask(settings), [*questions, *around]))
    return answers[: len(questions)], answers[len(questions) :]
