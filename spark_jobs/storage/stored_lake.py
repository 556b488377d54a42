"""The lake's files without a session: for those who look at it where Spark may not run."""

from __future__ import annotations

from pathlib import Path

from spark_jobs.storage.lake import Lake
from spark_jobs.storage.records import record_columns
from spark_jobs.storage.schema import Table


class StoredLake(Lake):
    """Records, stored rows and summaries of the tables in a folder; whatever else a `Lake` can takes a session."""

    def __init__(self, folder: Path) -> None:
        super().__init__(spark=None)  # type: ignore[arg-type]  # nothing that is used here asks for it
        self._root, self._storage_options = str(folder), {}

    def names_if_present(self, database: str) -> set[str]:
        """Tables that have a folder."""
        return {path.name for path in Path(self._root).glob(f"{database}.db/*")}

    def columns(self, table: Table) -> set[str]:
        """The columns that a table has."""
        return set(record_columns(self.uri(table), self._storage_options))
