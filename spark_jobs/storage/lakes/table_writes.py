"""Writes to the tables in a folder, without a Spark job, for every lake that writes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.storage.delta.fences import Fence, Superseded
from spark_jobs.storage.delta.file_commits import append_files, destination
from spark_jobs.storage.delta.records import Rows, append_next_records, append_records, replace_records
from spark_jobs.storage.delta.rewriting import Change, Rewritten, renames, rewrite_rows
from spark_jobs.storage.delta.written_files import Destination, Layout, WrittenFile
from spark_jobs.storage.descriptions.people_tables import DISMISSALS
from spark_jobs.storage.descriptions.schema import Table
from spark_jobs.storage.descriptions.tables import DUPLICATES, FILES, QUARANTINE
from spark_jobs.storage.lakes.lake import CommittingCatalog
from spark_jobs.storage.lakes.table_files import TableFiles


def _superseded_error(table: Table, fence: Fence | None) -> Superseded:
    assert fence is not None, "without a fence nothing is skipped"
    return Superseded(
        expected=f"attempt {fence.token} of {fence.source} to be its newest",
        found=f"a commit to {table.qualified} under this token or a greater one",
        consequence="the writes of this attempt do not count; published tables read as the other attempt left them",
        next_step="nothing, if another run is at work on the source; else start this run again",
        source=fence.source,
        token=fence.token,
    )


class TableWrites(TableFiles):
    """Reads and writes of the tables in a folder. Each write is one Delta commit."""

    def __init__(self) -> None:
        self._commits = 0

    @property
    @abstractmethod
    def catalog(self) -> CommittingCatalog:
        """The catalog of the tables."""

    @property
    def commits(self) -> int:
        """Delta commits made through this object, for the run's report."""
        return self._commits + self.catalog.commits

    def record(self, table: Table, rows: Rows, fence: Fence | None = None) -> None:
        """Append rows to a table of records, in one commit.

        Raises:
            Superseded: an attempt with this token or a newer one has committed to it.
        """
        if not append_records(self.folder.handle(table), rows, fence):
            raise _superseded_error(table, fence)
        self._commits += 1

    def record_next(self, table: Table, where: pc.Expression, rows_after: Callable[[Rows], Rows]) -> None:
        """Append the rows that follow from those that meet `where`, in one commit; see `append_next_records`."""
        append_next_records(self.folder.handle(table), where, rows_after)
        self._commits += 1

    def destination(self, table: Table, layout: Layout = Layout()) -> Destination:  # noqa: B008
        """The destination of new files of the table, for any process that writes them."""
        return destination(self.folder.handle(table), table.partitions, table.skipping, layout)

    def append_files(self, table: Table, files: Sequence[WrittenFile]) -> None:
        """Append files that are written already, without a fence: one commit, and no Spark job."""
        append_files(self.folder.handle(table), files)
        self._commits += 1

    def replace_files(self, table: Table, files: Sequence[WrittenFile], column: str, values: Sequence[str]) -> None:
        """Make written files part of the table, and drop the partitions whose `column` is one of `values`, in one
        commit; no commit if there is neither."""
        if files or values:
            append_files(self.folder.handle(table), files, dropped=(column, values))
            self._commits += 1

    def move_files(self, source: str, moved: Mapping[str, str]) -> None:
        """Replace the paths of a source's landed files by their new ones in all tables that name them. The ledger is
        the last, so that an interrupted move is noticed."""
        for table, column in ((QUARANTINE, "file"), (DUPLICATES, "file"), (DISMISSALS, "file"), (FILES, "path")):
            if self.folder.is_stored(table.database, table.table):
                self.rewrite(table, renames(column, moved), [column], source=source)

    def rewrite(
        self,
        table: Table,
        change: Change,
        looked_at: Sequence[str],
        *,
        source: str | None = None,
        below: tuple[str, Any] | None = None,
        more: pa.Table | None = None,
        files: Sequence[WrittenFile] = (),
        layout: Layout = Layout(),  # noqa: B008
    ) -> Rewritten:
        """Change rows by rewriting the files that have them; with `source`, only its files in a shared table. See
        `storage.delta.rewriting`."""
        where = None if source is None else {"source": source}
        to = self.destination(table, layout)
        result = rewrite_rows(to, change, looked_at=looked_at, where=where, below=below, more=more, files=files)
        self._commits += bool(result.files or more is not None or files)
        return result

    def replace_record(self, table: Table, row: dict[str, Any], fence: Fence) -> None:
        """Replace the rows of the fence's source in a table of records by `row`, in one commit.

        Raises:
            Superseded: as `record`.
        """
        self.replace_records(table, [row], fence)

    def replace_records(self, table: Table, rows: Rows, fence: Fence) -> None:
        """Replace the rows of the fence's source in a table of records by `rows`, in one commit.

        Raises:
            Superseded: as `record`.
        """
        if not replace_records(self.folder.handle(table), rows, fence):
            raise _superseded_error(table, fence)
        self._commits += 1

    def delete_tokens(self, table: Table, tokens: Sequence[int], source: str | None) -> None:
        """Remove the rows that were written under these tokens; with `source`, only its rows in a shared table."""
        given_up = pa.array(tokens, pa.int64())

        def keep_others(rows: pa.Table) -> pa.Table | None:
            of_tokens = pc.is_in(rows["token"], value_set=given_up)
            return rows.filter(pc.invert(of_tokens)) if pc.any(of_tokens).as_py() else None

        self.rewrite(table, keep_others, ["token"], source=source)
