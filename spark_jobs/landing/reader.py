"""Reading files into rows: the Spark side of reading a drop, under classic Spark and Spark Connect alike."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from spark_jobs.distribution import cores_of
from spark_jobs.engine.records import Erasures
from spark_jobs.landing.files import LandingFile, list_drop_files
from spark_jobs.landing.record_spec import record_spec
from spark_jobs.landing.worker import output_schema, read_listed_files
from spark_jobs.sources import Source
from spark_jobs.storage.descriptions.column_types import sql_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TASKS_A_CORE = 4
"""The most tasks for each core that read files. One task reads a whole file; if there are more files, a task reads
several, one after another."""


def read_files(
    spark: SparkSession, source: Source, files: Sequence[LandingFile], erased: Erasures | None = None
) -> DataFrame:
    """One row per record of `files`, good or rejected, and one row without a line per file that is rejected whole.

    Columns: `seq_no`, `file` (relative to the landing directory), `line` (the file's first is 1; the row of a Parquet
    file), `row_id`; `entity`, `event_time`, `arrival`, `delta_id` (null if the source declares none), `t_<timeline>`,
    `c_<column>`, `extra` (the values of undeclared columns); and `rule`, `reason`, `raw`, null in a good row. In a
    rejected one all but the first four and the last three are null. A file has either rows or the row that rejects it,
    never both.
    """
    spec = record_spec(source, erased)
    read = partial(read_listed_files, files=tuple(files), form=source.landing.form, spec=spec)
    tasks = reading_tasks(spark, len(files))
    return spark.range(0, len(files), 1, tasks).mapInArrow(read, schema_ddl(output_schema(spec)))


def reading_tasks(spark: SparkSession, n_files: int) -> int:
    """The number of tasks that read so many files."""
    return min(n_files, TASKS_A_CORE * cores_of(spark)) if n_files > 1 else 1


def schema_ddl(schema: pa.Schema) -> str:
    """An Arrow schema of records or blocks as the DDL that Spark reads."""
    return ", ".join(f"`{field.name}` {sql_type(field.type)}" for field in schema)


__all__ = ["LandingFile", "list_drop_files", "read_files", "reading_tasks", "schema_ddl"]
