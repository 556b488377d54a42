"""The first work of a lake server as a part: once for each server that is started, see `spark_jobs.cli.first_work`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from spark_jobs.config import Settings
from spark_jobs.server.processes import Part, of_module
from spark_jobs.server.state import write_json

NAME = "first-work"

GRACE_S = 1.0
"""The next server has a first work of its own."""


def first_work_part(settings: Settings) -> Part:
    """The first work; it waits for the lake server itself."""
    write_mended(settings, [])
    return of_module(settings, NAME, "spark_jobs.cli.first_work", grace_s=GRACE_S)


def hold_readers(settings: Settings) -> None:
    """Have readers who connect wait until `admit_readers`: the catalog of the server that starts now lacks names."""
    names_lacking_file(settings).touch(mode=0o600)


def admit_readers(settings: Settings) -> None:
    """Let readers in: the names are there, or can't be made."""
    names_lacking_file(settings).unlink(missing_ok=True)


def names_lacking_file(settings: Settings) -> Path:
    """The file that is there while names of a lost catalog are still to be made anew, whichever server does it."""
    return settings.server_dir / "names-lacking"


def write_mended(settings: Settings, sentences: Sequence[str]) -> None:
    """Note what the first work has mended."""
    write_json(_mended_file(settings), sentences)


def mended(settings: Settings) -> list[str]:
    """What the first work of the present lake server has mended, a sentence each."""
    sentences: list[str] = json.loads(_mended_file(settings).read_text())
    return sentences


def _mended_file(settings: Settings) -> Path:
    return settings.server_dir / "mended.json"
