"""Rows of history tables that an environment has computed. They belong to no table until they are promoted.

They are data files below the lake's root, beside the tables. A promotion writes them again under its own token. The
files stay as they are, so a later attempt can do all of a given-up attempt's work again.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import reduce
from typing import Any, Self

import pyarrow as pa
import pyarrow.dataset as ds

from spark_jobs.storage.delta.data_files import StoredRows
from spark_jobs.storage.delta.written_files import WrittenFile
from spark_jobs.storage.descriptions.schema import Table
from spark_jobs.storage.lakes.lake import Lake


@dataclass(frozen=True)
class KeptRows:
    """Rows by table, and the findings of the stage that computed them.

    Args:
        folder: a folder below the lake's root; a table's files are in its subfolder with the table's qualified name.
        files: the written files, by the table's qualified name.
        accounts: for each definition, the outcomes of the touched rows; see `engine.windows.accounts`.
        verdicts: the verdicts of the windows' stage, besides those of its gate.
    """

    folder: str
    files: Mapping[str, Sequence[WrittenFile]]
    accounts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    verdicts: Sequence[Mapping[str, Any]] = ()

    def to_json(self) -> dict[str, Any]:
        """The kept rows as plain JSON values; `from_json` gives an equal value."""
        return asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """The kept rows in a document of `to_json`."""
        files = {table: [WrittenFile(**file) for file in listed] for table, listed in document["files"].items()}
        return cls(document["folder"], files, document["accounts"], document["verdicts"])

    def append(self, lake: Lake, table: Table, token: int, *, without: Mapping[str, str] | None = None) -> int:
        """Append the rows of one table under the token, but those of the partition `without`; returns their number."""
        listed = self.files.get(table.qualified, ())
        files = [f for f in listed if without is None or not without.items() <= f.partition.items()]
        if not files:
            return 0
        to = lake.destination(table)
        written = to.write(self._stamp(table, to.schema, lake.folder.files(), files, token))
        lake.append_files(table, written)
        return sum(file.rows for file in written)

    def _stamp(
        self, table: Table, schema: pa.Schema, system: Any, files: Sequence[WrittenFile], token: int
    ) -> Iterator[pa.Table]:
        for file in files:
            parts = [ds.field(column) == value for column, value in file.partition.items()]
            where = reduce(operator.and_, parts, ds.scalar(True))
            place = f"{self.folder}/{table.qualified}/{file.path}"
            fragment = ds.ParquetFileFormat().make_fragment(place, system, where)
            for rows in StoredRows((fragment,), schema, tuple(schema.names)).tables():
                stamp = pa.repeat(pa.scalar(token, pa.int64()), rows.num_rows)
                yield rows.set_column(rows.schema.get_field_index("token"), "token", stamp)
