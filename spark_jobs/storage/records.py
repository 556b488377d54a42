"""Records: small tables that say what counts (the ledger, the frontiers, the publication, the verdicts), read and
written without a Spark job.

`deltalake` opens such a table in some milliseconds and commits to it in ten; Spark takes half a second for either.
Both may read a table, but only one of them may commit to it. Spark looks whether a version is there and then writes it,
which another process can do in between; `deltalake` creates a version only if it is not there. So records have one
committer: Spark creates their tables, and commits nothing to them afterwards (decision 0017).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from spark_jobs.errors import TidemarkError
from spark_jobs.storage.column_types import INSTANT
from spark_jobs.storage.fence import Fence
from spark_jobs.storage.schema import Table
from spark_jobs.storage.sql import literal
from spark_jobs.storage.tables import FILES, FRONTIERS, PUBLISHED, VERDICTS

if TYPE_CHECKING:
    import pyarrow.compute as pc
    from deltalake import CommitProperties, DeltaTable

RECORDS = frozenset({FILES.qualified, FRONTIERS.qualified, PUBLISHED.qualified, VERDICTS.qualified})
"""The tables that are records."""

ATTEMPTS = 100
"""How often a commit is tried again because another one took its version. Each try means that somebody committed."""

Rows = list[dict[str, Any]]
"""Rows by column; times are aware datetimes of UTC."""


_ARROW_TYPES = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "boolean": pa.bool_(),
    "timestamp": INSTANT,
    "array<bigint>": pa.list_(pa.int64()),
}


class RecordsContended(TidemarkError):
    """Others committed to a table of records so often that a commit never got its version. Facts: `table`."""

    code = "records_contended"


class RecordsLost(TidemarkError):
    """The catalog has a table of records, and there is none at its place. Facts: `table`."""

    code = "records_lost"


def lost(uri: str) -> RecordsLost:
    """The refusal to go on as if nothing had ever been recorded."""
    return RecordsLost(
        expected=f"the table at {uri}, which the catalog has",
        found="no Delta log there",
        consequence="nothing was done: what counts of the lake can't be told without it",
        next_step="bring the folder back from a backup; `tidemark doctor --deep` looks for other damage",
        table=uri,
    )


def read_records(uri: str, options: Mapping[str, str], where: pc.Expression | None) -> pa.Table:
    """The rows of the table at `uri` for which `where` holds. Files are skipped by their statistics.

    Raises:
        deltalake.exceptions.TableNotFoundError: there is no table.
    """
    from deltalake import DeltaTable

    return DeltaTable(uri, storage_options=dict(options)).to_pyarrow_dataset().to_table(filter=where)


def committed_token(uri: str, options: Mapping[str, str], source: str) -> int:
    """The greatest token under which the source has committed to the table; 0 if it has not, or there is no table."""
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    try:
        return DeltaTable(uri, storage_options=dict(options)).transaction_version(Fence(source, 0).app_id) or 0
    except TableNotFoundError:
        return 0


def record_columns(uri: str, options: Mapping[str, str]) -> dict[str, str]:
    """The types of the table's columns, as Spark names them, by name.

    Raises:
        deltalake.exceptions.TableNotFoundError: there is no table.
    """
    from deltalake import DeltaTable

    kinds = {str(arrow): kind for kind, arrow in _ARROW_TYPES.items()}
    schema = pa.schema(DeltaTable(uri, storage_options=dict(options)).schema().to_arrow())
    return {field.name: kinds.get(_plain(field.type), str(field.type)) for field in schema}


def _plain(kind: pa.DataType) -> str:
    """The name of an Arrow type, whatever the elements of a list are called."""
    return str(pa.list_(kind.value_type)) if pa.types.is_list(kind) else str(kind)


def append_records(uri: str, options: Mapping[str, str], rows: Rows, fence: Fence | None) -> bool:
    """Append rows in one commit; whether it was made: under a fence not if this token or a newer one has committed.

    Raises:
        RecordsContended: others committed all the time.
    """

    def write(table: DeltaTable, properties: CommitProperties) -> None:
        from deltalake import write_deltalake

        write_deltalake(table, _arrow(table, rows), mode="append", commit_properties=properties)

    return _commit(uri, options, fence, write)


def append_next_records(
    uri: str, options: Mapping[str, str], where: pc.Expression, rows_after: Callable[[Rows], Rows]
) -> None:
    """Append the rows that follow from those for which `where` holds, in one commit: compare and set. They are worked
    out anew where another commit came in between; what `rows_after` raises ends it, and nothing is committed.

    Raises:
        RecordsContended: others committed all the time.
    """

    def write(table: DeltaTable, properties: CommitProperties) -> None:
        from deltalake import write_deltalake

        rows = rows_after(table.to_pyarrow_dataset().to_table(filter=where).to_pylist())
        write_deltalake(table, _arrow(table, rows), mode="append", commit_properties=properties)

    _commit(uri, options, None, write)


def replace_records(uri: str, options: Mapping[str, str], rows: Rows, fence: Fence) -> bool:
    """Replace the rows of the fence's source in one commit; see `append_records`."""

    def write(table: DeltaTable, properties: CommitProperties) -> None:
        from deltalake import write_deltalake

        of_source = f"source = {literal(fence.source)}"
        arrow = _arrow(table, rows)
        write_deltalake(table, arrow, mode="overwrite", predicate=of_source, commit_properties=properties)

    return _commit(uri, options, fence, write)


