"""The batches of a trace that outlive a publication: nothing about them may change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from spark_jobs.engine.measures.sums import Adds

_SCHEMA = pa.schema([(name, pa.string()) for name in ("batch", "changed", "before", "now")])


@dataclass(frozen=True, slots=True)
class BatchFacts:
    """The facts about a batch's updates that never change: their number, and the bounds of their times.

    `checksum` has two parts with a dot between: a digest of the columns' types, and one of the files. It is empty if an
    earlier version wrote the batch.
    """

    n_updates: int
    least: int
    greatest: int
    checksum: str

    @property
    def counts(self) -> tuple[int, int, int]:
        """The facts without the checksum."""
        return self.n_updates, self.least, self.greatest

    def __str__(self) -> str:
        """The facts in words."""
        return f"{self.n_updates} updates from {self.least} to {self.greatest}, checksum {self.checksum or 'none'}"


@dataclass(frozen=True, slots=True)
class BatchNote:
    """A batch as a state notes it. `bounds`: lower, upper and since of a batch of the trace, sequence numbers of an
    unsealed one; in words. `level` is None for an unsealed batch."""

    bounds: str
    level: int | None
    facts: BatchFacts


def changed_batches(
    before: Mapping[str, BatchNote], after: Mapping[str, BatchNote], stored: Mapping[str, BatchFacts]
) -> pa.Table:
    """Changes of the batches that both states name, one row each: `batch`, `changed`, `before`, `now`.

    `changed` is `bounds`, `level` or `updates` if the states differ, `files` if the files are not as noted before.

    Args:
        before, after: the batches that each state notes, by handle.
        stored: the facts of the stored files, by handle; a batch without files is left out.
    """
    rows = [
        (handle, *change)
        for handle, note in before.items()
        if handle in after
        for change in _changes(note, after[handle], stored.get(handle, BatchFacts(0, 0, 0, "")))
    ]
    return pa.Table.from_pylist([dict(zip(_SCHEMA.names, row, strict=True)) for row in rows], _SCHEMA)


def judge_changed_batches(changes: pa.Table) -> Adds:
    """One for each change of a batch."""
    return {"batches_changed": np.ones(changes.num_rows, np.bool_)}


def _changes(before: BatchNote, after: BatchNote, stored: BatchFacts) -> Iterator[tuple[str, str, str]]:
    compared = {
        "bounds": (before.bounds, after.bounds),
        "level": (before.level, after.level),
        "updates": (before.facts, after.facts),
        "files": (before.facts, _as_noted(before.facts, stored)),
    }
    return ((name, str(one), str(other)) for name, (one, other) in compared.items() if one != other)


def _as_noted(noted: BatchFacts, stored: BatchFacts) -> BatchFacts:
    """The stored facts, with the checksum as noted where none can be compared.

    That is so if none was noted, if the batch has no updates and so no files, or if the files have columns of other
    types: then an accepted change of the source file has written them anew.
    """
    types = noted.checksum.partition(".")[0], stored.checksum.partition(".")[0]
    comparable = noted.checksum and stored.n_updates and types[0] == types[1]
    checksum = stored.checksum if comparable else noted.checksum
    return BatchFacts(*stored.counts, checksum)
