"""The contracts of a lake: of its readers, of the lake that a stage gets, and of the catalog beside it.

Everything that a stage writes is an append or the replacement of one source's partition, under the attempt's fence.
Nothing here decides which rows are visible: that is `trace.published` (see `storage.names.views`).

Implementations: `spark_lake.SparkLake` writes Delta tables; `file_lake.FileLake` writes them without Spark, for trying
and for tests; `overlay.OverlayLake` wraps a lake, and keeps the writes of a plan; `stored_lake.StoredLake` and the
portal's `HeldLake` only read files.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

from spark_jobs.errors import TidemarkError
from spark_jobs.storage.delta.data_files import StoredRows
from spark_jobs.storage.delta.fences import Fence
from spark_jobs.storage.delta.file_summaries import FileSummary
from spark_jobs.storage.delta.places import LakeFolder
from spark_jobs.storage.delta.records import Rows
from spark_jobs.storage.delta.rewriting import Change, Rewritten
from spark_jobs.storage.delta.written_files import Destination, Layout, WrittenFile
from spark_jobs.storage.descriptions.schema import Column, Table

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyspark.sql import DataFrame, SparkSession


class Names(Protocol):
    """The names of the tables that a lake has."""

    def names_if_present(self, database: str) -> set[str]:
        """Tables and views of a database; empty for a database that does not exist yet."""


class Catalog(Names, Protocol):
    """Databases, tables, views and functions by name, and the columns that tables have."""

    def databases(self) -> set[str]:
        """The names of the databases that exist."""

    def names(self, database: str) -> set[str]:
        """Tables and views of a database."""

    def views(self, database: str) -> set[str]:
        """Views of a database."""

    def names_in(self, databases: Collection[str]) -> dict[str, set[str]]:
        """`names` of each database."""

    def ensure(self, databases: dict[str, str], tables: list[Table]) -> list[Table]:
        """Create the missing databases (name -> comment) and tables; returns the tables that were missing. Others stay
        as they are. The last table is created once all others exist."""

    def define(self, statement: str) -> None:
        """Create or replace a database, table, view or function."""

    def missing_columns(self, tables: Sequence[Table]) -> dict[Table, list[Column]]:
        """The columns that existing tables lack, or have with a narrower type, by table; tables without such columns
        are left out.

        Raises:
            TableDiffers: a column has another type, whose values do not all fit into the wanted type.
        """

    def widen(self, tables: Sequence[Table]) -> None:
        """Add the columns that existing tables lack, filled by their `filled`, and give the wider type to those with a
        narrower one.

        Raises:
            TableDiffers: a column has another type, or values that do not fit into the wider one.
        """

    def check_identity(self, table: Table) -> None:
        """Refuse an existing table whose rows are identified by other columns.

        Raises:
            TableDiffers: they are.
        """


class CommittingCatalog(Catalog, Protocol):
    """A catalog that counts its commits."""

    commits: int
    """Delta commits that widened tables, made through this object."""


class RecordReader(Protocol):
    """Reads of tables of records."""

    def records(self, table: Table, where: pc.Expression | None = None) -> Rows:
        """Rows of a table of records; none of a table that does not exist yet.

        Raises:
            RecordsLost: the catalog has the table, and its folder or log is gone.
        """


class RecordTables(RecordReader, Protocol):
    """Tables of records that are read, and appended to by compare and set."""

    def record_next(self, table: Table, where: pc.Expression, rows_after: Callable[[Rows], Rows]) -> None:
        """Append the rows that follow from those that meet `where`, in one commit: compare and set."""


class TableReader(RecordReader, Protocol):
    """Reads of tables by their files, without a Spark job."""

    @property
    def folder(self) -> LakeFolder:
        """The folder that has the tables."""

    @property
    def catalog(self) -> Names:
        """The names of the tables."""

    def stored(
        self,
        table: Table,
        columns: Sequence[str],
        where: pc.Expression | None = None,
        partitions: Mapping[str, Sequence[str]] | None = None,
    ) -> StoredRows:
        """Rows of a table's files as they are now, to be read by pyarrow; see `storage.delta.data_files`."""

    def summaries(
        self, table: Table, partition: str, values: Sequence[str] | None, columns: Sequence[str]
    ) -> list[FileSummary]:
        """The rows, bytes and bounds of the data files of some partitions; see `storage.delta.file_summaries`."""


