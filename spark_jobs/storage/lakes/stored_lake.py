"""The lake's files without a Spark session, for readers where Spark may not run."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Self

from pyarrow.fs import FileSelector, FileType

from spark_jobs.s3 import environment_options, is_s3
from spark_jobs.storage.delta.places import LakeFolder, as_root
from spark_jobs.storage.lakes.table_files import TableFiles

if TYPE_CHECKING:
    pass


class FolderNames:
    """The names of tables by their folders."""

    def __init__(self, folder: LakeFolder) -> None:
        self._folder = folder

    def names_if_present(self, database: str) -> set[str]:
        """The tables of a database that have a folder."""
        listed = self._folder.files().get_file_info(FileSelector(f"{database}.db", allow_not_found=True))
        # a bucket also lists the object of the folder itself
        return {entry.base_name for entry in listed if entry.type == FileType.Directory}


class StoredLake(TableFiles):
    """The tables in a folder, or below a URI of an object store that the environment's settings (`AWS_…`) open."""

    def __init__(self, place: Path | str) -> None:
        self._root = as_root(str(place))

    @cached_property
    def folder(self) -> LakeFolder:
        """The folder that has the tables."""
        return LakeFolder(self._root, environment_options(self._root))

    @cached_property
    def catalog(self) -> FolderNames:
        """The names of the tables by their folders."""
        return FolderNames(self.folder)

    @classmethod
    def at(cls, place: str) -> Self | None:
        """The lake at a path or URI; None where Spark alone can open it."""
        return cls(place) if "://" not in place or is_s3(place) else None
