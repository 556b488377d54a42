"""The command server as a part. It forks the commands of `tidemark`, see `spark_jobs.cli.command_server`."""

from __future__ import annotations

import os

from spark_jobs.config import Settings
from spark_jobs.server.processes import Part, of_module

NAME = "commands"

GRACE_S = 10.0
"""The seconds that commands under way get to stop after their last commit, and to inform their users."""


def is_wanted(settings: Settings) -> bool:
    """True if this installation has a command server. It needs Linux, to notice how a fork has ended."""
    return settings.command_server and hasattr(os, "pidfd_open")


def command_part(settings: Settings) -> Part:
    """The command server as a part. It needs no other part; a command that needs one reports it if it is missing."""
    return of_module(settings, NAME, "spark_jobs.cli.command_server", grace_s=GRACE_S)
