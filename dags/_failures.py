"""Failures of our tasks: the lines in their logs, and whether Airflow tries again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any, Protocol

from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from spark_jobs.config import load_settings
from spark_jobs.errors import TidemarkError
from spark_jobs.failures import explain
from spark_jobs.server.lake_log import lines_since

RETRIED = frozenset(
    {
        "server_unreachable",
        "source_busy",
        "lake_busy",
        "commits_contended",
        "origin_unreachable",
        "landing_unreachable",
        "marts_failed",
    }
)
"""Refusals that may pass by themselves: something was away, or others were at work. All others, a failed gate first,
are the same the next time: not retried."""


class Log(Protocol):
    """A log of a task, as Airflow's operators have one."""

    def warning(self, message: str, /, *arguments: Any) -> object:
        """Write a line that warns."""

    def error(self, message: str, /, *arguments: Any) -> object:
        """Write a line of an error."""


@contextmanager
def log_failures(log: Log, keep: Callable[[str], None] = lambda _: None) -> Iterator[None]:
    """If the block fails, log what the lake server said meanwhile, and the error, which `keep` is given, too; end the
    task for good where it would be the same the next time."""
    start = datetime.now(UTC)
    try:
        yield
    except AirflowSkipException:
        raise
    except Exception as error:
        _tell_server(log, start)
        failure = explain(error, load_settings())
        log.error("%s", failure)
        # the log has it; an Airflow that does not take it must not decide how the task ends
        with suppress(Exception):
            keep(str(failure))
        if isinstance(error, TidemarkError) and error.code not in RETRIED:
            raise AirflowFailException(str(error)) from error
        raise


def _tell_server(log: Log, start: datetime) -> None:
    lines = lines_since(load_settings(), start)
    if lines:
        listed = "\n".join(lines)
        log.warning("the lake server's log of that time, other sessions' lines among them:\n%s", listed)
