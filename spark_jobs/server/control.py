"""`up`, `down` and `status`: what the command line and tests call. None of them prints; progress goes to a callback."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from spark_jobs.config import Settings
from spark_jobs.server import airflow_parts, lake, processes
from spark_jobs.server.code_version import code_version
from spark_jobs.server.errors import NotRunning, StartFailed
from spark_jobs.server.health import Health, airflow_health, connect_health, sql_health
from spark_jobs.server.java import find_java
from spark_jobs.server.lake_lock import LakeLock
from spark_jobs.server.ports import expect_free
from spark_jobs.server.state import SupervisorState, read_state, state_file, wish_file, write_json
from spark_jobs.session import delta_jars, prepare_home

POLL_S = 0.5

DOWN_TIMEOUT_S = 90.0
"""The sum of the parts' graces, with a margin."""

SETTLING_S = 120.0
"""A part older than this that does not answer is not starting, it hangs."""

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Service:
    """Something a user can reach: `url`, and whether it answers (`Health`)."""

    name: str
    url: str
    health: Health


@dataclass(frozen=True, slots=True)
class Status:
    """The installation at a moment.

    Attributes:
        supervisor: its last state, or None if it does not run.
        services: SQL, Spark Connect and (where it was asked for) Airflow.
        stale: the lake server runs other code than the files say.
        orphans: ids of processes that a supervisor of this home left behind.
    """

    home: str
    supervisor: SupervisorState | None
    services: tuple[Service, ...]
    stale: bool
    orphans: tuple[int, ...]

    @property
    def ok(self) -> bool:
        """Everything asked for serves, with the present code, and nothing is left over."""
        healthy = bool(self.services) and all(service.health.ok for service in self.services)
        return healthy and not self.stale and not self.orphans


@dataclass(frozen=True, slots=True)
class Ended:
    """What `down` did: whether a supervisor ran, and the ids of leftovers that had to be ended one by one."""

    ran: bool
    leftovers: tuple[int, ...]


def up(settings: Settings, *, airflow: bool = True, progress: Progress = lambda _: None) -> Status:
    """Start what is not running, restart what runs old code, and wait until all of it serves. Safe to repeat.

    Raises:
        JavaUnusable, JarsMissing, PortTaken, LakeBusy: found before anything was started.
        StartFailed: a part did not become healthy; the others are left running, `down` ends them.
    """
    prepare_home(settings)
    with _one_at_a_time(settings):
        running = _running(settings)
        if running and running.setup != settings.environment():
            progress("the settings have changed: ending what runs")
            _end_supervisor(settings, running)
            running = None
        code = code_version()
        write_json(wish_file(settings), {"airflow": airflow, "code": code})
        launched = None
        if running is None:
            _preflight(settings, airflow=airflow)
            launched = _launch(settings)
        else:
            os.kill(running.pid, signal.SIGHUP)
        _await_parts(settings, code, launched, airflow=airflow, progress=progress)
    return status(settings)


def down(settings: Settings) -> Ended:
    """End the supervisor and everything that was started under this home, also what a crash left behind."""
    prepare_home(settings)
    with _one_at_a_time(settings):
        running = _running(settings)
        if running:
            _end_supervisor(settings, running)
        leftovers = processes.marked(settings.home)
        processes.end(leftovers, grace_s=lake.GRACE_S)
        state_file(settings).unlink(missing_ok=True)
        return Ended(ran=running is not None, leftovers=tuple(process.pid for process in leftovers))


def status(settings: Settings) -> Status:
    """Ask every service now; takes 1 to 3 s, or `connect_timeout_s` where one is silent."""
    running = _running(settings)
    services = () if running is None else tuple(_services(settings, running))
    return Status(
        home=str(settings.home),
        supervisor=running,
        services=services,
        stale=running is not None and running.code != code_version(),
        orphans=() if running else tuple(process.pid for process in processes.marked(settings.home)),
    )


def settled_status(settings: Settings, wait_s: float) -> Status:
    """`status`, asked again for up to `wait_s` seconds while a part that was (re)started does not answer yet."""
    deadline = time.monotonic() + wait_s
    while True:
        result = status(settings)
        silent = any(not service.health.ok for service in result.services)
        if not silent or not _starting(result) or time.monotonic() > deadline:
            return result
        time.sleep(POLL_S)


def _starting(result: Status) -> bool:
    parts = result.supervisor.parts if result.supervisor else ()
    fresh = any(part.condition == "running" and time.time() - part.started < SETTLING_S for part in parts)
    return fresh or any(part.condition == "restarting" for part in parts)


