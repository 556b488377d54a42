"""Waiting for the parts of one `up`, with an early end where one cannot come."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from spark_jobs.config import Settings
from spark_jobs.server import first_work_part
from spark_jobs.server.errors import StartFailed
from spark_jobs.server.health import Health, airflow_health, connect_health, sql_health
from spark_jobs.server.state import PartState, SupervisorState
from spark_jobs.server.status import POLL_S, running_supervisor

Progress = Callable[[str], None]


class SupervisorGone(Exception):
    """The supervisor that was asked to start something has ended."""


class Starting:
    """Asks the services until each has answered and the lake server's first work is done.

    Args:
        wish: the name of what the supervisor was asked for; before it has read that, the server that it is about to
            end would answer, and a part that it is about to start is one that was given up.
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
        self._begun = time.time()
        self._answer = "no supervisor"

    def wait(self) -> None:
        """Return when everything serves.

        Raises:
            StartFailed: as soon as it is clear that a part will not.
            SupervisorGone: the supervisor ended that ran before.
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
        part, lake = state.part(first_work_part.NAME), state.part("lake")
        if part is None:
            # the supervisor is that of an older version, which has no such part
            return True
        if part.condition == "running" and self._is_overdue():
            self._progress(f"{part.name} takes long, and goes on: see {part.log}")
            return True
        if part.condition == "finished" and lake and lake.started > self._begun:
            for sentence in first_work_part.mended(self._settings):
                self._progress(sentence)
        return part.condition == "finished"

    def _expect_progress(self, state: SupervisorState | None, parts: Sequence[PartState]) -> None:
        if self._launched and self._launched.poll() is not None:
            raise self._failed(
                "supervisor", f"it ended, exit code {self._launched.returncode}", self._log("supervisor")
            )
        if self._launched is None and state is None:
            raise SupervisorGone
        failed = next((part for part in parts if part.condition == "failed"), None)
        if failed:
            found = f"it ended again and again, last with exit code {failed.last_exit}"
            raise self._failed(failed.name, found, Path(failed.log))
        if self._is_overdue():
            found = f"after {self._settings.startup_timeout_s:g} s: {self._answer}"
            raise self._failed(next(iter(self._questions), first_work_part.NAME), found, self._settings.logs_dir)

    def _is_overdue(self) -> bool:
        return time.time() - self._begun > self._settings.startup_timeout_s

    def _log(self, name: str) -> Path:
        return self._settings.logs_dir / f"{name}.log"

    def _failed(self, part: str, found: str, log: Path) -> StartFailed:
        return StartFailed(
            expected=f"{part} to become healthy",
            found=found,
            consequence="the other parts are left running",
            next_step=f"read {log}; `tidemark doctor` looks for causes",
            part=part,
            log_file=str(log),
        )
