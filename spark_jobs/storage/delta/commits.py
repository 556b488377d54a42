"""One commit to a Delta table by `deltalake`: on the newest version, or not at all.

`deltalake` creates a version only where there is none, and so does Spark in the sessions that write a lake (decision
0017). Of two commits that meet, one is made, and the other is tried again on the version of the first.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from spark_jobs.errors import TidemarkError
from spark_jobs.storage.delta.checksums import write_checksum, write_file_checksums
from spark_jobs.storage.delta.delta_log import open_anew
from spark_jobs.storage.delta.fences import Fence
from spark_jobs.storage.delta.fingerprints import NOTED
from spark_jobs.storage.delta.places import TableHandle

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable

ATTEMPTS = 100
"""The most tries of a commit whose version another commit took each time. Each failed try means that another one
succeeded."""


class CommitsContended(TidemarkError):
    """Others committed to a table so often that a commit never got its version. Facts: `table`."""

    code = "commits_contended"


def commit(
    handle: TableHandle,
    fence: Fence | None,
    write: Callable[[DeltaTable, CommitProperties], None],
) -> bool:
    """Make one commit on the newest version, or on the one that another commit has made meanwhile; returns true if it
    was made. Under a fence it is not made if this token or a newer one has committed.

    Raises:
        CommitsContended: others committed all the time.
    """
    from deltalake import CommitProperties, Transaction
    from deltalake.exceptions import CommitFailedError

    transactions = None if fence is None else [Transaction(fence.app_id, fence.token)]
    # without retries of `deltalake`, a commit makes the version after the one that was read, or fails
    properties = CommitProperties(NOTED, max_commit_retries=0, app_transactions=transactions)
    for _ in range(ATTEMPTS):
        table = open_anew(handle)
        if fence is not None and (table.transaction_version(fence.app_id) or 0) >= fence.token:
            return False
        following = table.version() + 1
        try:
            write(table, properties)
        except CommitFailedError:
            continue
        # on S3 the requests for a checksum would take as long as the job that it saves
        if handle.is_local:
            write_checksum(Path(handle.uri), following)
            write_file_checksums(Path(handle.uri), following)
        return True
    raise CommitsContended(
        expected=f"a commit to {handle.uri} within {ATTEMPTS} tries",
        found="other commits each time",
        consequence="this one was not made; what it would have made visible is not",
        next_step="do the same again; if it happens again, find out who else writes to the table all the time",
        table=handle.uri,
    )
