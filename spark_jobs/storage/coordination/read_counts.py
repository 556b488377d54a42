"""Counts of the reads of a source's states, kept beside the lake for the compaction strategy adaptive.

A count only affects the places of checkpoints, never an answer, so a lost one does no harm.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

_ALL = "all"


@dataclass(frozen=True, slots=True)
class Reads:
    """Reads counted so far: of all entities at once, and of one entity by its class (`engine.deltas.traffic`)."""

    of_all: int = 0
    by_class: dict[int, int] = field(default_factory=dict)


def count_read(home: Path, source: str, *, of_class: int | None = None) -> None:
    """Count a read of the states of `source`: of all entities, or of one of the class `of_class`; processes may count
    at once.

    Nothing is counted if nothing can be written, as for users who may only read the lake.
    """
    read = _ALL if of_class is None else str(of_class)
    with suppress(OSError), _locked_counts(home, source) as file:
        counts = _counts(file.read())
        counts[read] = counts.get(read, 0) + 1
        file.seek(0)
        file.truncate()
        file.write(json.dumps(counts))


def reads_of(home: Path, source: str) -> Reads:
    """The reads of the states of `source` that were counted so far."""
    path = _path(home, source)
    counts = _counts(path.read_text()) if path.exists() else {}
    return Reads(counts.pop(_ALL, 0), {int(name): count for name, count in counts.items()})


@contextmanager
def _locked_counts(home: Path, source: str) -> Iterator[TextIO]:
    path = _path(home, source)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        yield file


def _path(home: Path, source: str) -> Path:
    return home / "reads" / source


def _counts(text: str) -> dict[str, int]:
    """Counts by class, or `all`. A number alone, as older versions counted, is of all entities."""
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    if isinstance(value, int):
        return {_ALL: value}
    if not isinstance(value, dict):
        return {}
    return {name: count for name, count in value.items() if isinstance(count, int) and (name == _ALL or name.isdigit())}
