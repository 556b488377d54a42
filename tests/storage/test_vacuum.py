"""Files are looked for that are out of use only where there can be some."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from spark_jobs.storage.lake import FILE_RETENTION, Lake
from spark_jobs.storage.tables import LATE


class Told(Lake):
    """A lake that says how old its tables are, and remembers what it was told to run."""

    def __init__(self, age: timedelta, properties: dict[str, str]) -> None:
        super().__init__(None)  # type: ignore[arg-type]
        self.statements: list[str] = []
        self.detail = {"createdAt": datetime.now(UTC) - age, "properties": [*properties.items()]}

    def run(self, statement: str) -> Any:
        self.statements.append(statement.split(maxsplit=1)[0])
        return SimpleNamespace(toArrow=lambda: pa.Table.from_pylist([self.detail], schema=DETAIL))


DETAIL = pa.schema([("createdAt", pa.timestamp("us", "UTC")), ("properties", pa.map_(pa.string(), pa.string()))])


@pytest.mark.parametrize(
    ("age", "properties", "looks"),
    [
        (timedelta(hours=1), {}, False),
        (timedelta(days=6, hours=23), {"delta.enableDeletionVectors": "false"}, False),
        (timedelta(days=7, hours=1), {}, True),
        (timedelta(hours=1), {FILE_RETENTION: "interval 1 hour"}, True),
    ],
)
def test_a_table_that_is_younger_than_the_retention_is_not_vacuumed(
    age: timedelta, properties: dict[str, str], looks: bool
) -> None:
    lake = Told(age, properties)
    lake.vacuum(LATE)
    assert lake.statements == (["DESCRIBE", "VACUUM"] if looks else ["DESCRIBE"])
