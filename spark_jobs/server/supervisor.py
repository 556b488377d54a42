"""The supervisor: one process that runs the lake server with its first work, the command server and Airflow's parts. It
restarts a dead part, and ends all of them.

`tidemark up` starts it in a session of its own. It writes the state of all parts to one file. Signals:

- SIGTERM, SIGINT: end all parts, Airflow first, then its database and the lake server, and leave no process behind.
  If the lake server's Java then still writes its archive of classes, a second signal ends that, too;
- SIGHUP: read the wish file again: start or end Airflow, and start the parts that were given up.

A part that ends is started again after a pause. After more than `RESTARTS` ends within `WINDOW_S` it is given up and
reported as failed, until a new `tidemark up`, while the other parts go on. A part whose folders were removed is ended,
and so restarted; so is a lake server whose statements get no answer (`liveness`). The supervisor holds the lake's
writer lock, and so does the JVM. So no other writer can take the lock while the lake server is restarted.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import Popen
from typing import TextIO, cast

import psutil
import structlog

from spark_jobs.config import Settings, load_settings
from spark_jobs.errors import TidemarkError
from spark_jobs.jvm.executors import master_answers
from spark_jobs.jvm.java import Java, find_java
from spark_jobs.server import (
    airflow_parts,
    command_part,
    first_work_part,
    lake,
    liveness,
    metrics_part,
    postgres,
    processes,
)
from spark_jobs.server.lake_lock import LakeLock
from spark_jobs.server.processes import Part
from spark_jobs.server.state import Condition, PartState, SupervisorState, wish_file, write_state

log = structlog.get_logger()

RESTARTS = 3
"""The most restarts within `WINDOW_S`. One restart repairs an accidental crash; a part that ends repeatedly needs a
person."""

WINDOW_S = 600.0
"""The seconds after which the end of a part no longer counts."""

PAUSE_S = 2.0
"""The seconds before the first restart; doubled for each further restart."""

TICK_S = 0.5
"""The seconds between two looks of the supervisor at its parts."""

LOST_TICKS = 10
"""The number of looks in a row that must find folders missing before they count as lost: a part that is about to end
removes its folders itself."""

_ENDED_IN_ORDER = (0, 128 + signal.SIGTERM)
"""The exit codes of a program that ended in order, possibly at SIGTERM."""

_WITHOUT_AIRFLOW = (lake.NAME, command_part.NAME, first_work_part.NAME, liveness.NAME, metrics_part.NAME)


@dataclass
class _Run:
    """A part and its current process, if one runs. `once`: the part is a single step, finished when it exits with 0."""

    make: Callable[[], Part]
    once: bool = False
    part: Part | None = None
    complete: bool = False
    """True if the process has had all of its folders at some time."""
    ticks_lost: int = 0
    process: Popen[bytes] | None = None
    started: float = 0.0
    started_monotonic: float = 0.0
    ends: list[float] = field(default_factory=list)
    """The times of its last ends. Like `not_before` they are of the monotonic clock: setting the time delays no start.
    """
    restarts: int = 0
    last_exit: int | None = None
    reason: str = ""
    """The reason for which this supervisor ended its last process, if that ran but did not work."""
    condition: Condition = "restarting"
    not_before: float = 0.0


class Supervisor:
    """The supervisor of one home; see the module's text."""

    def __init__(self, settings: Settings, java: Java, lock: LakeLock) -> None:
        self._settings = settings
        self._lock = lock
        self._code, self._airflow, self._wish = "", False, ""
        self._stop_asked = self._hurries = self._has_lost_lake = False
        self._reconcile_asked = True
        self._published: SupervisorState | None = None
        self._hindrance = ""
        self._runs: dict[str, _Run] = {
            lake.NAME: _Run(lambda: lake.lake_part(settings, java, lock.descriptor)),
        }
        if command_part.is_wanted(settings):
            self._runs[command_part.NAME] = _Run(lambda: command_part.command_part(settings))
        if settings.metrics_port is not None:
            self._runs[metrics_part.NAME] = _Run(lambda: metrics_part.metrics_part(settings))

    def ask_stop(self, *_: object) -> None:
        """End all parts at the next tick; asked again, wait for no part that lingers. A signal handler."""
        self._stop_asked, self._hurries = True, self._stop_asked

    def end_work(self, lost: TidemarkError) -> None:
        """End all parts at once, without time to finish: another home may write the lake now."""
        log.error("ends all work", because=lost.sentence())
        self._stop_asked = self._hurries = self._has_lost_lake = True

    def ask_reconcile(self, *_: object) -> None:
        """Read the wish file at the next tick; a signal handler."""
        self._reconcile_asked = True

    def run(self) -> None:
        """Work until `ask_stop`, then end all parts."""
        try:
            while not self._stop_asked:
                try:
                    self._tick()
                    self._hindrance = ""
                except OSError as error:
                    # a full disk ends no part: the supervisor goes on, and tries to write again
                    if str(error) != self._hindrance:
                        log.warning("cannot go on, and tries again", error=str(error))
                    self._hindrance = str(error)
                time.sleep(TICK_S)
        finally:
            self._end_all()

    def _tick(self) -> None:
        if self._reconcile_asked:
            self._reconcile_asked = False
            try:
                self._reconcile()
            except OSError:
                self._reconcile_asked = True
                raise
        for name in list(self._runs):
            # a part that starts may replace the run of another one
            self._look_at(name, self._runs[name])
        self._publish()

    def _reconcile(self) -> None:
        wish = json.loads(wish_file(self._settings).read_text())
        if wish["airflow"]:
            if self._settings.airflow_database_url is None:
                self._runs.setdefault(postgres.NAME, _Run(lambda: postgres.postgres_part(self._settings)))
            for name in (airflow_parts.MIGRATION, *airflow_parts.PARTS):
                self._runs.setdefault(name, self._airflow_run(name))
        else:
            for name in [name for name in reversed(self._runs) if name not in _WITHOUT_AIRFLOW]:
                self._end(self._runs.pop(name))
        self._airflow = wish["airflow"]
        self._code = wish["code"]
        for name, run in self._runs.items():
            if run.condition == "failed":
                self._runs[name] = _Run(run.make, once=run.once)
        self._wish = wish["wish"]

    def _airflow_run(self, name: str) -> _Run:
        settings = self._settings
        run = _Run(lambda: airflow_parts.airflow_part(settings, name), once=name == airflow_parts.MIGRATION)
        if run.once and airflow_parts.is_migrated(settings):
            run.condition = "finished"
        return run

    def _look_at(self, name: str, run: _Run) -> None:
        if run.process is not None and (exit_code := run.process.poll()) is not None:
            run.process, run.last_exit = None, exit_code
            self._note_end(name, run)
        if lost := self._watch_folders(run):
            self._end_faulty(name, run, f"{', '.join(map(str, lost))} was removed")
        due = run.process is None and run.condition == "restarting" and time.monotonic() >= run.not_before
        if due and not self._waits(name):
            self._start(name, run)

    def _end_faulty(self, name: str, run: _Run, reason: str) -> None:
        """End a part that runs but does not work, so that it is restarted."""
        log.warning("does not work, is ended", part=name, reason=reason)
        run.reason = reason
        self._end(run)
        self._note_end(name, run)

    def _watch_folders(self, run: _Run) -> Sequence[Path]:
        """The folders that a part has lost.

        Empty while the part has yet to make them, if they cannot be looked at, or if the home itself was removed: that
        was intended."""
        if run.process is None or run.part is None:
            return ()
        try:
            lost = run.part.lost()
        except OSError:
            return ()
        run.complete = run.complete or not lost
        run.ticks_lost = run.ticks_lost + 1 if lost and run.complete else 0
        return lost if run.ticks_lost >= LOST_TICKS and self._settings.server_dir.is_dir() else ()

    def _waits(self, name: str) -> bool:
        """True if a part needs what is not ready yet: Spark's master, Airflow's database, or its migration."""
        if name == lake.NAME:
            # without its master a server would end after a minute, and soon be given up
            return not master_answers(self._settings)
        if name in (*_WITHOUT_AIRFLOW, postgres.NAME):
            return False
        database = self._runs.get(postgres.NAME)
        if database is not None and not (database.process and postgres.is_ready(self._settings, database.process.pid)):
            return True
        return name in airflow_parts.PARTS and self._runs[airflow_parts.MIGRATION].condition != "finished"

    def _start(self, name: str, run: _Run) -> None:
        try:
            run.part = run.make()
        except TidemarkError as refusal:
            run.condition = "failed"
            log.error("cannot be started", part=name, refusal=refusal.sentence())
            return
        run.process = processes.spawn(run.part, self._settings.home)
        run.started, run.started_monotonic, run.condition = time.time(), time.monotonic(), "running"
        run.complete, run.ticks_lost = False, 0
        log.info("started", part=name, pid=run.process.pid)
        if name == lake.NAME:
            self._accompany(run.process.pid)
            self._lock.record(run.process.pid, "the lake server of `tidemark up`, home " + str(self._settings.home))

    def _accompany(self, server: int) -> None:
        """Make a first work and a probe for the new lake server, in place of those of the server before."""
        settings = self._settings
        made: dict[str, Callable[[], Part]] = {
            first_work_part.NAME: lambda: first_work_part.first_work_part(settings),
            liveness.NAME: lambda: liveness.liveness_part(settings, server),
        }
        for name, make in made.items():
            if name in self._runs:
                self._end(self._runs[name])
            self._runs[name] = _Run(make, once=True)

    def _note_end(self, name: str, run: _Run) -> None:
        self._end_strays()
        if name == lake.NAME and liveness.NAME in self._runs:
            self._end(self._runs[liveness.NAME])
            self._runs[liveness.NAME].condition = "finished"
        if name == liveness.NAME and run.last_exit == liveness.DEAD:
            run.condition = "finished"
            server = self._runs[lake.NAME]
            if server.process is not None:
                self._end_faulty(lake.NAME, server, liveness.death_file(self._settings).read_text())
            return
        if run.once and run.last_exit == 0:
            run.condition = "finished"
            if name == airflow_parts.MIGRATION:
                airflow_parts.note_migrated(self._settings)
            return
        now = time.monotonic()
        run.ends = [*(end for end in run.ends if end > now - WINDOW_S), now]
        if len(run.ends) > RESTARTS:
            run.condition = "failed"
            log.error("ended too often, given up", part=name, exit_code=run.last_exit)
            return
        run.condition, run.restarts = "restarting", run.restarts + 1
        run.not_before = now + PAUSE_S * 2 ** (len(run.ends) - 1)
        log.warning("ended, will be restarted", part=name, exit_code=run.last_exit)

    def _end_strays(self) -> None:
        """End the processes that dead parts left behind, which this process has adopted."""
        own_pids = {run.process.pid for run in self._runs.values() if run.process is not None}
        strays = [child for child in psutil.Process().children() if child.pid not in own_pids]
        killed = processes.end([process for stray in strays for process in processes.tree(stray.pid)], grace_s=5.0)
        for stray in strays:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(stray.pid, os.WNOHANG)
        if strays:
            log.info(
                "ended processes that a dead part left behind", pids=[stray.pid for stray in strays], killed=killed
            )

    def _end(self, run: _Run) -> None:
        if run.process is None or run.part is None:
            return
        members = processes.tree(run.process.pid)
        killed = processes.end(
            members[:1], run.part.grace_s, run.part.end_signal, lambda: self._is_worth_waiting_for(run)
        )
        # psutil has waited for the process, so Python's `Popen` no longer knows its exit code
        run.last_exit = members[0].wait() if members else run.process.wait()
        run.process.wait()
        processes.end(members, grace_s=5.0)
        run.process = None
        if run.last_exit in _ENDED_IN_ORDER:
            run.part.ended()
        log.info("ended", part=run.part.name, exit_code=run.last_exit, killed=bool(killed))

    def _is_worth_waiting_for(self, run: _Run) -> bool:
        """True if a part that was told to end may have more time. One that lingers gets it only if nothing waits."""
        assert run.part is not None, "it runs"
        if not run.part.lingers():
            return True
        if not self._stop_asked or self._hurries:
            return False
        if run.condition != "lingering":
            run.condition = "lingering"
            self._lock.record(
                os.getpid(), "Java, which writes its archive of classes after `tidemark down`; it ends by itself"
            )
            self._publish()
        return True

    def _end_all(self) -> None:
        if self._has_lost_lake:
            processes.end(processes.marked_processes(self._settings.home), grace_s=0.0)
        for run in reversed(self._runs.values()):
            self._end(run)
        self._end_strays()
        processes.end(processes.marked_processes(self._settings.home), grace_s=5.0)
        self._lock.release()

    def _publish(self) -> None:
        state = SupervisorState(
            pid=os.getpid(),
            created=psutil.Process().create_time(),
            code=self._code,
            airflow=self._airflow,
            setup=self._settings.environment(),
            parts=tuple(self._part_state(name, run) for name, run in self._runs.items()),
            wish=self._wish,
        )
        if state != self._published:
            write_state(self._settings, state)
            self._published = state

    def _part_state(self, name: str, run: _Run) -> PartState:
        return PartState(
            name=name,
            condition=run.condition,
            pid=run.process.pid if run.process else None,
            started=run.started,
            restarts=run.restarts,
            log=str(self._settings.logs_dir / f"{name}.log"),
            last_exit=run.last_exit,
            reason=run.reason,
            started_monotonic=run.started_monotonic,
        )


def main() -> int:
    """Run a supervisor for the settings of the environment; refusals go to standard error as one line of JSON."""
    stamp, render = structlog.processors.TimeStamper("iso", utc=True), structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[stamp, render], logger_factory=structlog.PrintLoggerFactory(cast(TextIO, processes.Output()))
    )
    try:
        settings = load_settings()
        java = find_java()
        lock = LakeLock.acquire(settings)
    except TidemarkError as refusal:
        sys.stderr.write(json.dumps({"refused": refusal.sentence()}) + "\n")
        return 1
    processes.adopt_orphans()
    supervisor = Supervisor(settings, java, lock)
    lock.keep_claim(supervisor.end_work)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, supervisor.ask_stop)
    signal.signal(signal.SIGHUP, supervisor.ask_reconcile)
    supervisor.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
