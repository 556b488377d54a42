"""What is left in the place of a table whose creation was stopped."""

from __future__ import annotations

from pathlib import Path

from spark_jobs.storage.delta.log_files import LOG_DIR

DRAFT = ".00000000000000000000.json.5c7d0a3e.tmp"


def leave_remains(folder: Path) -> None:
    """Leave in a table's folder what it holds where the JVM that created it was killed, or found the disk full."""
    (folder / LOG_DIR / "_staged_commits").mkdir(parents=True)
    (folder / LOG_DIR / DRAFT).write_text('{"commitInfo":')
