"""How often a source's states are read, counted beside the lake: what the compaction strategy adaptive weighs.

A count only chooses where checkpoints are placed, never an answer, so a lost one does no harm.
"""

from __future__ import annotations

import fcntl
from pathlib import Path


def count_read(home: Path, source: str, reads: int = 1) -> None:
    """Count reads of states of `source`; processes may count at once."""
    path = _path(home, source)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        before = _number(path.read_text())
        file.truncate(0)
        file.write(str(before + reads))


def reads_of(home: Path, source: str) -> int:
    """Reads counted so far."""
    path = _path(home, source)
    return _number(path.read_text()) if path.exists() else 0


def _path(home: Path, source: str) -> Path:
    return home / "reads" / source


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 0
