"""Batches as the data files of a table store them: counts, bounds and checksums from the files' footers."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from spark_jobs.engine.arrangement import StoredBatch
from spark_jobs.engine.updates import TIME
from spark_jobs.storage.delta.file_summaries import FileSummary
from spark_jobs.storage.descriptions.times import micros


def batches_of(files: Iterable[FileSummary]) -> dict[str, StoredBatch]:
    """The stored batches whose files these are, by handle; the files' bounds must have the times.

    A checksum has two parts with a dot between: a digest of the columns' types, and one of the files' footers."""
    by_handle: dict[str, list[FileSummary]] = {}
    for file in files:
        by_handle.setdefault(file.partition, []).append(file)
    return {handle: _batch_of(handle, of_batch) for handle, of_batch in by_handle.items()}


def _batch_of(handle: str, files: Sequence[FileSummary]) -> StoredBatch:
    times = [file.bounds[TIME] for file in files]
    least, greatest = min(lo for lo, _ in times), max(hi for _, hi in times)
    n_updates, size = sum(file.rows for file in files), sum(file.size for file in files)
    # rows that a plan keeps beside the table are in no file
    in_files = all(file.footer for file in files)
    checksum = f"{_digest({f.types for f in files})}.{_digest([f.footer for f in files])}" if in_files else ""
    return StoredBatch(handle, n_updates, size, micros(least), micros(greatest), checksum)


def _digest(parts: Iterable[str]) -> str:
    """A digest of parts whose order does not matter; of one part, it is the part itself."""
    ordered = sorted(parts)
    return ordered[0] if len(ordered) == 1 else hashlib.sha256(" ".join(ordered).encode()).hexdigest()[:16]
