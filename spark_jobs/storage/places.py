"""Where the tables lie, for readers and writers that are not Spark: a path or URI, and what opens it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from spark_jobs.s3 import SPARKS_SETTINGS, is_s3, options_of, with_scheme

if TYPE_CHECKING:
    from pyarrow import fs
    from pyspark.sql import SparkSession

WAREHOUSE = "spark.sql.warehouse.dir"
PLANS = "_plans"
"""Folder below the lake's root for what plans work out: no table, and gone when the plan is made."""


def lake_root(spark: SparkSession) -> str:
    """Where the databases lie: a path of this machine, or a URI of an object store."""
    return as_root(spark.conf.get(WAREHOUSE) or "")


def as_root(warehouse: str) -> str:
    """The same of a place as Spark names it."""
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
    """The files below a folder, by their paths in it; it may be sent to other processes."""
    from deltalake.fs import DeltaStorageHandler
    from pyarrow import fs

    if "://" in place:
        return fs.PyFileSystem(DeltaStorageHandler(place, dict(options)))
    return fs.SubTreeFileSystem(place, fs.LocalFileSystem())


def storage_options(spark: SparkSession, root: str) -> dict[str, str]:
    """What `deltalake` needs to open tables below `root`: Spark's own settings of S3, where it is one. What is not set
    there comes from the environment (`AWS_…`), as it does for Spark."""
    if not is_s3(root):
        return {}
    return options_of({name: spark.conf.get(name, "") or "" for name in SPARKS_SETTINGS})
