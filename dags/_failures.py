"""How a task of ours fails: what its log says, and whether it is tried again."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from airflow.sdk.exceptions import AirflowFailException

from spark_jobs.errors import TidemarkError

RETRIED = frozenset({"server_unreachable", "source_busy", "lake_busy", "marts_failed"})
"""Refusals that may pass by themselves. All others, a failed gate first, are the same the next time: not retried."""


@contextmanager
def failures_told(log: logging.Logger) -> Iterator[None]:
    """Log a refusal, and end the task for good where it would be the same the next time."""
    try:
        yield
    except TidemarkError as error:
        log.error("%s", error)
        if error.code in RETRIED:
            raise
        raise AirflowFailException(str(error)) from error
