"""A check whether every Delta table under the lake is whole: of the files alone, without Spark, changing nothing.

It checks for each table that the log's versions have no hole, from the last checkpoint or from 0; that every commit and
checkpoint can be parsed; and that every data file of the present version exists with its size in the log. A deep check
also reads every data file against its checksums, so it costs a full read. Commits are always read so.

Not checked: files that no version names, older versions, and the remains of a table whose creation was stopped.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from spark_jobs.storage.delta.data_files import damage_of_file
from spark_jobs.storage.delta.delta_log import is_unfinished
from spark_jobs.storage.delta.log_files import LOG_DIR, LogBroken, differs, files_of_log
from spark_jobs.storage.delta.places import file_system


@dataclass(frozen=True, slots=True)
class Damage:
    """The damage of a table: its folder relative to the lake, the file, and the finding."""

    table: str
    file: str
    finding: str


def damaged_tables(lake: Path, *, deep: bool = False) -> Iterator[Damage]:
    """All damage under the lake, table by table."""
    for log in sorted(lake.rglob(LOG_DIR)):
        table = log.parent
        if is_unfinished(table):
            continue
        name = str(table.relative_to(lake))
        try:
            files = files_of_log(file_system(str(table), {}))
        except LogBroken as broken:
            yield Damage(name, broken.file, broken.finding)
            continue
        for path, logged in sorted(files.items()):
            finding = _finding(table / path, logged.size, deep=deep)
            if finding:
                yield Damage(name, path, finding)


def _finding(file: Path, size: int, *, deep: bool) -> str | None:
    try:
        n_bytes = file.stat().st_size
    except FileNotFoundError:
        return "is missing"
    if n_bytes != size:
        return f"has {n_bytes} bytes, the log says {size}"
    if not deep:
        return None
    return _by_sidecar(file) or damage_of_file(file_system(str(file.parent), {}), file.name)


def _by_sidecar(file: Path) -> str | None:
    """Compare a file with the checksums that Hadoop, or our writer, keeps beside it on a local disk."""
    sidecar = file.with_name(f".{file.name}.crc")
    return differs(file.read_bytes(), sidecar.read_bytes()) if sidecar.exists() else None
