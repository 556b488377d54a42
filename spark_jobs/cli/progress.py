"""The present step of a command that takes long: a line that is renewed on a terminal, else a line for each step.

Without a terminal a step that takes long has a further line now and then, with the time that it has taken so far.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from spark_jobs.cli.output import note
from spark_jobs.model import ReportStep

REPORT_S = 10.0
"""The least seconds between two lines about the counts of one step, where there is no terminal."""
STILL_S = 30.0
"""The seconds without a line after which a step that goes on gets one, where there is no terminal."""


@contextmanager
def working(what: str) -> Iterator[ReportStep]:
    """Show the steps of a command on standard error; the block gets the function that names them.

    On a terminal it is one line with the seconds since the begin, which goes away in the end; messages of the block are
    printed above it. Without a terminal each step is a line of its own.
    """
    console = Console(stderr=True)
    if not console.is_terminal:
        with _Lines(what) as lines:
            yield lines
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as line:
        task = line.add_task(what)

        def report_step(step: str, n_done: int = 0, total: int = 0) -> None:
            line.update(task, description=_words(what, step, n_done, total))

        yield report_step


class _Lines:
    """A line of standard error for each step, for its counts now and then, and for its time if it takes long."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._step = ""
        self._words = what
        self._began_at = time.monotonic()
        self._reported_at = 0.0
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._beat = threading.Thread(target=self._say_still, daemon=True)

    def __enter__(self) -> _Lines:
        self._beat.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._beat.join()

    def __call__(self, step: str, n_done: int = 0, total: int = 0) -> None:
        now = time.monotonic()
        with self._lock:
            self._words = _words(self._what, step, n_done, total)
            is_new = step != self._step
            if is_new:
                self._step, self._began_at = step, now
            if is_new or now - self._reported_at >= REPORT_S:
                self._reported_at = now
                note(self._words)

    def _say_still(self) -> None:
        """Write a line with the time of the present step whenever `STILL_S` seconds have passed without a line."""
        while not self._ended.wait(min(STILL_S, 1.0)):
            now = time.monotonic()
            with self._lock:
                if now - max(self._began_at, self._reported_at) >= STILL_S:
                    self._reported_at = now
                    note(f"{self._words}: {_duration(now - self._began_at)} so far")


def _words(what: str, step: str, n_done: int, total: int) -> str:
    counts = f", {n_done:,} of {total:,}" if total else ""
    return f"{what}: {step}{counts}"


def _duration(elapsed_s: float) -> str:
    """Seconds as people read them, such as `45 s` or `12 min 5 s`."""
    minutes, seconds = divmod(int(elapsed_s), 60)
    return f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
