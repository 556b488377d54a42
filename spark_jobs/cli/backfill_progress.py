"""The display of a backfill while it runs (a bar on a terminal, lines in a log), and its stop by Ctrl-C."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from spark_jobs.cli.output import note
from spark_jobs.model import pluralize

if TYPE_CHECKING:
    from spark_jobs.server.backfill import SliceRun

STOPPED = 130
"""The exit code after Ctrl-C, as for any command."""


class BackfillPace:
    """The progress of a backfill: the drops done, its pace, and the time that the rest takes at that pace."""

    def __init__(self, source: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._source = source
        self._clock = clock
        self._start_s: float | None = None
        self._before: set[str] = set()
        self._finished_in_s = 0.0
        self._finished: set[str] = set()

    def line(self, runs: list[SliceRun]) -> str:
        """The progress as one line: drops done, running and failed, rows per second, time left."""
        now = self._clock()
        finished_runs = {run.run_id: run for run in runs if run.state == "success"}
        if self._start_s is None:
            self._start_s, self._before = now, set(finished_runs)
        if finished_runs.keys() != self._finished:
            self._finished, self._finished_in_s = set(finished_runs), now - self._start_s
        drops = {state: sum(run.slice.drops for run in runs if run.state == state) for state in _STATES}
        running = drops["queued"] + drops["running"]
        parts = [
            f"{drops['success']} of {sum(run.slice.drops for run in runs)} drops done",
            f"{running} running",
            f"{drops['failed']} failed",
        ]
        mine = [run for key, run in finished_runs.items() if key not in self._before]
        if mine and self._finished_in_s > 0:
            parts.append(f"{sum(run.rows or 0 for run in mine) / self._finished_in_s:,.0f} rows/s")
            left = sum(_weight(run) for run in runs if run.state != "success") / sum(map(_weight, mine))
            parts.append(f"{_duration_text(max(self._finished_in_s * (1 + left) - (now - self._start_s), 0.0))} left")
        return f"{self._source}: {', '.join(parts)}"


_STATES = ("success", "queued", "running", "failed")


def _weight(run: SliceRun) -> int:
    """The cost of a run in bytes: each drop, even an empty one, costs something beyond its own bytes."""
    return run.slice.bytes + 1024 * run.slice.drops


def _duration_text(seconds: float) -> str:
    minutes, seconds_left = divmod(round(seconds), 60)
    return f"{minutes} min {seconds_left} s" if minutes else f"{seconds_left} s"


@contextmanager
def show_progress(source: str, total: int) -> Iterator[Callable[[list[SliceRun]], None]]:
    """Show a bar on standard error if it is a terminal, and print a line for each run that ends.

    The block gets a function, which it calls with the present states of all runs.
    """
    pace, announced = BackfillPace(source), set[str]()
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty()) as bars:
        bar = bars.add_task(source, total=total)

        def tell(runs: list[SliceRun]) -> None:
            line = pace.line(runs)
            finished_drops = sum(run.slice.drops for run in runs if run.state == "success")
            bars.update(bar, description=line, completed=finished_drops)
            fresh = [run for run in runs if run.state in ("success", "failed") and run.run_id not in announced]
            for run in fresh:
                announced.add(run.run_id)
                rows = "" if run.rows is None else f", {pluralize(run.rows, 'row')}"
                bars.console.print(f"  {_drops_of(run)}: {run.state} in {run.seconds} s{rows}", highlight=False)
            if fresh:
                bars.console.print(f"  {line}", highlight=False)

        yield tell


def _drops_of(run: SliceRun) -> str:
    return run.slice.first if run.slice.drops == 1 else f"{run.slice.first} to {run.slice.last}"


class Stop:
    """The wish to stop by Ctrl-C: the first one lets the present run end, the second one leaves it to Airflow."""

    def __init__(self, source: str) -> None:
        self._source = source
        self.asked = False

    def __call__(self) -> bool:
        """True if Ctrl-C was pressed."""
        return self.asked

    def interrupt(self, *_: int | FrameType | None) -> Any:
        """Handle Ctrl-C: note the first one; raise KeyboardInterrupt at the second one."""
        if self.asked:
            note(f"left to Airflow, which finishes this run; continue with: tidemark backfill {self._source} --resume")
            raise KeyboardInterrupt
        self.asked = True
        note("stops once the present run has published; Ctrl-C again leaves that run to Airflow")


@contextmanager
def stopping(source: str) -> Iterator[Stop]:
    """Handle Ctrl-C in the block with a `Stop`. The second Ctrl-C ends the command without a further message."""
    stop = Stop(source)
    before = signal.signal(signal.SIGINT, stop.interrupt)
    try:
        yield stop
    except KeyboardInterrupt:
        raise typer.Exit(STOPPED) from None
    finally:
        signal.signal(signal.SIGINT, before)
