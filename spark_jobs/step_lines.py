"""The steps of work that takes long, as lines of a log: a line for each step, for its counts now and then, and for a
step that goes on without any other line."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

REPORT_S = 10.0
"""The least seconds between two lines about the counts of one step."""
STILL_S = 30.0
"""The seconds without a line after which a step that goes on gets one."""


class StepLines:
    """Lines about the steps of a piece of work; a `ReportStep` while it is open.

    Args:
        what: the work; each line begins with it.
        write: writes a line.
    """

    def __init__(self, what: str, write: Callable[[str], None]) -> None:
        self._what = what
        self._write = write
        self._step = ""
        self._words = what
        self._began_at = time.monotonic()
        self._reported_at = 0.0
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._beat = threading.Thread(target=self._say_still, daemon=True)

    def __enter__(self) -> StepLines:
        self._beat.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._beat.join()

    def __call__(self, step: str, n_done: int = 0, total: int = 0) -> None:
        """Note the step, with the count that is reached of its total, and write a line if one is due."""
        now = time.monotonic()
        with self._lock:
            self._words = step_words(self._what, step, n_done, total)
            is_new = step != self._step
            if is_new:
                self._step, self._began_at = step, now
            if is_new or now - self._reported_at >= REPORT_S:
                self._reported_at = now
                self._write(self._words)

    def _say_still(self) -> None:
        """Write a line with the time of the present step whenever `STILL_S` seconds have passed without a line."""
        while not self._ended.wait(min(STILL_S, 1.0)):
            now = time.monotonic()
            with self._lock:
                if now - max(self._began_at, self._reported_at) >= STILL_S:
                    self._reported_at = now
                    self._write(f"{self._words}: {_duration(now - self._began_at)} so far")


def step_words(what: str, step: str, n_done: int, total: int) -> str:
    """A step of a piece of work, with its counts if it has any, such as `backup: files, 3 of 12`."""
    counts = f", {n_done:,} of {total:,}" if total else ""
    return f"{what}: {step}{counts}"


def _duration(elapsed_s: float) -> str:
    """Seconds as people read them, such as `45 s` or `12 min 5 s`."""
    minutes, seconds = divmod(int(elapsed_s), 60)
    return f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
