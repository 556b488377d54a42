"""The server of figures for a monitoring system as a part, see `spark_jobs.cli.metrics_server`."""

from __future__ import annotations

from spark_jobs.config import Settings
from spark_jobs.server.processes import Part, of_module

NAME = "metrics"

GRACE_S = 1.0
"""The seconds that it gets to end. It writes nothing, so nothing is lost."""


def metrics_part(settings: Settings) -> Part:
    """The server of figures as a part. It reads the lake's files, and needs no other part."""
    return of_module(settings, NAME, "spark_jobs.cli.metrics_server", grace_s=GRACE_S)
