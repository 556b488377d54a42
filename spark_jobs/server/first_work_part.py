"""The first work of a lake server as a part. It runs once for each started server, see `spark_jobs.cli.first_work`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from spark_jobs.config import Settings
from spark_jobs.server.processes import Part, of_module
from spark_jobs.server.state import write_json

NAME = "first-work"

GRACE_S = 1.0
"""The seconds that it gets to end. It need not finish, since the next server has a first work of its own."""


def first_work_part(settings: Settings) -> Part:
    """The first work as a part; the program itself waits for the lake server."""
    write_mended(settings, [])
    return of_module(settings, NAME, "spark_jobs.cli.first_work", grace_s=GRACE_S)


def hold_readers(settings: Settings) -> None:
    """Make readers who connect wait until `admit_readers`, since the starting server's catalog lacks names."""
    names_lacking_file(settings).touch(mode=0o600)


def admit_readers(settings: Settings) -> None:
    """Let readers connect again: the names are made, or cannot be made."""
    names_lacking_file(settings).unlink(missing_ok=True)


def names_lacking_file(settings: Settings) -> Path:
    """The file that exists while names of a lost catalog have yet to be made anew, by this server or a later one."""
    return settings.server_dir / "names-lacking"


def write_mended(settings: Settings, sentences: Sequence[str]) -> None:
    """Write down the repairs of the first work, as sentences for people."""
    write_json(_mended_file(settings), sentences)


def repairs(settings: Settings) -> list[str]:
    """The repairs by the first work of the present lake server, one sentence each."""
    sentences: list[str] = json.loads(_mended_file(settings).read_text())
    return sentences


def _mended_file(settings: Settings) -> Path:
    return settings.server_dir / "mended.json"
