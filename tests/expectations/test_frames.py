"""What checks of published tables are held against: history as it would read once an attempt's rows are published."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.gates.frames import published_rows
from spark_jobs.storage.publication import Publication
from spark_jobs.storage.schema import Column, Table
from spark_jobs.storage.stored_lake import StoredLake
from tests.effort import tries

TABLE = Table(
    "silver",
    "things_history",
    "Things.",
    (*(Column(name, kind, name) for name, kind in (("key", "STRING"), ("start", "BIGINT"), ("n", "BIGINT"))),),
    ("era",),
)
SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("start", pa.int64()),
        ("n", pa.int64()),
        ("known_from", pa.int64()),
        ("era", pa.string()),
        ("token", pa.int64()),
    ]
)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.sampled_from([None, "a", "b"]),
            "start": st.integers(0, 1),
            "n": st.integers(0, 99),
            "known_from": st.integers(0, 2),
            "era": st.sampled_from(["live", "live", "closing", "closed"]),
            "token": st.integers(0, 6),
        }
    ),
    max_size=25,
)
PUBLICATION = Publication(published_us=9, reached_us=9, complete_us=0, settled=2, tokens=(4,))
TOKEN = 6


def shown(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows that hold, one after another."""
    counts = [row for row in rows if row["token"] <= 2 or row["token"] in (4, TOKEN)]

    def ended(row: dict[str, Any]) -> bool:
        same = ("key", "start", "known_from")
        return any(c["era"] == "closing" and all(c[name] == row[name] for name in same) for c in counts)

    return [row for row in counts if row["era"] == "live" and not ended(row)]


def told(table: pa.Table) -> list[str]:
    return sorted(repr([row[name] for name in SCHEMA.names]) for row in table.to_pylist())


@given(rows=ROWS)
@settings(max_examples=tries(25))
def test_rows_are_those_that_would_read_and_of_them_those_of_the_attempt(
    rows: list[dict[str, Any]], tmp_path_factory: Any
) -> None:
    folder: Path = tmp_path_factory.mktemp("lake")
    path = folder / "silver.db" / TABLE.table
    write_deltalake(str(path), pa.Table.from_pylist(rows, schema=SCHEMA), partition_by=["era"])
    whole, changed = published_rows(StoredLake(folder), TABLE, ["key", "start"], ["n"], PUBLICATION, TOKEN, {})
    expected = shown(rows)
    assert told(whole) == told(pa.Table.from_pylist(expected, schema=SCHEMA))
    own = [row for row in expected if row["token"] == TOKEN]
    assert told(changed) == told(pa.Table.from_pylist(own, schema=SCHEMA))
