"""The present step of a command that takes long: a line that is renewed on a terminal, else a line for each step.

Without a terminal a step that takes long has a further line now and then, with the time that it has taken so far.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from spark_jobs.cli.output import note
from spark_jobs.model import ReportStep
from spark_jobs.step_lines import StepLines, step_words


@contextmanager
def working(what: str) -> Iterator[ReportStep]:
    """Show the steps of a command on standard error; the block gets the function that names them.

    On a terminal it is one line with the seconds since the begin, which goes away in the end; messages of the block are
    printed above it. Without a terminal each step is a line of its own.
    """
    console = Console(stderr=True)
    if not console.is_terminal:
        with StepLines(what, note) as lines:
            yield lines
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as line:
        task = line.add_task(what)

        def report_step(step: str, n_done: int = 0, total: int = 0) -> None:
            line.update(task, description=step_words(what, step, n_done, total))

        yield report_step
