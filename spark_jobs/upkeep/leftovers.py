"""Old logs, reports and plans of the home, which maintenance removes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

from spark_jobs.config import Settings
from spark_jobs.storage.delta.file_upkeep import Footprint


def _leavings(settings: Settings) -> Iterator[Path]:
    """The logs, reports and plans that nobody needs once they are old.

    Files in the folder of logs itself are not among them: a running part has its log open even if it has written
    nothing for long, and it keeps at most one older log beside it.
    """
    for folder in (settings.logs_dir, settings.home / "reports", settings.home / "plans"):
        files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
        yield from (path for path in files if path.parent != settings.logs_dir)


def footprint_left(settings: Settings) -> Footprint:
    """The files that `drop_leftovers` looks at, old ones and others."""
    sizes = [path.stat().st_size for path in _leavings(settings)]
    return Footprint(len(sizes), sum(sizes))


def drop_leftovers(settings: Settings) -> tuple[str, str]:
    """Remove old logs, reports and plans; returns the work in words, and an empty text, since nobody has to act."""
    days = settings.log_retention_days
    before = time.time() - timedelta(days=days).total_seconds()
    old = [path for path in _leavings(settings) if path.stat().st_mtime < before]
    for path in old:
        path.unlink(missing_ok=True)
    for folder in {path.parent for path in old}:
        _drop_empty(folder, settings.home)
    return f"{len(old)} logs, reports and plans older than {days} days are gone", ""


def _drop_empty(folder: Path, home: Path) -> None:
    """Remove `folder` if it is empty, and then its parents up to the home that are empty."""
    while folder.parent != home and folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
        folder = folder.parent
