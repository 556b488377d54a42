"""Counts of the reads of a source's states, for the compaction strategy adaptive.

A read is counted in a file of the home, since a commit for each read would cost more than the read. `keep_reads` moves
the counts into the lake, where they outlive the home. A count only affects the places of checkpoints, never an answer,
so a lost one does no harm.
"""

from __future__ import annotations

import fcntl
import json
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

import pyarrow.compute as pc

from spark_jobs.storage.descriptions.quality_tables import READS
from spark_jobs.storage.lakes.lake import Lake, RecordReader

_ALL = "all"
_ID = "id"


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
        text = file.read()
        counts = _counts(text)
        counts[read] = counts.get(read, 0) + 1
        _write(file, {_ID: _id_of(text) or uuid.uuid4().hex, **counts})


def reads_of(lake: RecordReader, home: Path, source: str) -> Reads:
    """The reads of the states of `source` that were counted so far: those in the lake, and those of this home since."""
    rows = lake.records(READS, pc.field("source") == source)
    path = _path(home, source)
    text = path.read_text() if path.exists() else ""
    count_id = _id_of(text)
    counts = Counter[str]() if any(row["count_id"] == count_id for row in rows) else Counter(_counts(text))
    for row in rows:
        counts[_ALL if row["entity_class"] is None else str(row["entity_class"])] += row["reads"]
    of_all = counts.pop(_ALL, 0)
    return Reads(of_all, {int(name): count for name, count in counts.items()})


def keep_reads(lake: Lake, home: Path, source: str) -> None:
    """Move the counts of this home into the lake, in one commit; no commit if there are none, or if an older version
    of Tidemark made the lake and no run has made the table yet.

    A kill between the commit and the removal leaves counts whose id is in the lake: they are removed, and not kept
    again.
    """
    with suppress(OSError), _locked_counts(home, source) as file:
        text = file.read()
        counts, count_id = _counts(text), _id_of(text) or uuid.uuid4().hex
        if not counts or READS.table not in lake.catalog.names_if_present(READS.database):
            return
        of_count = (pc.field("source") == source) & (pc.field("count_id") == count_id)
        if not lake.records(READS, of_count):
            classes = {name: None if name == _ALL else int(name) for name in counts}
            row = {"source": source, "count_id": count_id}
            lake.record(READS, [{**row, "entity_class": classes[name], "reads": n} for name, n in counts.items()])
        _write(file, {})


@contextmanager
def _locked_counts(home: Path, source: str) -> Iterator[TextIO]:
    path = _path(home, source)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        yield file


def _write(file: TextIO, counts: dict[str, int | str]) -> None:
    file.seek(0)
    file.truncate()
    file.write(json.dumps(counts))


def _path(home: Path, source: str) -> Path:
    return home / "reads" / source


def _id_of(text: str) -> str | None:
    """The id of the counts in a file; None for a file of an older version, or without counts."""
    with suppress(ValueError):
        value = json.loads(text)
        if isinstance(value, dict) and isinstance(value.get(_ID), str):
            return str(value[_ID])
    return None


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
