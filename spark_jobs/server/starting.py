"""The wait for the parts of one `up`: it goes on as long as they work, and ends early if a part has failed."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from spark_jobs.config import Settings
from spark_jobs.server import first_work_part, lake, processes
from spark_jobs.server.errors import StartFailed
from spark_jobs.server.health import Health, airflow_health, connect_health, sql_health
from spark_jobs.server.state import PartState, SupervisorState, running_supervisor
from spark_jobs.server.status import POLL_S
from spark_jobs.server.surroundings import executors_service

Progress = Callable[[str], None]

TELL_S = 30.0
"""The seconds between two messages of `up` about the parts that it waits for."""

LOOK_S = 10.0
"""The seconds between two checks whether these parts use a processor."""

LEAST_LOAD = 0.1
"""The share of a processor from which on parts count as working. An idle scheduler of Airflow takes 0.05."""

_PARTS = {"sql": (lake.NAME, first_work_part.NAME), "connect": (lake.NAME, first_work_part.NAME)}
"""Service -> the parts that it needs. Airflow needs all other parts."""


_FIRST_WORK = "all services answer; `up` waits until the lake server has its names and has run its first queries"


class SupervisorGone(Exception):
    """The running supervisor, which was asked to start parts, has ended."""


class Starting:
    """Asks the services until each has answered and the lake server's first work is done.

    Args:
        wish: the name of the wish that the supervisor was given. Until the supervisor has read it, its state does not
            count: a server that is about to be ended would answer, and a part that is to be started again looks failed.
        launched: the supervisor, if this `up` started it.
    """

    def __init__(
        self,
        settings: Settings,
        wish: str,
        launched: subprocess.Popen[bytes] | None,
        *,
        airflow: bool,
        progress: Progress,
    ) -> None:
        self._settings, self._wish, self._launched, self._progress = settings, wish, launched, progress
        self._questions: dict[str, Callable[[Settings], Health]] = {"sql": sql_health, "connect": connect_health}
        if airflow:
            self._questions["airflow"] = airflow_health
        self._start_s = self._reported_s = self._progress_s = self._looked_s = time.monotonic()
        self._worked_s = 0.0
        self._answer = "no supervisor"

    def wait(self) -> None:
        """Return when all services answer and the first work is done, or is left to go on.

        Raises:
            StartFailed: a part or the launched supervisor has failed, or no awaited part has worked for
                `startup_timeout_s` seconds.
            SupervisorGone: the supervisor that ran before this `up` has ended.
        """
        while True:
            time.sleep(POLL_S)
            state = running_supervisor(self._settings)
            if state is None or state.wish != self._wish:
                self._expect_progress(state, parts=())
                continue
            self._ask_all()
            if not self._questions and self._first_work_is_done(state):
                return
            self._expect_progress(state, parts=state.parts)

    def _ask_all(self) -> None:
        for name, ask in list(self._questions.items()):
            health = ask(self._settings)
            if health.ok:
                del self._questions[name]
                self._progress(f"{name}: {health.detail}")
            else:
                self._answer = f"{name}: {health.detail}"

    def _first_work_is_done(self, state: SupervisorState) -> bool:
        part, server = state.part(first_work_part.NAME), state.part(lake.NAME)
        if part is None:
            # a supervisor of an older version has no such part
            return True
        if part.condition == "running" and time.monotonic() - self._start_s > self._settings.startup_timeout_s:
            self._progress(f"{part.name} takes long, and continues: see {part.log}")
            return True
        if part.condition == "finished" and server and server.started_monotonic > self._start_s:
            for sentence in first_work_part.repairs(self._settings):
                self._progress(sentence)
        return part.condition == "finished"

    def _expect_progress(self, state: SupervisorState | None, parts: Sequence[PartState]) -> None:
        if self._launched and self._launched.poll() is not None:
            raise self._start_failed(
                "supervisor", f"it ended, exit code {self._launched.returncode}", self._log("supervisor")
            )
        if self._launched is None and state is None:
            raise SupervisorGone
        failed = next((part for part in parts if part.condition == "failed"), None)
        if failed:
            finding = f"it ended again and again, last with exit code {failed.last_exit}{_last_words(failed)}"
            raise self._start_failed(failed.name, finding, Path(failed.log))
        self._look_for_work(parts)
        if time.monotonic() - self._progress_s > self._settings.startup_timeout_s:
            silent = self._answer if self._questions else f"the services answer{self._lacking_executors()}"
            finding = f"nothing that it needs has worked for {self._settings.startup_timeout_s:g} s: {silent}"
            raise self._start_failed(
                next(iter(self._questions), first_work_part.NAME), finding, self._settings.logs_dir
            )

    def _look_for_work(self, parts: Sequence[PartState]) -> None:
        """Record whether the awaited parts use a processor, and report now and then which parts are awaited."""
        now = time.monotonic()
        if now - self._looked_s >= LOOK_S:
            worked_s = sum(processes.processor_s(part.pid) for part in self._parts_to_start(parts) if part.pid)
            # processes that ended no longer count, so the sum can fall
            if worked_s < self._worked_s or worked_s - self._worked_s >= LEAST_LOAD * (now - self._looked_s):
                self._progress_s = now
            self._looked_s, self._worked_s = now, worked_s
        if now - self._reported_s >= TELL_S:
            names = ", ".join(part.name for part in self._parts_to_start(parts) if part.condition == "running")
            idle_s = now - self._progress_s
            still = f"has used no processor for {idle_s:.0f} s" if idle_s > TELL_S else "is at work"
            wanted = self._answer if self._questions else f"{_FIRST_WORK}{self._lacking_executors()}"
            self._progress(f"{now - self._start_s:.0f} s: {wanted}; {names or 'the supervisor'} {still}")
            self._reported_s = now

    def _lacking_executors(self) -> str:
        """The lack of executors, for which the first work waits, as the end of a sentence; empty if it has some."""
        health = executors_service(self._settings).health
        return "" if health.ok else f"; executors: {health.detail}"

    def _parts_to_start(self, parts: Sequence[PartState]) -> list[PartState]:
        """The parts that services without an answer need; once all have answered, the first work."""
        served = {name for names in _PARTS.values() for name in names}
        wanted: set[str] = set() if self._questions else {first_work_part.NAME}
        for service in self._questions:
            wanted |= set(_PARTS.get(service, {part.name for part in parts} - served))
        return [part for part in parts if part.name in wanted]

    def _log(self, name: str) -> Path:
        return self._settings.logs_dir / f"{name}.log"

    def _start_failed(self, part: str, finding: str, log: Path) -> StartFailed:
        return StartFailed(
            expected=f"{part} to become healthy",
            found=finding,
            consequence="the other parts are left running",
            next_step=f"read {log}; `tidemark doctor` looks for causes",
            part=part,
            log_file=str(log),
        )


def _last_words(part: PartState) -> str:
    """The last line of the first work's log, which is a sentence; empty for other parts."""
    lines = Path(part.log).read_text(errors="replace").splitlines() if part.name == first_work_part.NAME else []
    return f": {lines[-1]}" if lines else ""