def require_running(settings: Settings) -> SupervisorState:
    """The supervisor's state. Raises `NotRunning` if there is none."""
    running = _running(settings)
    if running is None:
        raise NotRunning(
            expected="a running lake server",
            found=f"none under {settings.home}",
            next_step="start it with `tidemark up`",
            home=str(settings.home),
        )
    return running


def _services(settings: Settings, running: SupervisorState) -> Iterator[Service]:
    yield Service("sql", settings.jdbc_url, sql_health(settings))
    yield Service("connect", f"sc://{settings.server_host}:{settings.connect_port}", connect_health(settings))
    if running.part(airflow_parts.MIGRATION):
        yield Service("airflow", settings.airflow_url, airflow_health(settings))


def _running(settings: Settings) -> SupervisorState | None:
    state = read_state(settings)
    return state if state and state.is_alive() else None


def _preflight(settings: Settings, *, airflow: bool) -> None:
    find_java()
    delta_jars(settings)
    processes.end(processes.marked(settings.home), grace_s=lake.GRACE_S)
    LakeLock.acquire(settings).release()
    ports = {"TIDEMARK_THRIFT_PORT": settings.thrift_port, "TIDEMARK_CONNECT_PORT": settings.connect_port}
    if airflow:
        ports["TIDEMARK_AIRFLOW_PORT"] = settings.airflow_port
    expect_free(settings.bind_address, ports)


def _launch(settings: Settings) -> subprocess.Popen[bytes]:
    """Start the supervisor in a session of its own, so that a Ctrl-C here does not reach it."""
    state_file(settings).unlink(missing_ok=True)
    with _supervisor_log(settings).open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "spark_jobs.server.supervisor"],
            env={**os.environ, **settings.environment(), processes.MARKER: str(settings.home)},
            cwd=settings.server_dir,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _await_parts(
    settings: Settings, code: str, launched: subprocess.Popen[bytes] | None, *, airflow: bool, progress: Progress
) -> None:
    questions: dict[str, Callable[[Settings], Health]] = {"sql": sql_health, "connect": connect_health}
    if airflow:
        questions["airflow"] = airflow_health
    deadline = time.monotonic() + settings.startup_timeout_s
    last = Health(False, "no supervisor", 0.0)
    while questions:
        time.sleep(POLL_S)
        if launched and launched.poll() is not None:
            raise _start_failed(
                "supervisor", f"it ended with exit code {launched.returncode}", str(_supervisor_log(settings))
            )
        state = _running(settings)
        for name, ask in list(questions.items()):
            # before the supervisor has read the wish, the server that is about to be ended would answer
            last = ask(settings) if state and state.code == code else last
            if last.ok:
                progress(f"{name}: {last.detail}")
                del questions[name]
        _expect_progress(settings, state, waiting_for=list(questions), answer=last.detail, deadline=deadline)


def _expect_progress(
    settings: Settings, state: SupervisorState | None, *, waiting_for: list[str], answer: str, deadline: float
) -> None:
    failed = next((part for part in state.parts if part.condition == "failed"), None) if state else None
    late = time.monotonic() > deadline
    if not waiting_for or not (failed or late):
        return
    if failed:
        raise _start_failed(
            failed.name, f"it ended again and again, last with exit code {failed.last_exit}", failed.log
        )
    found = f"after {settings.startup_timeout_s:g} s: {answer}"
    raise _start_failed(waiting_for[0], found, str(settings.logs_dir))


def _start_failed(part: str, found: str, log: str) -> StartFailed:
    return StartFailed(
        expected=f"{part} to become healthy",
        found=found,
        consequence="the other parts are left running",
        next_step=f"read {log}; `tidemark doctor` looks for causes",
        part=part,
        log_file=log,
    )


def _supervisor_log(settings: Settings) -> Path:
    return settings.logs_dir / "supervisor.log"


def _end_supervisor(settings: Settings, running: SupervisorState) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(running.pid)
        process.terminate()
        with contextlib.suppress(psutil.TimeoutExpired):
            process.wait(DOWN_TIMEOUT_S)
    processes.end(processes.marked(settings.home), grace_s=5.0)


@contextlib.contextmanager
def _one_at_a_time(settings: Settings) -> Iterator[None]:
    """Two `up` or `down` of one home follow each other."""
    with (settings.server_dir / "control.lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
