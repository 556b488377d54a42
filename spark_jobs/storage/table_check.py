"""Is every Delta table under the lake whole? A check of the files alone, without Spark, that changes nothing.

Checked for each table: the log's versions have no hole, from the last checkpoint or from 0; every commit and
checkpoint can be parsed; every data file of the present version exists with the size that the log says. A deep check
also reads every data file against its checksums, so it costs a full read; commits are always read so.

Not checked: files that no version names, older versions, and what is left of a table whose creation was stopped.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from spark_jobs.storage.delta_log import LOG_DIR, is_unfinished, version_file


@dataclass(frozen=True, slots=True)
class Damage:
    """What is wrong with a table: its folder relative to the lake, the file, and the finding."""

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
            files = _present_files(log)
        except _Broken as broken:
            yield Damage(name, broken.file, broken.finding)
            continue
        for path, size in sorted(files.items()):
            finding = _finding(table / path, size, deep=deep)
            if finding:
                yield Damage(name, path, finding)


class _Broken(Exception):
    """The log itself cannot be read."""

    def __init__(self, file: str, finding: str) -> None:
        super().__init__(f"{file}: {finding}")
        self.file, self.finding = file, finding


def _present_files(log: Path) -> dict[str, int]:
    """Path → size in bytes of each data file of the present version."""
    start, files = _from_checkpoint(log)
    versions = sorted(int(file.stem) for file in log.glob("*.json") if file.stem.isdigit())
    later = [version for version in versions if version > start]
    expected = list(range(start + 1, start + 1 + len(later)))
    if later != expected:
        missing = next(want for want, found in zip(expected, later, strict=True) if want != found)
        raise _Broken(f"{LOG_DIR}/{version_file(missing)}", "is missing, later versions exist")
    if not later and start < 0:
        raise _Broken(LOG_DIR, "holds no version")
    last, written = max([start, *later]), _last_written(log)
    if written > last:
        raise _Broken(f"{LOG_DIR}/{version_file(written)}", "is missing, its checksum exists")
    for version in later:
        for action in _commit(log, version):
            _apply(action, files)
    return files


def _last_written(log: Path) -> int:
    """The greatest version that has left a checksum beside its commit."""
    checksums = [file.name.lstrip(".").split(".")[0] for file in log.glob("*.crc")]
    return max((int(digits) for digits in checksums if digits.isdigit()), default=-1)


def _from_checkpoint(log: Path) -> tuple[int, dict[str, int]]:
    """The version and files of the last classic checkpoint, or (-1, {})."""
    checkpoints = sorted(log.glob("*.checkpoint.parquet"))
    if not checkpoints:
        return -1, {}
    newest = checkpoints[-1]
    try:
        with pq.ParquetFile(newest) as content:
            added = content.read(columns=["add.path", "add.size"]).column("add").to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise _Broken(f"{LOG_DIR}/{newest.name}", f"cannot be read: {str(error)[:120]}") from error
    files = {unquote(row["path"]): row["size"] for row in added if row and row["path"] is not None}
    return int(newest.name.split(".")[0]), files


def _commit(log: Path, version: int) -> Iterator[dict[str, Any]]:
    name = version_file(version)
    if finding := _by_sidecar(log / name):
        raise _Broken(f"{LOG_DIR}/{name}", finding)
    try:
        lines = (log / name).read_text(encoding="utf-8").splitlines()
        yield from (json.loads(line) for line in lines if line)
    except ValueError as error:
        raise _Broken(f"{LOG_DIR}/{name}", f"cannot be read: {error}") from error


def _apply(action: dict[str, Any], files: dict[str, int]) -> None:
    if "add" in action:
        files[unquote(action["add"]["path"])] = action["add"]["size"]
    elif "remove" in action:
        files.pop(unquote(action["remove"]["path"]), None)


def _finding(file: Path, size: int, *, deep: bool) -> str | None:
    try:
        found = file.stat().st_size
    except FileNotFoundError:
        return "is missing"
    if found != size:
        return f"has {found} bytes, the log says {size}"
    return (_by_sidecar(file) or _by_pages(file)) if deep else None


def _by_sidecar(file: Path) -> str | None:
    """Compare a file with the CRC-32 per block that Hadoop keeps beside it on a local disk."""
    sidecar = file.with_name(f".{file.name}.crc")
    if not sidecar.exists():
        return None
    stored = sidecar.read_bytes()
    block_bytes = int.from_bytes(stored[4:8], "big")
    with file.open("rb") as content:
        for index, start in enumerate(range(8, len(stored), 4)):
            if zlib.crc32(content.read(block_bytes)) != int.from_bytes(stored[start : start + 4], "big"):
                return f"differs from its checksum between bytes {index * block_bytes} and {(index + 1) * block_bytes}"
    return None


def _by_pages(file: Path) -> str | None:
    """Read every page of a Parquet file against its own checksum."""
    try:
        with pq.ParquetFile(file, page_checksum_verification=True) as content:
            for _ in content.iter_batches():
                pass
    except (pa.ArrowException, OSError) as error:
        return f"cannot be read: {str(error)[:120]}"
    return None
