"""Records: small tables that decide what counts (the ledger, the frontiers, the publication, erasures, checks), read
and written without a Spark job.

`deltalake` opens such a table in some milliseconds and commits to it in ten; Spark takes half a second for either.
Spark creates their tables, and commits nothing to them afterwards. Of two commits that meet, whoever makes them, one is
tried again (decision 0017).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from spark_jobs.errors import TidemarkError
from spark_jobs.storage.delta.commits import commit
from spark_jobs.storage.delta.data_files import dataset_of, naming_damage
from spark_jobs.storage.delta.delta_log import open_table
from spark_jobs.storage.delta.fences import Fence
from spark_jobs.storage.delta.fingerprints import of_source
from spark_jobs.storage.delta.places import LakeFolder, TableHandle
from spark_jobs.storage.descriptions.column_types import INSTANT
from spark_jobs.storage.descriptions.extract_table import EXTRACTS
from spark_jobs.storage.descriptions.people_tables import ERASURES, SOURCE_CHANGES
from spark_jobs.storage.descriptions.quality_tables import QUALITY
from spark_jobs.storage.descriptions.schema import Table
from spark_jobs.storage.descriptions.tables import FILES, FRONTIERS, PUBLISHED

if TYPE_CHECKING:
    import pyarrow.compute as pc
    from deltalake import CommitProperties, DeltaTable


RECORDS = frozenset(
    table.qualified for table in (FILES, FRONTIERS, PUBLISHED, ERASURES, SOURCE_CHANGES, EXTRACTS, *QUALITY)
)
"""The tables that are records."""

Rows = list[dict[str, Any]]
"""Rows as values by column name; times are aware datetimes in UTC."""


_ARROW_TYPES = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "boolean": pa.bool_(),
    "timestamp": INSTANT,
    "array<bigint>": pa.list_(pa.int64()),
}


class RecordsLost(TidemarkError):
    """The catalog has a table of records that is missing from its place. Facts: `table`."""

    code = "records_lost"


class ColumnsMissing(TidemarkError):
    """A table of records lacks columns of the rows that are to be recorded. Facts: `table`, `columns`."""

    code = "columns_missing_in_records"


def records_lost(uri: str) -> RecordsLost:
    """The error that refuses to go on as if nothing had ever been recorded."""
    return RecordsLost(
        expected=f"the table at {uri}, which the catalog has",
        found="no Delta log there",
        consequence="nothing was done: without it the rows that count are unknown",
        next_step="`tidemark restore` a backup into an empty home; `tidemark doctor --deep` looks for other damage",
        table=uri,
    )


def read_records(handle: TableHandle, where: pc.Expression | None) -> pa.Table:
    """The rows of a table that meet `where`. Files are skipped by their statistics.

    Raises:
        deltalake.exceptions.TableNotFoundError: there is no table.
        FileDamaged: a data file is missing or can't be read.
    """

    dataset = dataset_of(open_table(handle), handle.files())
    with naming_damage(dataset.get_fragments()):
        return dataset.to_table(filter=where)


def present_records(handle: TableHandle, is_expected: Callable[[], bool], where: pc.Expression | None) -> Rows:
    """The rows of a table of records that meet `where`; none of a table that does not exist yet.

    `is_expected`: called where there is no table; true if the catalog has it.

    Raises:
        RecordsLost: the table is expected, and its folder or log is gone.
    """
    from deltalake.exceptions import TableNotFoundError

    try:
        rows: Rows = read_records(handle, where).to_pylist()
    except TableNotFoundError:
        if is_expected():
            raise records_lost(handle.uri) from None
        return []
    return rows


def newest_token(folder: LakeFolder, source: str) -> int:
    """The greatest token under which an attempt on the source has committed records; 0 before the first."""
    return max(committed_token(folder.handle(table), source) for table in (FILES, FRONTIERS, PUBLISHED))


def committed_token(handle: TableHandle, source: str) -> int:
    """The greatest token under which the source has committed to the table; 0 if it has not, or there is no table."""
    from deltalake.exceptions import TableNotFoundError

    try:
        return open_table(handle).transaction_version(Fence(source, 0).app_id) or 0
    except TableNotFoundError:
        return 0


def append_records(handle: TableHandle, rows: Rows, fence: Fence | None) -> bool:
    """Append rows in one commit; returns true if it was made. Under a fence it is not made if this token or a newer one
    has committed.

    Raises:
        ColumnsMissing: the table lacks a column of the rows.
        CommitsContended: others committed all the time.
    """

    def write(table: DeltaTable, properties: CommitProperties) -> None:
        from deltalake import write_deltalake

        write_deltalake(table, _arrow(table, rows), mode="append", commit_properties=properties)

    return commit(handle, fence, write)


def append_next_records(handle: TableHandle, where: pc.Expression, rows_after: Callable[[Rows], Rows]) -> None:
    """Append the rows that follow from those that meet `where`, in one commit: compare and set. They are computed
    again if another commit came in between. If `rows_after` raises an error, nothing is committed.

    Raises:
        CommitsContended: others committed all the time.
    """

    def write(table: DeltaTable, properties: CommitProperties) -> None:
        from deltalake import write_deltalake

        rows = rows_after(dataset_of(table, handle.files()).to_table(filter=where).to_pylist())
        write_deltalake(table, _arrow(table, rows), mode="append", commit_properties=properties)

    commit(handle, None, write)


def replace_records(handle: TableHandle, rows: Rows, fence: Fence) -> bool:
    """Replace the rows of the fence's source in one commit; returns as `append_records` does."""

    def write(table: DeltaTable, properties: CommitProperties) -> None:
        from deltalake import write_deltalake

        replaced = of_source(fence.source)
        write_deltalake(table, _arrow(table, rows), mode="overwrite", predicate=replaced, commit_properties=properties)

    return commit(handle, fence, write)


def widen_records(handle: TableHandle, widened: Callable[[], pa.Table], comments: Mapping[str, str]) -> None:
    """Replace all rows by those of `widened`, which have further columns; `comments` are the comments of these
    columns."""

    def write(table: DeltaTable, properties: CommitProperties) -> None:
        from deltalake import write_deltalake

        rows = widened()
        schema = pa.schema(table.schema().to_arrow())
        fields = [
            schema.field(field.name)
            if field.name in schema.names
            else field.with_metadata({"comment": comments[field.name]})
            for field in rows.schema
        ]
        arrow = rows.cast(pa.schema(fields))
        write_deltalake(table, arrow, mode="overwrite", schema_mode="overwrite", commit_properties=properties)

    commit(handle, None, write)


def arrow_records(table: Table, rows: Rows) -> pa.Table:
    """Rows with the columns of a table's description; a missing key is null."""
    return pa.Table.from_pylist(rows, schema=pa.schema([(c.name, _ARROW_TYPES[c.kind]) for c in table.columns]))


def _arrow(table: DeltaTable, rows: Rows) -> pa.Table:
    """Rows with the table's columns; a missing key is null.

    Raises:
        ColumnsMissing: the rows have further columns.
    """
    schema = pa.schema(table.schema().to_arrow())
    missing = sorted({name for row in rows for name in row} - set(schema.names))
    if missing:
        raise ColumnsMissing(
            expected=f"the columns {', '.join(missing)} in the table at {table.table_uri}",
            found="no such columns: an older version of Tidemark made the table, and no run has widened it since",
            consequence="nothing was recorded",
            next_step="run any drop of the source from its first stage, one that has landed will do, and do the same"
            " again",
            table=table.table_uri,
            columns=missing,
        )
    return pa.Table.from_pylist(rows, schema=schema)
