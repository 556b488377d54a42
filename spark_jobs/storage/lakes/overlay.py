"""A lake that keeps written rows to itself: a run over it changes no table, and shows the run's changes."""

from __future__ import annotations

import operator
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow.dataset as ds
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_schema

from spark_jobs.storage.delta.data_files import StoredRows
from spark_jobs.storage.delta.fences import Fence
from spark_jobs.storage.delta.file_summaries import FileSummary
from spark_jobs.storage.delta.places import PLANS, TableHandle, for_spark
from spark_jobs.storage.delta.records import Rows, arrow_records
from spark_jobs.storage.delta.written_files import Destination, Layout, WrittenFile
from spark_jobs.storage.descriptions.schema import Column, Table
from spark_jobs.storage.descriptions.sql import name
from spark_jobs.storage.descriptions.tables import DUPLICATES, FILES, QUARANTINE
from spark_jobs.storage.descriptions.times import utc_rows
from spark_jobs.storage.descriptions.wider_types import widens
from spark_jobs.storage.lakes.frames import frame_of
from spark_jobs.storage.lakes.lake import Catalog, FrameLake

if TYPE_CHECKING:
    import pyarrow.compute as pc
    from pyspark.sql import DataFrame


class PlanCatalog:
    """A catalog in which a plan changes nothing: it refuses the same tables as a run, and creates none."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._present: dict[str, set[str]] = {}

    def databases(self) -> set[str]:
        """The databases that exist."""
        return self._catalog.databases()

    def names(self, database: str) -> set[str]:
        """The tables and views of a database that exist."""
        return self._catalog.names(database)

    def views(self, database: str) -> set[str]:
        """The views of a database that exist."""
        return self._catalog.views(database)

    def names_in(self, databases: Collection[str]) -> dict[str, set[str]]:
        """`names` of each database."""
        return self._catalog.names_in(databases)

    def names_if_present(self, database: str) -> set[str]:
        """`names`, empty for a database that does not exist yet."""
        return self._catalog.names_if_present(database)

    def has(self, table: Table) -> bool:
        """True if the table exists. The catalog is asked once for each database."""
        if table.database not in self._present:
            self._present[table.database] = self.names_if_present(table.database)
        return table.table in self._present[table.database]

    def ensure(self, databases: dict[str, str], tables: list[Table]) -> list[Table]:
        """Creates nothing: a missing table reads as an empty one."""
        return []

    def define(self, statement: str) -> None:
        """Defines nothing."""

    def missing_columns(self, tables: Sequence[Table]) -> dict[Table, list[Column]]:
        """Refuse the same tables as a run. A table that does not exist lacks no columns: it reads as an empty one."""
        return self._catalog.missing_columns([table for table in tables if self.has(table)])

    def widen(self, tables: Sequence[Table]) -> None:
        """Widen nothing, and refuse the same tables as a run; new columns read as they would be filled."""
        self.missing_columns(tables)

    def check_identity(self, table: Table) -> None:
        """Refuse the same tables as a run."""
        if self.has(table):
            self._catalog.check_identity(table)


class OverlayLake:
    """A lake whose reads give the committed rows of another one, and those written here. A table that does not exist
    yet is empty. The other lake's tables stay as they are, whatever is written here.

    Written rows are computed once and kept outside of all tables until `close`: by Spark, or as files in a folder of
    the lake that has no tables.
    """

    commits = 0
    """Nothing is committed."""

    def __init__(self, lake: FrameLake) -> None:
        self._lake, self.spark, self.folder = lake, lake.spark, lake.folder
        self.catalog = PlanCatalog(lake.catalog)
        self._written: dict[str, list[DataFrame]] = {}
        self._files: dict[str, list[WrittenFile]] = {}
        self._kept_in = f"{PLANS}/{uuid.uuid4().hex}"
        self._recorded: dict[str, Rows] = {}
        self._keeps = False
        self._moved: dict[str, dict[str, str]] = {}

    def written_rows(self, table: Table) -> DataFrame:
        """The rows that were written to one table here; empty if there are none."""
        if table.qualified in self._recorded:
            return frame_of(self.spark, table, self._recorded[table.qualified])
        frames = self._written.get(table.qualified, [])
        place = for_spark(self._place_of(table))
        files = [f"{place}/{file.path}" for file in self._files.get(table.qualified, [])]
        if files:
            reader = self.spark.read.schema(table.schema()).option("basePath", place)
            frames = [*frames, reader.parquet(*files).select(*table.column_names)]
        return reduce(lambda some, more: some.unionByName(more), frames or [self._empty(table)])

    def written_files(self, table: Table) -> StoredRows | None:
        """The rows that were written to one table here, as rows of files; None if Spark has some of them."""
        if table.qualified in self._written or table.qualified in self._recorded:
            return None
        to = self.destination(table)
        return StoredRows(self._fragments(table, to, {}), to.schema, tuple(to.schema.names))

    def wrote(self, table: Table) -> bool:
        """True if rows or files were written to the table here; records do not count."""
        return table.qualified in self._written or table.qualified in self._files

    def recorded_rows(self, table: Table) -> Rows:
        """The rows that were appended to a table of records here."""
        return self._recorded.get(table.qualified, [])

    def keep(self, tables: Sequence[Table], folder: str) -> dict[str, list[WrittenFile]]:
        """Move the rows written to these tables into a folder below the lake's root, where they outlast `close`.
        Returns the files by the table's qualified name, which is also the name of their subfolder."""
        kept: dict[str, list[WrittenFile]] = {}
        system = self.folder.files()
        for table in tables:
            files, frames = self._files.pop(table.qualified, []), self._written.pop(table.qualified, [])
            if frames:
                files = [*files, *self.destination(table).write(frame.toArrow() for frame in frames)]
            for file in files:
                target = f"{folder}/{table.qualified}/{file.path}"
                system.create_dir(target.rpartition("/")[0])
                system.move(f"{self._kept_in}/{table.qualified}/{file.path}", target)
            if files:
                kept[table.qualified] = files
        self._keeps = bool(kept) or self._keeps
        return kept

    def close(self) -> None:
        """Release the written rows from Spark's cache, and remove their files."""
        for frames in self._written.values():
            for frame in frames:
                frame.unpersist()
        self._written.clear()
        if self._files or self._keeps:
            self._files.clear()
            self.folder.remove(self._kept_in)

    def read(self, table: Table) -> DataFrame:
        """The committed rows and those written here."""
        return self._read_committed(table).unionByName(self.written_rows(table))

    def records(self, table: Table, where: pc.Expression | None = None) -> Rows:
        """The committed rows, filled where a run would fill them, and those recorded here."""
        committed = self._lake.records(table, where)
        if committed and not committed[0].keys() >= {*table.column_names}:
            filled = self._read_committed(table).toArrow()
            committed = (filled if where is None else filled.filter(where)).to_pylist()
        if table == FILES:
            moved = [self._moved.get(row["source"], {}).get(row["path"], row["path"]) for row in committed]
            committed = [{**row, "path": path} for row, path in zip(committed, moved, strict=True)]
        recorded = arrow_records(table, self.recorded_rows(table))
        return [*committed, *(recorded if where is None else recorded.filter(where)).to_pylist()]

    def summaries(
        self, table: Table, partition: str, values: Sequence[str] | None, columns: Sequence[str]
    ) -> list[FileSummary]:
        """One summary for each partition, as if all its rows, committed or written here, were in one file of 0
        bytes."""
        rows = self.read(table)
        if values is not None:
            rows = rows.where(F.col(partition).isin(list(values)))
        bounds = [bound(column).alias(f"{bound.__name__}_{column}") for column in columns for bound in (F.min, F.max)]
        grouped = rows.groupBy(F.col(partition).alias("partition")).agg(F.count(F.lit(1)).alias("rows"), *bounds)
        return [
            FileSummary(
                row["partition"], row["rows"], 0, {name: (row[f"min_{name}"], row[f"max_{name}"]) for name in columns}
            )
            for row in utc_rows(grouped)
        ]

    def stored(
        self,
        table: Table,
        columns: Sequence[str],
        where: pc.Expression | None = None,
        partitions: Mapping[str, Sequence[str]] | None = None,
    ) -> StoredRows:
        """The rows of the committed files, and those written here, which come from their files or from this process's
        memory."""
        chosen = dict(partitions or {})
        if table.qualified in self._files and table.qualified not in self._written:
            return self._stored_files(table, columns, where, chosen)
        is_whole = self.catalog.has(table) and not self.catalog.missing_columns([table])
        if is_whole and not (self.wrote(table) or self.recorded_rows(table)):
            # the files alone, without a job: most reads of a plan or an audit are these
            return self._lake.stored(table, columns, where, partitions)
        committed, written_here = (
            (self._lake.stored(table, columns, where, partitions), self.written_rows(table))
            if is_whole
            else (None, self.read(table))
        )
        for column, values in chosen.items():
            written_here = written_here.where(F.col(column).isin(list(values)))
        rows = written_here.toArrow()
        rows = rows if where is None else rows.filter(where)
        if committed is None:
            return StoredRows((), rows.schema, tuple(dict.fromkeys(columns)), where, rows)
        return replace(committed, beside=rows)

    def record(self, table: Table, rows: Rows, fence: Fence | None = None) -> None:
        """Keep the rows."""
        self._recorded.setdefault(table.qualified, []).extend(rows)

    def record_next(self, table: Table, where: pc.Expression, rows_after: Callable[[Rows], Rows]) -> None:
        """Keep the rows that follow from the present ones."""
        self.record(table, rows_after(self.records(table, where)))

    def append(self, table: Table, rows: DataFrame, fence: Fence | None) -> None:
        """Keep the rows, computed now as a commit would."""
        kept = rows.select(*table.column_names).persist()
        kept.count()
        self._written.setdefault(table.qualified, []).append(kept)

    def destination(self, table: Table, layout: Layout = Layout()) -> Destination:  # noqa: B008
        """The destination of new files of the table, which are kept here until `close`."""
        schema = to_arrow_schema(self._empty(table).schema, timezone="UTC")
        place = self._place_of(table)
        return Destination(TableHandle(place, self.folder.options), schema, table.partitions, table.skipping, layout)

    def append_files(self, table: Table, files: Sequence[WrittenFile]) -> None:
        """Keep the rows."""
        if files:
            self._files.setdefault(table.qualified, []).extend(files)

    def replace_files(self, table: Table, files: Sequence[WrittenFile], column: str, values: Sequence[str]) -> None:
        """Keep the new files; the replaced rows stay beside them, and nothing names them."""
        self.append_files(table, files)

    def append_dense(self, table: Table, rows: DataFrame, rows_in_page: int) -> None:
        """As `append`: rows that are not in files have no layout."""
        self.append(table, rows, None)

    def move_files(self, source: str, moved: Mapping[str, str]) -> None:
        """Let reads name these files by their new paths."""
        self._moved.setdefault(source, {}).update(moved)

    def _place_of(self, table: Table) -> str:
        return f"{self.folder.root.rstrip('/')}/{self._kept_in}/{table.qualified}"

    def _stored_files(
        self, table: Table, columns: Sequence[str], where: pc.Expression | None, chosen: Mapping[str, Sequence[str]]
    ) -> StoredRows:
        """The rows of the committed files and of those written here."""
        to = self.destination(table)
        fragments = self._fragments(table, to, chosen)
        if not self.catalog.has(table):
            return StoredRows(fragments, to.schema, tuple(dict.fromkeys(columns)), where)
        committed = self._lake.stored(table, columns, where, chosen)
        return replace(committed, fragments=(*committed.fragments, *fragments))

    def _fragments(
        self, table: Table, to: Destination, chosen: Mapping[str, Sequence[str]]
    ) -> tuple[ds.ParquetFileFragment, ...]:
        """The files written here of the `chosen` partitions (column -> values); all files if none is chosen."""
        system, form = to.handle.files(), ds.ParquetFileFormat()
        fragments = []
        for file in self._files.get(table.qualified, []):
            if all(file.partition[column] in values for column, values in chosen.items()):
                values = [ds.field(column) == value for column, value in file.partition.items()]
                where_it_lies = reduce(operator.and_, values, ds.scalar(True))
                fragments.append(form.make_fragment(file.path, system, where_it_lies))
        return tuple(fragments)

    def _read_committed(self, table: Table) -> DataFrame:
        if not self.catalog.has(table):
            return self._empty(table)
        stored = self._lake.read(table)
        missing = [column for column in table.columns if column.name not in stored.columns]
        added = {column.name: F.expr(column.filled or "NULL").cast(column.type) for column in missing}
        added |= {c.name: F.col(name(c.name)).cast(c.type) for c in self._narrower(stored, table)}
        widened = stored.withColumns(added) if added else stored
        for source, moved in self._moved.items() if table in (QUARANTINE, DUPLICATES) else ():
            names = self.spark.createDataFrame(list(moved.items()), "file STRING, moved_to STRING")
            renamed = F.when(F.col("source") == source, F.col("moved_to"))
            joined = widened.join(F.broadcast(names), "file", "left")
            widened = joined.withColumn("file", F.coalesce(renamed, "file")).drop("moved_to")
        return widened.select(*table.column_names)

    def _narrower(self, stored: DataFrame, table: Table) -> list[Column]:
        """The columns to which a run would give a wider type."""
        kinds = dict(stored.dtypes)
        return [c for c in table.columns if c.name in kinds and widens(kinds[c.name], c.kind)]

    def _empty(self, table: Table) -> DataFrame:
        return self.spark.createDataFrame([], table.schema())
