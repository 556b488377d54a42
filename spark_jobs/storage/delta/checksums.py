"""The checksums that Spark and Hadoop keep beside a Delta table on a local disk, for commits that `deltalake` makes.

The checksum of a version has the number of its files and bytes, its protocol and its columns. Delta's protocol
describes it ("Version Checksum File"). Spark writes one with each of its commits, `deltalake` writes none. Without it,
each Spark session that meets the version runs a job to compute it. The checksum also lets `tidemark doctor` notice that
the newest version was lost.

The checksum of a file has a CRC-32 for each block, in Hadoop's format (`.NAME.crc`). Spark compares it whenever it
reads the file. `tidemark doctor --deep` compares it for all files, the audit for some. It reveals a changed file that
is still valid Parquet.
"""

from __future__ import annotations

import json
import os
import threading
import zlib
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from spark_jobs.storage.delta.log_files import LOG_DIR, parse_commit, version_file
from spark_jobs.threads import in_threads

_NAMED = {"txn": ("setTransactions", "appId"), "domainMetadata": ("domainMetadata", "domain")}
"""Actions of which only the last one with a name counts: the name of their list in a checksum, and the key of the
name."""
_MOST = 200
"""The most versions after the last checksum that are read to compute a new one. After more of them, none is written."""


_BLOCK_BYTES = 1 << 14
"""Bytes of a file that one CRC-32 covers. Hadoop reads this number from the head of the checksum file; its own is
512."""


def write_file_checksums(table: Path, version: int) -> None:
    """Write the checksums of the commit of a version and of the data files that it adds."""
    commit = table / LOG_DIR / version_file(version)
    if not commit.exists():
        return  # there was nothing to commit
    actions = parse_commit(commit.read_bytes(), version)
    added = [table / unquote(action["add"]["path"]) for action in actions if "add" in action]
    # a file that another process has removed meanwhile needs none
    in_threads(_write_file_checksum, [file for file in (commit, *added) if file.exists()])


def _write_file_checksum(file: Path) -> None:
    beside = file.with_name(f".{file.name}.crc")
    with file.open("rb") as content:
        blocks = iter(lambda: content.read(_BLOCK_BYTES), b"")
        sums = b"".join(zlib.crc32(block).to_bytes(4, "big") for block in blocks)
    written = file.with_name(f".{file.name}.crc.{os.getpid()}.{threading.get_ident()}")
    written.write_bytes(b"crc\0" + _BLOCK_BYTES.to_bytes(4, "big") + sums)
    written.replace(beside)


def write_checksum(table: Path, version: int) -> bool:
    """Write the checksum of a version, computed from the last checksum and the commits since; returns true if it was
    written.

    It is not written if a commit in between is gone, or lacks the bytes of a file that it removes. Checksums of earlier
    versions are removed after the write: nothing reads them any more.
    """
    log = table / LOG_DIR
    before = sorted(path for path in log.glob("*.crc") if path.stem.isdigit() and int(path.stem) < version)
    if not before or version - int(before[-1].stem) > _MOST:
        return False
    try:
        checksum = _next_checksum(json.loads(before[-1].read_text()), log, int(before[-1].stem) + 1, version)
    except (OSError, ValueError, KeyError, TypeError):
        return False
    written = log / f".{version_file(version, 'crc')}.{os.getpid()}.{threading.get_ident()}"
    written.write_text(json.dumps(checksum))
    written.replace(log / version_file(version, "crc"))
    for path in before:
        path.unlink(missing_ok=True)
    return True


def _next_checksum(checksum: dict[str, Any], log: Path, first: int, last: int) -> dict[str, Any]:
    """The checksum after the commits `first` to `last`."""
    size, files = checksum["tableSizeBytes"], checksum["numFiles"]
    described = {"metaData": checksum["metadata"], "protocol": checksum["protocol"]}
    # Delta computes the whole state to read either list, too; a checksum without these lists stays without them
    named = {
        kind: {each[key]: each for each in checksum[stated]}
        for kind, (stated, key) in _NAMED.items()
        if checksum.get(stated) is not None
    }
    for version in range(first, last + 1):
        for actions in parse_commit((log / version_file(version)).read_bytes(), version):
            for kind, action in actions.items():
                if kind == "add":
                    size, files = size + action["size"], files + 1
                elif kind == "remove":
                    size, files = size - action["size"], files - 1
                elif kind in described:
                    described[kind] = action
                elif kind in named:
                    key = action[_NAMED[kind][1]]
                    named[kind].pop(key, None)
                    if not action.get("removed"):
                        named[kind][key] = action
    return {
        "tableSizeBytes": size, "numFiles": files, "numMetadata": 1, "numProtocol": 1,
        "metadata": described["metaData"], "protocol": described["protocol"],
        **{_NAMED[kind][0]: [*actions.values()] for kind, actions in named.items()},
    }  # fmt: skip
