"""Fingerprints of tables: the state of each table that a publication rests on, and a table's changes since.

A Delta log whose newest commit is gone reads as the table was before, and whoever can write files can commit to it. So
for each table a publication notes the version, the checksum of that version's commit, and the rows. Later the commit
must be there, with the same bytes, and each commit after it that changes rows must be Tidemark's own.

Cost: the commit of the noted version is read, and those that came after it: one small file a table after a whole run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.storage.delta.delta_log import open_table
from spark_jobs.storage.delta.log_files import LogBroken, newest_version, parse_commit, read_commit
from spark_jobs.storage.delta.places import TableHandle
from spark_jobs.storage.descriptions.sql import literal

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

COMMIT_NOTE = "tidemark"
"""The `userMetadata` of each commit of Tidemark's."""
NOTED = {"userMetadata": COMMIT_NOTE}
"""The same as an option of a writer: of Spark's, or of `deltalake`'s as metadata of a commit."""
NOTED_SQL = {"spark.databricks.delta.commitInfo.userMetadata": COMMIT_NOTE}
"""The same as a setting of a session, for statements."""

_MOST = 1000
"""The most commits of a table that are read. Where others share it, a source that has not run for long has more of
theirs."""


def of_source(source: str) -> str:
    """SQL condition: a row of a shared table is one of `source`."""
    return f"source = {literal(source)}"


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """A table's newest version, the SHA-256 of its commit, and the number of its rows (in a shared table, of one
    source). `rows` is None if the log has no count for a file."""

    version: int
    commit: str
    rows: int | None


Fingerprints = Mapping[str, Fingerprint]
"""Fingerprints by the qualified names of their tables."""


def to_json(fingerprints: Fingerprints) -> str:
    """The fingerprints as one line of JSON; `from_json` gives an equal value."""
    return json.dumps({table: asdict(of) for table, of in sorted(fingerprints.items())}, separators=(",", ":"))


def from_json(text: str | None) -> dict[str, Fingerprint]:
    """The fingerprints in a text of `to_json`; empty if a publication of an older version of Tidemark has none."""
    return {table: Fingerprint(**of) for table, of in json.loads(text or "{}").items()}


def take_fingerprint(handle: TableHandle, source: str, before: Fingerprint | None) -> Fingerprint:
    """The fingerprint of a table now.

    `source`: only its rows count in a shared table. `before`: an earlier fingerprint, which saves work if commits since
    have only added files.

    Raises:
        CommitLost, LogDamaged: the log can't be read.
        deltalake.exceptions.TableNotFoundError: there is no table.
    """
    system = handle.files()
    if before is not None and (extended := _extend(system, source, before)) is not None:
        return extended
    table = open_table(handle)
    version = table.version()
    return Fingerprint(version, _checksum(read_commit(system, version)), _rows_at(handle, source, version))


def miscount(handle: TableHandle, source: str, noted: Fingerprint) -> str | None:
    """The log's count of rows at the noted version and that of `noted`, in words, if they differ. None if they agree,
    or can't be compared since the log no longer has that version."""
    from deltalake.exceptions import DeltaError

    system = handle.files()
    if noted.rows is None or noted.version not in dict(_commits_from(system, noted.version)):
        return None
    try:
        rows = _rows_at(handle, source, noted.version)
    except DeltaError:
        return None  # commits before that version went with their checkpoint
    return (
        None if rows == noted.rows else f"version {noted.version} has {rows} rows, the publication noted {noted.rows}"
    )


def _extend(system: FileSystem, source: str, before: Fingerprint) -> Fingerprint | None:
    """`before` with the rows that later commits added; None if one of them did more, or `before` is not in the log."""
    commits = dict(_commits_from(system, before.version))
    if before.version not in commits or _checksum(commits[before.version]) != before.commit or before.rows is None:
        return None
    if len(commits) == _MOST:
        return None
    rows = before.rows
    for version in sorted(commits)[1:]:
        try:
            added = _rows_added(parse_commit(commits[version], version), source)
        except LogBroken:
            return None
        if added is None:
            return None
        rows += added
    newest = max(commits)
    return Fingerprint(newest, _checksum(commits[newest]), rows)


def _rows_at(handle: TableHandle, source: str, version: int) -> int | None:
    """The number of rows of a version, by the log's own counts; None if a file has no count."""
    listed = pa.table(open_table(handle, version).get_add_actions(flatten=True))
    if "partition.source" in listed.column_names:
        listed = listed.filter(pc.equal(listed["partition.source"], source))
    counts = listed["num_records"]
    return None if counts.null_count else int(pc.sum(counts).as_py() or 0)


def _rows_added(actions: list[dict[str, Any]], source: str) -> int | None:
    """The number of rows that a commit added; None if it removed some, or has no count."""
    rows = 0
    for action in actions:
        if not _touches(action, source):
            continue
        if "add" not in action:
            return None
        stats = json.loads(action["add"].get("stats") or "{}")
        if "numRecords" not in stats:
            return None
        rows += int(stats["numRecords"])
    return rows


def change_since(handle: TableHandle, source: str, noted: Fingerprint) -> str | None:
    """The loss of commits since `noted`, or a change by others, of a table, in words; None if there is
    neither.

    In a shared table, only changes of rows of `source` count.
    """
    system = handle.files()
    try:
        newest = newest_version(system)
        if newest < 0:
            return "its log is gone"
        if newest < noted.version:
            return f"it ends at version {newest}: commits up to version {noted.version} are gone"
        commits = dict(_commits_from(system, noted.version))
        if noted.version not in commits:
            return None  # Delta removes old commits from a log that has a later checkpoint
        if _checksum(commits[noted.version]) != noted.commit:
            return f"the commit of version {noted.version} is empty or another one"
        return _foreign_change(commits, noted.version, source)
    except LogBroken as broken:
        return str(broken)


def _foreign_change(commits: Mapping[int, bytes], first: int, source: str) -> str | None:
    """The newest change of rows since version `first` that others made and nobody has undone; None if there is none."""
    changes: dict[int, str | None] = {first: None}
    for version in sorted(commits)[1:]:
        actions = parse_commit(commits[version], version)
        info: dict[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
        changes[version] = changes[version - 1]
        touched = [action for action in actions if _touches(action, source)]
        if info.get("userMetadata") == COMMIT_NOTE:
            # all rows of the source were replaced, so no change by others is left
            if info.get("operationParameters", {}).get("predicate") == of_source(source):
                changes[version] = None
        elif info.get("operation") == "RESTORE":
            restored = int(info.get("operationParameters", {}).get("version") or -1)
            if touched:
                changes[version] = changes.get(restored, f"version {version} restored one before the publication")
        elif touched:
            changes[version] = f"version {version} ({info.get('operation', 'unknown')}) was not made by Tidemark"
    return changes[max(changes)]


def _touches(action: Mapping[str, Any], source: str) -> bool:
    """True if an action of a commit changes rows; in a shared table, rows of `source`."""
    file = action.get("add") or action.get("remove")
    if file is None or file.get("dataChange") is False:
        return False
    partition = file.get("partitionValues") or {}
    return bool(partition.get("source", source) == source)


def _commits_from(system: FileSystem, first: int) -> Iterator[tuple[int, bytes]]:
    """The commits from version `first` on, with their bytes, up to the first missing one; `_MOST` at most."""
    for version in range(first, first + _MOST):
        try:
            yield version, read_commit(system, version)
        except FileNotFoundError:
            return


def _checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
