"""One commit to a Delta table by `deltalake`: on the newest version, or not at all.

`deltalake` creates a version only where there is none, and so does Spark in the sessions that write a lake (decision
0017). Of two commits that meet, one is made, and the other is tried again on the version of the first.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tenacity import RetryError, Retrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from spark_jobs.errors import TidemarkError
from spark_jobs.storage.delta.checksums import write_checksum, write_file_checksums
from spark_jobs.storage.delta.delta_log import open_anew
from spark_jobs.storage.delta.fences import Fence
from spark_jobs.storage.delta.fingerprints import NOTED
from spark_jobs.storage.delta.places import TableHandle

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable

TRIED_FOR_S = 300.0
"""The seconds for which a commit is tried whose version another commit took each time. Each failed try means that
another one succeeded."""
FIRST_WAIT_S, LONGEST_WAIT_S = 0.02, 5.0
"""Bounds of the wait before a try: it is random, up to the first bound, then twice that and so on up to the second. So
of many that commit at once, few meet again."""


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
    waits = wait_random_exponential(FIRST_WAIT_S, LONGEST_WAIT_S)
    tries = Retrying(retry=retry_if_exception_type(CommitFailedError), wait=waits, stop=stop_after_delay(TRIED_FOR_S))
    try:
        return tries(_try, handle, fence, lambda table: write(table, properties))
    except RetryError:
        raise CommitsContended(
            expected=f"a commit to {handle.uri} within {TRIED_FOR_S:g} s",
            found="other commits each time",
            consequence="this commit was not made; its rows are not visible",
            next_step="do the same again; if it happens again, find out who else writes to the table all the time",
            table=handle.uri,
        ) from None


def _try(handle: TableHandle, fence: Fence | None, write: Callable[[DeltaTable], None]) -> bool:
    """One try of a commit, on the newest version; true if it was made."""
    table = open_anew(handle)
    if fence is not None and (table.transaction_version(fence.app_id) or 0) >= fence.token:
        return False
    following = table.version() + 1
    write(table)
    # on S3 the requests for a checksum would take as long as the job that it saves
    if handle.is_local:
        write_checksum(Path(handle.uri), following)
        write_file_checksums(Path(handle.uri), following)
    return True
