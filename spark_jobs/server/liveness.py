"""The liveness probe of a lake server, a part of the supervisor: it sends statements, and reports a server that gives
no answer. A running process does not prove that the server works: its executor may have ended, or its heap be full.

`python -m spark_jobs.server.liveness PID` asks the server with that process id, as a writer, over a connection for each
statement that it keeps open. It ends with the exit code `DEAD` as soon as it has found:

- statements that fail, one after the other, for `FAILING_S` seconds;
- no answer to a statement without a task for `SILENT_S` seconds;
- no first answer for `START_LIMITS` times `startup_timeout_s`;
- no answer to a statement with a task for `STUCK_S` seconds, while this machine has no thread of an executor. A server
  that has such threads is busy: its tasks take all cores, and a statement waits for its turn as long as it takes;
- on a cluster, no answer to a statement with a task for `executor_patience_s` seconds, while there is no executor. A
  master that was lost and came back does not know the server, and never gives it one.

Only time in which the machine runs is counted: setting the clock, or a machine asleep, does not count as silence.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from queue import Empty, Queue
from typing import Any

import psutil

from spark_jobs.config import Settings, load_settings
from spark_jobs.errors import TidemarkError
from spark_jobs.jvm.executors import are_embedded
from spark_jobs.server.logins import login
from spark_jobs.server.processes import Part, of_module
from spark_jobs.server.surroundings import read_executors
from spark_jobs.server.thrift_client import thrift_connection

NAME = "liveness"

GRACE_S = 1.0

DEAD = 3
"""The exit code of a probe whose server is dead."""

PAUSE_S = 10.0
"""The seconds between two questions. Each costs some hundredths of a second of a processor."""

FAILING_S = 30.0
SILENT_S = 180.0
"""The limits in seconds have a margin: a garbage collection of a full heap takes seconds, and a connection beside 20
readers on two cores took 12."""
STUCK_S = 60.0
START_LIMITS = 3
"""A start may take this many times `startup_timeout_s`. An `up` that waits for the start checks for progress itself."""

WITHOUT_TASK, WITH_TASK = "SELECT 1", "SELECT sum(id) FROM range(2)"


def liveness_part(settings: Settings, server: int) -> Part:
    """The probe, as a part, of the lake server with the process id `server`. It writes its finding to `death_file`."""
    death_file(settings).unlink(missing_ok=True)
    return of_module(settings, NAME, "spark_jobs.server.liveness", GRACE_S, str(server))


def death_file(settings: Settings) -> Path:
    """The file with the reason, a sentence, for which the last probe found its server dead."""
    return settings.server_dir / "death"


class Liveness:
    """The answers of a server so far, and the judgement whether they prove it dead. All times are seconds of one clock.

    `now` is the time at which the server was started, `start_s` the seconds that its first answer may take.
    """

    def __init__(
        self, now: float, start_s: float, *, stuck_s: float = STUCK_S, stuck_with: str = "no task runs"
    ) -> None:
        self._start_ends = now + start_s
        self._stuck_s, self._stuck_with = stuck_s, stuck_with
        self._answered: dict[str, float] = {}
        self._failing_since: dict[str, float] = {}

    def answer(self, statement: str, now: float, error: str | None = None) -> str | None:
        """Record an answer, or the `error` that came instead. Returns the reason if the server is dead, else None."""
        if error is None:
            # an answer to a statement with a task is also a proof for statements without a task
            for answered in {WITHOUT_TASK, statement}:
                self._answered[answered] = now
                self._failing_since.pop(answered, None)
            return None
        failing = now - self._failing_since.setdefault(statement, now)
        if not self._has_started() or failing < FAILING_S:
            return None
        return f"statements have failed for {failing:.0f} s, the last with: {error}"

    def silence(self, now: float, *, executes: Callable[[], bool]) -> str | None:
        """Record that no answer has come yet. Returns the reason if the server is dead, else None.

        `executes` returns True if the server's executor works."""
        if not self._has_started():
            return "no statement was answered since it was started" if now >= self._start_ends else None
        silent, stuck = (now - self._answered[statement] for statement in (WITHOUT_TASK, WITH_TASK))
        if silent >= SILENT_S:
            return f"no statement was answered for {silent:.0f} s"
        if stuck >= self._stuck_s and not executes():
            return f"no statement with a task was answered for {stuck:.0f} s, and {self._stuck_with}"
        return None

    def _has_started(self) -> bool:
        return WITH_TASK in self._answered


