"""`up` and `down`, for the command line and tests. Neither prints; progress goes to a callback."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from spark_jobs.code_version import code_version
from spark_jobs.config import Settings
from spark_jobs.jvm.catalog import complete_catalog
from spark_jobs.jvm.executors import master_answers
from spark_jobs.jvm.java import find_java
from spark_jobs.jvm.scala_code import guard_jar
from spark_jobs.server import processes
from spark_jobs.server.errors import MasterUnreachable
from spark_jobs.server.health import connect_health
from spark_jobs.server.lake import NAME, lost_folders
from spark_jobs.server.lake_lock import LakeLock
from spark_jobs.server.logins import expect_private
from spark_jobs.server.ports import expect_free, wanted_ports
from spark_jobs.server.profile import expect_complete
from spark_jobs.server.starting import Progress, Starting, SupervisorGone
from spark_jobs.server.state import (
    SupervisorState,
    lingering_supervisor,
    running_supervisor,
    state_file,
    write_wish,
)
from spark_jobs.server.status import POLL_S, InstallationStatus, status
from spark_jobs.session import lake_jars, prepare_home

DOWN_TIMEOUT_S = 270.0
"""The sum of the parts' graces in seconds, with a margin. The lake server's includes writing the archive of classes."""

LEFTOVERS_GRACE_S = 10.0
"""The seconds that leftovers get to end. A part gets more, but the kernel signalled these when their supervisor died.
"""

_SUPERVISOR = (sys.executable, "-m", "spark_jobs.server.supervisor")


@dataclass(frozen=True, slots=True)
class Ended:
    """The result of `down`.

    Attributes:
        ran: True if a supervisor ran.
        leftovers: the ids of processes without a supervisor, which were ended one by one.
        lingers: True if Java still writes its archive of classes, for the next start. It ends by itself; `up`, or
            another `down`, ends it at once.
    """

    ran: bool
    leftovers: tuple[int, ...]
    lingers: bool = False


def up(settings: Settings, *, airflow: bool = True, progress: Progress = lambda _: None) -> InstallationStatus:
    """Start the parts that are not running, restart those that run old code, and wait until all serve. Safe to repeat.

    Airflow is not among the parts if the setting `airflow_host` says that it runs elsewhere.

    Raises:
        ConfigurationError, PlaintextRefused, JavaUnusable, JarsMissing, GuardBroken, CatalogUnreachable,
            MasterUnreachable, PortTaken, LakeBusy: found before anything was started.
        StartFailed: a part did not become healthy; the others are left running, and `down` ends them.
    """
    prepare_home(settings)
    airflow = airflow and settings.airflow_host is None
    with _one_at_a_time(settings):
        running = running_supervisor(settings)
        changed = running and (running.setup != settings.environment() or running.code != code_version())
        if running and (changed or not running.wish):
            # the supervisor itself runs old code, with which it would supervise the parts that it starts anew
            progress("the settings, or Tidemark itself, have changed: ending the running parts")
            _end_supervisor(settings, running, progress)
            running = None
        if running and (lost := lost_under_server(settings, running)):
            progress(f"{', '.join(map(str, lost))} is gone: ending the parts that run without it")
            _end_supervisor(settings, running, progress)
            running = None
        try:
            _bring_up(settings, running, airflow=airflow, progress=progress)
        except SupervisorGone:
            # the supervisor was about to end when it got the wish
            _bring_up(settings, None, airflow=airflow, progress=progress)
    # on a busy machine a part that serves may be late with one answer
    return status(settings, wait_s=settings.connect_timeout_s)


def lost_under_server(settings: Settings, running: SupervisorState) -> list[Path]:
    """The folders that a lake server has lost; empty if the server is starting, since it has yet to make them."""
    lost, part = lost_folders(settings), running.part(NAME)
    serves = lost and part is not None and part.condition == "running" and connect_health(settings).ok
    return lost if serves else []


def serve(settings: Settings, *, airflow: bool = True) -> None:
    """Become the supervisor of this home, in the foreground, until SIGTERM; for containers and service managers.

    Does not return. Raises the errors that `up` raises before it starts anything.
    """
    prepare_home(settings)
    airflow = airflow and settings.airflow_host is None
    with _one_at_a_time(settings):
        _preflight(settings, airflow=airflow, progress=lambda _: None)
        write_wish(settings, airflow=airflow, code=code_version())
    os.chdir(settings.server_dir)
    os.execve(sys.executable, _SUPERVISOR, _supervisor_environment(settings))


def down(settings: Settings, *, progress: Progress = lambda _: None) -> Ended:
    """End the supervisor and all processes that were started under this home, also those that a crash left behind.

    `progress` is called with the parts that it waits for, whenever these are others.
    """
    prepare_home(settings)
    with _one_at_a_time(settings):
        running = running_supervisor(settings)
        if running and _end_supervisor(settings, running, progress, may_linger=True):
            return Ended(ran=True, leftovers=(), lingers=True)
        if lingering := lingering_supervisor(settings):
            _end_supervisor(settings, lingering, progress)
        leftovers = processes.marked_processes(settings.home)
        processes.end(leftovers, grace_s=LEFTOVERS_GRACE_S)
        state_file(settings).unlink(missing_ok=True)
        return Ended(ran=running is not None, leftovers=tuple(process.pid for process in leftovers))


def _bring_up(settings: Settings, running: SupervisorState | None, *, airflow: bool, progress: Progress) -> None:
    """Make the running supervisor, or a new one, start the parts that are wanted, and wait for them."""
    if running is None:
        _preflight(settings, airflow=airflow, progress=progress)
    wish = write_wish(settings, airflow=airflow, code=code_version())
    Starting(settings, wish, _launch_or_tell(settings, running), airflow=airflow, progress=progress).wait()


def _preflight(settings: Settings, *, airflow: bool, progress: Progress) -> None:
    expect_complete(settings, airflow=airflow)
    expect_private(settings)
    find_java()
    lake_jars(settings)
    guard_jar(settings)
    complete_catalog(settings)
    _expect_master(settings)
    processes.end(processes.marked_processes(settings.home), grace_s=LEFTOVERS_GRACE_S)
    LakeLock.acquire(settings, progress).release()
    expect_free(settings.bind_address, wanted_ports(settings, airflow=airflow))


def _expect_master(settings: Settings) -> None:
    if not master_answers(settings):
        raise MasterUnreachable(
            expected=f"the master to answer at {settings.master}",
            found="no connection",
            consequence="nothing was started",
            next_step="start it, or correct TIDEMARK_MASTER; then do the same again",
            master=settings.master,
        )


def _launch_or_tell(settings: Settings, running: SupervisorState | None) -> subprocess.Popen[bytes] | None:
    """Start a supervisor in a session of its own, where a Ctrl-C here does not reach it. If one runs, make it read the
    wish file again, and return None."""
    if running:
        with contextlib.suppress(ProcessLookupError):
            os.kill(running.pid, signal.SIGHUP)
        return None
    state_file(settings).unlink(missing_ok=True)
    with (settings.logs_dir / "supervisor.log").open("ab") as log:
        return subprocess.Popen(
            _SUPERVISOR,
            env=_supervisor_environment(settings),
            cwd=settings.server_dir,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _supervisor_environment(settings: Settings) -> dict[str, str]:
    return {**os.environ, **settings.environment(), processes.MARKER: str(settings.home)}


def _end_supervisor(
    settings: Settings, running: SupervisorState, progress: Progress, *, may_linger: bool = False
) -> bool:
    """End a supervisor and its parts. Returns True if a part lingers, and `may_linger` allows it."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process, deadline = psutil.Process(running.pid), time.monotonic() + DOWN_TIMEOUT_S
        # before the signal, after which a part may end at once
        reported = _describe_awaited(running)
        progress(reported)
        process.terminate()
        hurried = running.lingers
        while process.is_running() and process.status() != psutil.STATUS_ZOMBIE and time.monotonic() < deadline:
            if not hurried and lingering_supervisor(settings):
                if may_linger:
                    return True
                process.terminate()
                hurried = True
            if (awaited := _describe_awaited(running)) != reported:
                progress(awaited)
                reported = awaited
            with contextlib.suppress(psutil.TimeoutExpired):
                process.wait(POLL_S)
    processes.end(processes.marked_processes(settings.home), grace_s=5.0)
    return False


def _describe_awaited(running: SupervisorState) -> str:
    """The parts of a supervisor that have yet to end, as a sentence for people."""
    alive = [part.name for part in running.parts if part.pid is not None and psutil.pid_exists(part.pid)]
    return f"waits for {', '.join(alive) or 'the supervisor'} to end"


@contextlib.contextmanager
def _one_at_a_time(settings: Settings) -> Iterator[None]:
    """Wait until no other `up` or `down` of this home runs, and keep others waiting during the block."""
    with (settings.server_dir / "control.lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
