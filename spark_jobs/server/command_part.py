"""The command server as a part: it forks the commands of `tidemark`, see `spark_jobs.cli.command_server`."""

from __future__ import annotations

import os

from spark_jobs.config import Settings
from spark_jobs.server.processes import Part, of_module

NAME = "commands"

GRACE_S = 10.0
"""Commands under way stop at what they have committed; their users are told."""


def is_wanted(settings: Settings) -> bool:
    """Whether this installation has one; it takes Linux to notice how a fork has ended."""
    return settings.command_server and hasattr(os, "pidfd_open")


def command_part(settings: Settings) -> Part:
    """The command server; it needs no other part, and commands that need one say so."""
    return of_module(settings, NAME, "spark_jobs.cli.command_server", grace_s=GRACE_S)
