"""A table's log, read commit by commit without a library: the files of the newest version, or the damage of the log.

The library ignores some damage (an empty commit) and names no file for other damage. This reader names the file. It
shares nothing with the readers of rows, since it is used to check them.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

LOG_DIR = "_delta_log"
"""The folder of the log in a table's folder."""
_VERSION_DIGITS = 20
_CHECKPOINT = ".checkpoint.parquet"
_OF_ADD = ["add.path", "add.size", "add.partitionValues", "add.stats"]


@dataclass(frozen=True, slots=True)
class LoggedFile:
    """A data file as the log describes it: bytes, the values of its partition columns, and Delta's statistics, which
    are empty where the log has none."""

    size: int
    partition: Mapping[str, str | None] = field(default_factory=dict)
    stats: Mapping[str, Any] = field(default_factory=dict)


class LogBroken(Exception):
    """The log can't be read. `file`: the path of the damage in the table's folder; `is_lost`: true if that file is the
    newest commit, and missing."""

    def __init__(self, file: str, finding: str, *, is_lost: bool = False) -> None:
        super().__init__(f"{file} {finding}")
        self.file, self.finding, self.is_lost = file, finding, is_lost


def version_file(version: int, suffix: str = "json") -> str:
    """The name of a version's commit in the log, or of its checksum (`crc`).

    Source: Delta's protocol, "Delta Log Entries" and "Version Checksum File".
    """
    return f"{version:0{_VERSION_DIGITS}d}.{suffix}"


def files_of_log(system: FileSystem) -> dict[str, LoggedFile]:
    """The data files of a table's newest version, by path; `system` is the file system of the table's folder.

    Raises:
        LogBroken: a commit is missing, empty or no JSON, or a checkpoint can't be read.
    """
    names = _names(system)
    later = _later_versions(names)
    start, files = _from_checkpoint(system, names)
    if not later and start < 0:
        raise LogBroken(LOG_DIR, "holds no version")
    last, written = max([start, *later]), _last_written(names)
    if written > last:
        raise LogBroken(f"{LOG_DIR}/{version_file(written)}", "is missing, its checksum exists", is_lost=True)
    for version in later:
        for action in _commit(system, version, names):
            _apply(action, files)
    return files


def read_commit(system: FileSystem, version: int) -> bytes:
    """The bytes of a version's commit.

    Raises:
        FileNotFoundError: there is none.
    """
    with system.open_input_file(f"{LOG_DIR}/{version_file(version)}") as file:
        content: bytes = file.read()
    return content


def newest_version(system: FileSystem) -> int:
    """The greatest version of the log's commits and checkpoints; -1 for an empty or missing log. It lists the log's
    folder once.

    Raises:
        LogBroken: a commit since the last checkpoint is missing or empty.
    """
    names = _names(system)
    return max([*_later_versions(names), *_versions(names, _CHECKPOINT)], default=-1)


def _later_versions(names: Mapping[str, int]) -> list[int]:
    """The versions since the last checkpoint, each with a commit that is not empty."""
    start = max(_versions(names, _CHECKPOINT), default=-1)
    later = sorted(v for v in _versions(names, ".json") if v > start)
    expected = list(range(start + 1, start + 1 + len(later)))
    if later != expected:
        missing = next(want for want, present in zip(expected, later, strict=True) if want != present)
        raise LogBroken(f"{LOG_DIR}/{version_file(missing)}", "is missing, later versions exist")
    for name in map(version_file, later):
        if not names[name]:
            raise LogBroken(f"{LOG_DIR}/{name}", "is empty")
    return later


def parse_commit(content: bytes, version: int) -> list[dict[str, Any]]:
    """The actions of a version's commit.

    Raises:
        LogBroken: the commit is empty or no JSON.
    """
    path = f"{LOG_DIR}/{version_file(version)}"
    try:
        # a text may have other separators of lines, such as U+0085 and U+2028, as they are
        actions = [json.loads(line) for line in content.decode().split("\n") if line]
    except ValueError as error:
        raise LogBroken(path, f"cannot be read: {error}") from error
    if not actions or not all(isinstance(action, dict) for action in actions):
        raise LogBroken(path, "is empty" if not actions else "cannot be read: no JSON objects")
    return actions


def _names(system: FileSystem) -> dict[str, int]:
    """Name -> bytes of each file of the log."""
    from pyarrow.fs import FileSelector

    listed = system.get_file_info(FileSelector(LOG_DIR, allow_not_found=True))
    return {file.base_name: file.size for file in listed}


def _versions(names: Mapping[str, int], suffix: str) -> list[int]:
    stems = (name.removesuffix(suffix) for name in names if name.endswith(suffix))
    return [int(stem) for stem in stems if stem.isdigit()]


def _last_written(names: Mapping[str, int]) -> int:
    """The greatest version that has left a checksum beside its commit."""
    stems = (name.lstrip(".").split(".")[0] for name in names if name.endswith(".crc"))
    return max((int(stem) for stem in stems if stem.isdigit()), default=-1)


def _from_checkpoint(system: FileSystem, names: Mapping[str, int]) -> tuple[int, dict[str, LoggedFile]]:
    """The version and files of the last classic checkpoint, or (-1, {})."""
    version = max(_versions(names, _CHECKPOINT), default=-1)
    if version < 0:
        return -1, {}
    path = f"{LOG_DIR}/{version_file(version, _CHECKPOINT[1:])}"
    try:
        with system.open_input_file(path) as file:
            added = pq.ParquetFile(file).read(columns=_OF_ADD).column("add").to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise LogBroken(path, f"cannot be read: {str(error)[:120]}") from error
    present = (row for row in added if row and row["path"] is not None)
    return version, {unquote(row["path"]): _logged_file(row) for row in present}


def _commit(system: FileSystem, version: int, names: Mapping[str, int]) -> list[dict[str, Any]]:
    name = version_file(version)
    content = read_commit(system, version)
    if f".{name}.crc" in names:
        with system.open_input_file(f"{LOG_DIR}/.{name}.crc") as file:
            finding = differs(content, file.read())
        if finding:
            raise LogBroken(f"{LOG_DIR}/{name}", finding)
    return parse_commit(content, version)


def _apply(action: Mapping[str, Any], files: dict[str, LoggedFile]) -> None:
    if "add" in action:
        files[unquote(action["add"]["path"])] = _logged_file(action["add"])
    elif "remove" in action:
        files.pop(unquote(action["remove"]["path"]), None)


def _logged_file(add: Mapping[str, Any]) -> LoggedFile:
    # a map, or the pairs that Parquet has of one
    return LoggedFile(int(add["size"]), dict(add.get("partitionValues") or {}), json.loads(add.get("stats") or "{}"))


def differs(content: bytes, checksums: bytes) -> str | None:
    """The first block of a file that differs from its checksum, in words; None if all agree. `checksums`: the CRC-32
    per block that Hadoop keeps beside the file on a local disk."""
    block_bytes = int.from_bytes(checksums[4:8], "big")
    for index, start in enumerate(range(8, len(checksums), 4)):
        first, past = index * block_bytes, (index + 1) * block_bytes
        if zlib.crc32(content[first:past]) != int.from_bytes(checksums[start : start + 4], "big"):
            return f"differs from its checksum between bytes {first} and {past}"
    return None
