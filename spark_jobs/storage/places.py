"""The places of tables, for readers and writers other than Spark: paths or URIs, and the options to open them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from spark_jobs.s3 import SPARKS_SETTINGS, is_s3, options_of, with_scheme

if TYPE_CHECKING:
    from pyarrow import fs
    from pyspark.sql import SparkSession

WAREHOUSE = "spark.sql.warehouse.dir"
PLANS = "_plans"
"""Folder below the lake's root for the rows that plans compute. It has no tables, and is removed once the plan is
made."""


def lake_root(spark: SparkSession) -> str:
    """The root of the databases: a path of this machine, or a URI of an object store."""
    return as_root(spark.conf.get(WAREHOUSE) or "")


def as_root(warehouse: str) -> str:
    """The lake's root for a place as Spark names it: a path of this machine, or a URI of an object store."""
    scheme, found, path = warehouse.partition(":")
    if not found or scheme == "file":
        # a path as it is, with no escapes: a folder's name may have any character
        return f"/{path.lstrip('/')}" if found else warehouse
    return with_scheme(warehouse, "s3")


def for_spark(place: str) -> str:
    """A place below the lake's root as Spark names it."""
    return with_scheme(place, "s3a")


def table_uri(root: str, database: str, table: str) -> str:
    """The folder of a table, as the catalog lays it out below the lake's root."""
    return f"{root.rstrip('/')}/{database}.db/{table}"


def file_system(place: str, options: Mapping[str, str]) -> fs.FileSystem:
    """The file system of a folder, which takes paths relative to it; it may be sent to other processes."""
    from deltalake.fs import DeltaStorageHandler
    from pyarrow import fs

    if "://" in place:
        return fs.PyFileSystem(DeltaStorageHandler(place, dict(options)))
    return fs.SubTreeFileSystem(place, fs.LocalFileSystem())


def storage_options(spark: SparkSession, root: str) -> dict[str, str]:
    """The options with which `deltalake` opens tables below `root`: Spark's own settings of S3 for a root in S3, none
    for others. Settings that Spark does not have come from the environment (`AWS_…`), as they do for Spark."""
    if not is_s3(root):
        return {}
    return options_of({name: spark.conf.get(name, "") or "" for name in SPARKS_SETTINGS})