class Lake(TableReader, RecordTables, Protocol):
    """The lake that a stage is given."""

    @property
    def spark(self) -> SparkSession | None:
        """The session whose tasks share work that is too large for this process; None: this process does all of it."""

    @property
    def catalog(self) -> Catalog:
        """The catalog of the tables."""

    @property
    def commits(self) -> int:
        """Delta commits made through this object, for the run's report."""

    def record(self, table: Table, rows: Rows, fence: Fence | None = None) -> None:
        """Append rows to a table of records, in one commit.

        Raises:
            Superseded: an attempt with this token or a newer one has committed to it.
        """

    def destination(self, table: Table, layout: Layout = ...) -> Destination:
        """The destination of new files of the table, for any process that writes them."""

    def append_files(self, table: Table, files: Sequence[WrittenFile]) -> None:
        """Append files that are written already, without a fence: one commit, and no Spark job."""

    def replace_files(self, table: Table, files: Sequence[WrittenFile], column: str, values: Sequence[str]) -> None:
        """Make written files part of the table, and drop the partitions whose `column` is one of `values`, in one
        commit; no commit if there is neither."""

    def move_files(self, source: str, moved: Mapping[str, str]) -> None:
        """Replace the paths of a source's landed files by their new ones in all tables that name them."""


class FrameLake(Lake, Protocol):
    """A lake whose tables are read and appended to as Spark's frames, too."""

    @property
    def spark(self) -> SparkSession:
        """The session that runs jobs."""

    def read(self, table: Table) -> DataFrame:
        """All physical rows of a table, visible or not."""

    def append(self, table: Table, rows: DataFrame, fence: Fence | None) -> None:
        """Append rows once: a repeat under the same or an older token is skipped. Without a fence rows are always
        appended, which is for rows that count only if a fenced commit names the attempt that wrote them."""

    def append_dense(self, table: Table, rows: DataFrame, rows_in_page: int) -> None:
        """Append chunks without a fence, in files of the layout of `storage.delta.dense_files`."""


class RunLake(Lake, Protocol):
    """The lake of a run, which also replaces rows. A plan has none: its lake keeps its writes apart."""

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
        layout: Layout = ...,
    ) -> Rewritten:
        """Change rows by rewriting the files that have them; see `storage.delta.rewriting`."""

    def replace_record(self, table: Table, row: dict[str, Any], fence: Fence) -> None:
        """Replace the rows of the fence's source in a table of records by `row`, in one commit.

        Raises:
            Superseded: as `record`.
        """

    def replace_records(self, table: Table, rows: Rows, fence: Fence) -> None:
        """Replace the rows of the fence's source in a table of records by `rows`, in one commit.

        Raises:
            Superseded: as `record`.
        """

    def delete_tokens(self, table: Table, tokens: Sequence[int], source: str | None) -> None:
        """Remove the rows that were written under these tokens; with `source`, only its rows in a shared table."""


class NeedsSpark(TidemarkError):
    """A lake without Spark was asked for work that needs Spark. Facts: `what`."""

    code = "needs_spark"


def with_frames(lake: Lake, what: str) -> FrameLake:
    """The lake as one with frames. `what`: the work that needs them, as the subject of a sentence.

    Raises:
        NeedsSpark: it is a lake without Spark.
    """
    if lake.spark is None:
        raise needs_spark(what)
    return cast("FrameLake", lake)


def needs_spark(what: str) -> NeedsSpark:
    """The refusal of work that needs Spark, in a lake without it. `what`: the work, as the subject of a sentence."""
    return NeedsSpark(
        expected=f"a lake with a Spark session, since {what} needs one",
        found="a lake of files alone, as `tidemark try` and `tidemark test` make it",
        consequence="the run stopped there; nothing of it was published",
        next_step="do it in an installation: `tidemark up`, then `tidemark run`",
        what=what,
    )
