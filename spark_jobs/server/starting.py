"""Waiting for the parts of one `up`, with an early end where one cannot come."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from spark_jobs.config import Settings
from spark_jobs.server import processes
from spark_jobs.server.errors import StartFailed
from spark_jobs.server.health import Health, airflow_health, connect_health, sql_health
from spark_jobs.server.state import SupervisorState
from spark_jobs.server.status import POLL_S, running_supervisor

Progress = Callable[[str], None]


class SupervisorGone(Exception):
    """The supervisor that was asked to start something has ended."""


class Starting:
    """Asks the services until each has answered, and gives a fresh lake server its first work meanwhile.

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
        self._warming: subprocess.Popen[bytes] | None = None

    def wait(self) -> None:
        """Return when everything serves.

        Raises:
            StartFailed: as soon as it is clear that a part will not.
            SupervisorGone: the supervisor ended that ran before.
        """
        while self._questions:
            time.sleep(POLL_S)
            state = running_supervisor(self._settings)
            has_read = state is not None and state.wish == self._wish
            if state and has_read:
                self._ask_all(state)
            self._expect_progress(state, has_read=has_read)
        if self._warming and self._warming.wait():
            raise self._failed("the first work of the lake server", "it failed", self._log("warm"))

    def _ask_all(self, state: SupervisorState) -> None:
        for name, ask in list(self._questions.items()):
            health = ask(self._settings)
            if not health.ok:
                self._answer = f"{name}: {health.detail}"
                continue
            del self._questions[name]
            self._progress(f"{name}: {health.detail}")
            lake = state.part("lake")
            if name == "connect" and lake and lake.started > self._begun:
                self._warming = self._warm()

    def _warm(self) -> subprocess.Popen[bytes]:
        with self._log("warm").open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "spark_jobs.server.warm"],
                env={**os.environ, **self._settings.environment(), processes.MARKER: str(self._settings.home)},
                cwd=self._settings.server_dir,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def _expect_progress(self, state: SupervisorState | None, *, has_read: bool) -> None:
        if not self._questions:
            return
        if self._launched and self._launched.poll() is not None:
            raise self._failed(
                "supervisor", f"it ended, exit code {self._launched.returncode}", self._log("supervisor")
            )
        if self._launched is None and state is None:
            raise SupervisorGone
        parts = state.parts if state and has_read else ()
        failed = next((part for part in parts if part.condition == "failed"), None)
        if failed:
            found = f"it ended again and again, last with exit code {failed.last_exit}"
            raise self._failed(failed.name, found, Path(failed.log))
        if time.time() - self._begun > self._settings.startup_timeout_s:
            found = f"after {self._settings.startup_timeout_s:g} s: {self._answer}"
            raise self._failed(next(iter(self._questions)), found, self._settings.logs_dir)

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