def widen_records(
    uri: str, options: Mapping[str, str], widened: Callable[[], pa.Table], comments: Mapping[str, str]
) -> None:
    """Replace all rows by those of `widened`, which have columns more; `comments` are those of the new columns."""

    def write(table: DeltaTable, properties: CommitProperties) -> None:
        from deltalake import write_deltalake

        rows = widened()
        stands = pa.schema(table.schema().to_arrow())
        fields = [
            stands.field(field.name)
            if field.name in stands.names
            else field.with_metadata({"comment": comments[field.name]})
            for field in rows.schema
        ]
        arrow = rows.cast(pa.schema(fields))
        write_deltalake(table, arrow, mode="overwrite", schema_mode="overwrite", commit_properties=properties)

    _commit(uri, options, None, write)


def arrow_records(table: Table, rows: Rows) -> pa.Table:
    """Rows with the columns of a table's description; a missing key is null."""
    return pa.Table.from_pylist(rows, schema=pa.schema([(c.name, _ARROW_TYPES[c.kind]) for c in table.columns]))


def _arrow(table: DeltaTable, rows: Rows) -> pa.Table:
    """Rows with the table's columns; a missing key is null."""
    return pa.Table.from_pylist(rows, schema=pa.schema(table.schema().to_arrow()))


def _commit(
    uri: str,
    options: Mapping[str, str],
    fence: Fence | None,
    write: Callable[[DeltaTable, CommitProperties], None],
) -> bool:
    """Write on the newest version, or on the one that another commit has made meanwhile."""
    from deltalake import CommitProperties, DeltaTable, Transaction
    from deltalake.exceptions import CommitFailedError

    transactions = None if fence is None else [Transaction(fence.app_id, fence.token)]
    # without retries of its own a commit goes to the version after the one that was read, or fails
    properties = CommitProperties(max_commit_retries=0, app_transactions=transactions)
    for _ in range(ATTEMPTS):
        table = DeltaTable(uri, storage_options=dict(options))
        if fence is not None and (table.transaction_version(fence.app_id) or 0) >= fence.token:
            return False
        try:
            write(table, properties)
        except CommitFailedError:
            continue
        return True
    raise RecordsContended(
        expected=f"a commit to {uri} within {ATTEMPTS} tries",
        found="other commits each time",
        consequence="this one was not made; what it would have made visible is not",
        next_step="do the same again; if it happens again, find out who else writes to the table all the time",
        table=uri,
    )
