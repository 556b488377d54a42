"""Where the tables lie, for readers and writers that are not Spark: a path or URI, and what opens it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyarrow import fs
    from pyspark.sql import SparkSession

WAREHOUSE = "spark.sql.warehouse.dir"
_S3_SCHEMES = ("s3", "s3a", "s3n")
_S3A = {
    "endpoint": "AWS_ENDPOINT_URL",
    "endpoint.region": "AWS_REGION",
    "access.key": "AWS_ACCESS_KEY_ID",
    "secret.key": "AWS_SECRET_ACCESS_KEY",
    "session.token": "AWS_SESSION_TOKEN",
}
"""Spark's settings of S3 below `spark.hadoop.fs.s3a`, and what `deltalake` calls them."""


def lake_root(spark: SparkSession) -> str:
    """Where the databases lie: a path of this machine, or a URI of an object store."""
    warehouse = spark.conf.get(WAREHOUSE) or ""
    scheme, found, path = warehouse.partition(":")
    if not found or scheme == "file":
        # a path as it is, with no escapes: a folder's name may have any character
        return f"/{path.lstrip('/')}" if found else warehouse
    return f"s3:{path}" if scheme in _S3_SCHEMES else warehouse


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
    if not root.startswith("s3://"):
        return {}
    found = {ours: spark.conf.get(f"spark.hadoop.fs.s3a.{theirs}", "") or "" for theirs, ours in _S3A.items()}
    options = {name: value for name, value in found.items() if value}
    if options.get("AWS_ENDPOINT_URL", "").startswith("http://"):
        options["AWS_ALLOW_HTTP"] = "true"
    if "AWS_ENDPOINT_URL" in options and "://" not in options["AWS_ENDPOINT_URL"]:
        options["AWS_ENDPOINT_URL"] = f"https://{options['AWS_ENDPOINT_URL']}"
    return options