class Executors:
    """The judgement whether the executors of a cluster work: True until there was none for `patience_s` seconds.

    One that ends is replaced by Spark's master, while statements wait."""

    def __init__(self, now: float, patience_s: float) -> None:
        self._newest, self._patience_s = now, patience_s
        self.work = True

    def look(self, now: float, *, present: bool) -> None:
        """Record whether there are executors now."""
        if present:
            self._newest = now
        self.work = now - self._newest < self._patience_s


class Remarks:
    """Sentences about the answers of a server for the probe's log, one for each change; `now` is when it was started.

    A start is no change: until its first answer nobody can connect.
    """

    def __init__(self, now: float) -> None:
        self._start = now
        self._answered: dict[str, bool] = {}

    def remark_on(self, statement: str, now: float, error: str | None) -> str | None:
        """The sentence about an answer, or about the `error` that came instead; None if it changes nothing."""
        if not self._answered and error is not None:
            return None
        is_first, before = not self._answered, self._answered.get(statement, True)
        self._answered[statement] = error is None
        if is_first:
            return f"the server gave its first answer after {now - self._start:.0f} s, to: {statement}"
        if error is not None:
            return f"{statement} failed: {error}" if before else None
        return None if before else f"{statement} is answered again"


class _Asker:
    """A thread that sends a statement again and again, over one connection, and puts the answers into a queue."""

    def __init__(self, settings: Settings, statement: str, answers: Queue[tuple[str, str | None]]) -> None:
        self._settings, self._statement, self._answers = settings, statement, answers
        self._connection: Any = None
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            self._answers.put((self._statement, self._ask()))
            time.sleep(PAUSE_S)

    def _ask(self) -> str | None:
        """The error that the statement ended with, None if it was answered."""
        try:
            if self._connection is None:
                self._connection = thrift_connection(self._settings, login(self._settings, "writer"), timeout_s=None)
            with self._connection.cursor() as cursor:
                cursor.execute(self._statement)
                cursor.fetchall()
        except TidemarkError as refusal:
            # this probe could not ask, which is not the server's fault
            sys.stdout.write(f"{refusal}\n")
        except Exception as error:  # of any kind: only the time for which errors last decides
            with suppress(Exception):
                self._connection._transport.close()
            self._connection = None
            return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        return None


def executes(server: int) -> bool:
    """True if the JVM with this process id has a thread of an executor, or if its threads cannot be listed.

    Linux shows the first 15 letters of a thread's name. This is for embedded executors only."""
    threads = list(Path(f"/proc/{server}/task").glob("*/comm"))
    names = []
    for thread in threads:
        with suppress(OSError):
            names.append(thread.read_text().strip())
    return not threads or any(name.startswith("Executor task") for name in names)


def _liveness(settings: Settings, start: float) -> Liveness:
    limit_s = START_LIMITS * settings.startup_timeout_s
    if are_embedded(settings):
        return Liveness(start, limit_s)
    return Liveness(start, limit_s, stuck_s=settings.executor_patience_s, stuck_with="it has no executor")


def main() -> int:
    """Ask until the server is dead or its process has ended. Returns `DEAD` if the server is dead, else 0."""
    settings, server = load_settings(), int(sys.argv[1])
    answers: Queue[tuple[str, str | None]] = Queue()
    # the client's own line for each try says nothing that a remark does not say
    logging.getLogger("thrift").setLevel(logging.CRITICAL)
    for statement in (WITHOUT_TASK, WITH_TASK):
        _Asker(settings, statement, answers)
    start = time.monotonic()
    remarks, liveness = Remarks(start), _liveness(settings, start)
    executors = Executors(start, settings.executor_patience_s)
    works = (lambda: executes(server)) if are_embedded(settings) else (lambda: executors.work)
    while psutil.pid_exists(server):
        executors.look(time.monotonic(), present=read_executors(settings) != [])
        try:
            statement, error = answers.get(timeout=1.0)
            if (remark := remarks.remark_on(statement, time.monotonic(), error)) is not None:
                sys.stdout.write(f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} {remark}\n")
                sys.stdout.flush()
            reason = liveness.answer(statement, time.monotonic(), error)
        except Empty:
            reason = liveness.silence(time.monotonic(), executes=works)
        if reason is not None:
            death_file(settings).write_text(reason)
            return DEAD
    return 0


if __name__ == "__main__":
    sys.exit(main())
