"""The places of tables, for readers and writers other than Spark: paths or URIs, and the options to open them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self
from urllib.parse import unquote, urlsplit, urlunsplit

from spark_jobs.s3 import SPARKS_SETTINGS, arrow_attempts, endpoint, is_s3, options_of, patience_s, region, with_scheme
from spark_jobs.storage.descriptions.schema import Table
from spark_jobs.threads import map_requests

if TYPE_CHECKING:
    from pyarrow import fs
    from pyspark.sql import SparkSession

WAREHOUSE = "spark.sql.warehouse.dir"
PLANS = "_plans"
"""Folder below the lake's root for the rows that plans compute. It has no tables, and is removed once the plan is
made."""

_ARROWS_SCHEMES = {"s3a": "s3", "s3n": "s3", "gcs": "gs"}
"""Hadoop's names of file systems that have other names in Arrow."""


def lake_root(spark: SparkSession) -> str:
    """The root of the databases: a path of this machine, or a URI of an object store."""
    return as_root(spark.conf.get(WAREHOUSE) or "")


def as_root(warehouse: str) -> str:
    """The lake's root for a place as Spark names it: a path of this machine, or a URI of an object store."""
    scheme, colon, path = warehouse.partition(":")
    if not colon or scheme == "file":
        # a path as it is, with no escapes: a folder's name may have any character
        return f"/{path.lstrip('/')}" if colon else warehouse
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


def listing_files(place: str, options: Mapping[str, str]) -> fs.FileSystem:
    """The file system of a folder, to list the files below it. For S3 it is Arrow's own, which lists 1,000 files by one
    request, whatever folders they are in. `file_system` needs a request for each folder."""
    return object_files(place) if is_s3(place) else file_system(place, options)


def s3_files(within_s: float | None = None, of_region: str | None = None) -> fs.FileSystem:
    """Arrow's own file system of S3, with paths that begin with a bucket; keys come from the environment (`AWS_…`).

    It forgets `within_s` where it is sent to another process. `within_s`: the seconds for which a refused request is
    repeated; None: `patience_s()`. `of_region`: the region of the buckets; None: that of the environment.
    """
    from pyarrow import fs

    return fs.S3FileSystem(
        region=of_region or region(),
        endpoint_override=endpoint(),
        allow_delayed_open=True,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=arrow_attempts(within_s or patience_s())),
    )


def object_files(uri: str, within_s: float | None = None) -> fs.FileSystem:
    """`s3_files` of a prefix in S3, with paths relative to it.

    It writes buffers of Arrow, which that of `deltalake` cannot; a small object is put by one request.
    """
    from pyarrow import fs

    return fs.SubTreeFileSystem(with_scheme(uri, "s3").removeprefix("s3://"), s3_files(within_s))


def remote_files(uri: str) -> tuple[fs.FileSystem, str]:
    """Arrow's file system of a URI that a user has named, and the path in it.

    A bucket is read by `s3_files`, unless the URI has keys or options of its own. A bucket of Amazon's may be in
    another region than the lake.

    Raises:
        ValueError, pyarrow.ArrowException: Arrow has no file system for the URI.
        OSError: the store does not tell the region of the bucket.
    """
    from pyarrow import fs

    parts = urlsplit(uri)
    if not is_s3(uri) or "@" in parts.netloc or parts.query:
        scheme = _ARROWS_SCHEMES.get(parts.scheme, parts.scheme)
        return fs.FileSystem.from_uri(urlunsplit(parts._replace(scheme=scheme)))
    of_region = None if endpoint() else fs.resolve_s3_region(parts.netloc)
    return s3_files(of_region=of_region), f"{parts.netloc}{unquote(parts.path)}".rstrip("/")


def sizes_below(system: fs.FileSystem, folder: str) -> dict[str, int]:
    """The bytes of all files below a folder, by path; none if the folder does not exist."""
    from pyarrow import fs

    entries = system.get_file_info(fs.FileSelector(folder, allow_not_found=True, recursive=True))
    return {entry.path.lstrip("/"): entry.size for entry in entries if entry.type == fs.FileType.File}


def storage_options(spark: SparkSession, root: str) -> dict[str, str]:
    """The options with which `deltalake` opens tables below `root`: Spark's own settings of S3 for a root in S3, none
    for others. Settings that Spark does not have come from the environment (`AWS_…`), as they do for Spark."""
    if not is_s3(root):
        return {}
    return options_of({name: spark.conf.get(name, "") or "" for name in SPARKS_SETTINGS})


@dataclass(frozen=True, slots=True)
class TableHandle:
    """A table's folder, and the options that open it without Spark. It may be sent to other processes.

    `uri`: a path of this machine, or a URI of an object store; `options`: the storage options to open it with
    `deltalake`. `is_own`: true if this process alone writes the table, so that it need not be opened for each read.
    """

    uri: str
    options: Mapping[str, str] = field(default_factory=dict)
    is_own: bool = False

    @property
    def is_local(self) -> bool:
        """True for a folder of this machine."""
        return "://" not in self.uri

    def files(self) -> fs.FileSystem:
        """The file system of the folder, which takes paths relative to it."""
        return file_system(self.uri, self.options)

    def sizes(self) -> dict[str, int]:
        """The bytes of all files in the folder, log included, by path; none if there is no folder."""
        return sizes_below(listing_files(self.uri, self.options), "")

    def remove_files(self, paths: Iterable[str]) -> None:
        """Remove files of the folder."""
        for _ in map_requests(self.files().delete_file, paths):
            pass


@dataclass(frozen=True, slots=True)
class LakeFolder:
    """The folder of a lake, or its prefix in an object store, below which databases and tables have theirs.

    `root`, `options` and `is_own` are as in `TableHandle`.
    """

    root: str
    options: Mapping[str, str] = field(default_factory=dict)
    is_own: bool = False

    @classmethod
    def of_session(cls, spark: SparkSession) -> Self:
        """The folder of the lake that a session opens."""
        root = lake_root(spark)
        return cls(root, storage_options(spark, root))

    @property
    def is_local(self) -> bool:
        """True for a folder of this machine."""
        return "://" not in self.root

    def handle(self, table: Table) -> TableHandle:
        """The handle of a table, which need not exist."""
        return self.handle_of(table.database, table.table)

    def handle_of(self, database: str, name: str) -> TableHandle:
        """The handle of a table by its name."""
        return TableHandle(table_uri(self.root, database, name), self.options, self.is_own)

    def path(self, table: Table) -> str:
        """The path of a table's folder below the root."""
        return table_uri("", table.database, table.table).lstrip("/")

    def files(self) -> fs.FileSystem:
        """The files below the root, by their paths in it."""
        return file_system(self.root, self.options)

    def sizes(self, path: str) -> dict[str, int]:
        """The bytes of all files below a folder, by their paths below the root; none if there is no folder."""
        return sizes_below(listing_files(self.root, self.options), path)

    def is_stored(self, database: str, name: str) -> bool:
        """True if there is a table in its place, whatever the catalog has."""
        from deltalake import DeltaTable

        return DeltaTable.is_deltatable(self.handle_of(database, name).uri, dict(self.options) or None)

    def remove(self, path: str) -> None:
        """Remove a folder below the root, if it is there."""
        from pyarrow.fs import FileType

        system = self.files()
        if system.get_file_info(path).type == FileType.Directory:
            system.delete_dir(path)

    def newest_write(self, path: str) -> float:
        """The time at which a file below a folder was last written, in seconds since 1970; 0 if there is none."""
        from pyarrow.fs import FileSelector, FileType

        system = listing_files(self.root, self.options)
        files = system.get_file_info(FileSelector(path, recursive=True, allow_not_found=True))
        return max((file.mtime_ns / 1e9 for file in files if file.type == FileType.File), default=0.0)
