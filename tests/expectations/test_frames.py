"""What checks of published tables are held against: history as it would read once an attempt's rows are published."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.gates.frames import landed_rows, published_rows, rows_of_drops
from spark_jobs.sources import first_row_id, load_source
from spark_jobs.storage.coordination.publication import Publication
from spark_jobs.storage.descriptions.schema import Column, Table
from spark_jobs.storage.descriptions.tables import chunks
from spark_jobs.storage.lakes.stored_lake import StoredLake
from tests.effort import tries
from tests.jobs.harness import SOURCE

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


CHUNKS = pa.schema(
    [
        *((name, pa.int64()) for name in ("seq_no", "diff", "landing")),
        ("entity", pa.string()),
        ("rows", pa.int32()),
        ("row_ids", pa.list_(pa.int64())),
        ("event_times", pa.list_(pa.timestamp("us", "UTC"))),
        ("c_heat", pa.list_(pa.float64())),
        ("landings", pa.list_(pa.int64())),
    ]
)


@given(heats=st.lists(st.lists(st.one_of(st.none(), st.floats(0, 9)), min_size=1, max_size=4), max_size=6))
@settings(max_examples=tries(25))
def test_a_chunk_without_values_takes_none_from_another(heats: list[list[float | None]], tmp_path_factory: Any) -> None:
    folder: Path = tmp_path_factory.mktemp("lake")
    (folder / "meters.yml").write_text(SOURCE)
    source = load_source(folder / "meters.yml")
    rows = [
        {"row_id": first_row_id(n, "a") + late, "entity": f"m-{n}", "seq_no": n, "late_by": late, "heat": heat}
        for n, values in enumerate(heats)
        for late, heat in enumerate(values)
    ]
    stored = [
        {
            "entity": f"m-{n}",
            "seq_no": n,
            "rows": len(values),
            "diff": 1,
            "landing": n,
            "row_ids": [first_row_id(n, "a") + late for late in range(len(values))],
            "event_times": [source.drops.interval(n)[0] - late for late in range(len(values))],
            # landing writes null for a list without a value
            "c_heat": values if any(heat is not None for heat in values) else None,
        }
        for n, values in enumerate(heats)
    ]
    path = folder / "bronze.db" / chunks(source).table
    write_deltalake(str(path), pa.Table.from_pylist(stored, schema=CHUNKS))
    read = landed_rows(StoredLake(folder), source, range(len(heats)), ["heat"])
    assert read.select(["row_id", "entity", "seq_no", "late_by", "heat"]).sort_by("row_id").to_pylist() == rows


def test_rows_that_a_later_landing_has_taken_back_are_not_held_against_checks(tmp_path: Path) -> None:
    (tmp_path / "meters.yml").write_text(SOURCE)
    source = load_source(tmp_path / "meters.yml")

    def chunk(landing: int, diff: int, heats: dict[int, float]) -> dict[str, Any]:
        at = [source.drops.interval(0)[0] + row_id for row_id in heats]
        rows = {"rows": len(heats), "row_ids": list(heats), "event_times": at, "c_heat": list(heats.values())}
        return {"entity": "m", "seq_no": 0, "landing": landing, "diff": diff, **rows}

    stored = [
        chunk(1, 1, {1: 1.0, 2: 2.0, 3: 3.0, 4: 4.0}),
        # a changed row keeps its id; one went; one went and came back
        chunk(2, -1, {1: 1.0, 3: 3.0, 4: 4.0}),
        chunk(2, 1, {1: 1.5}),
        chunk(3, 1, {4: 4.0}),
        # of a landing that is in the trace already
        chunk(0, 1, {9: 9.0}),
        chunk(3, -1, {9: 9.0}),
    ]
    path = tmp_path / "bronze.db" / chunks(source).table
    write_deltalake(str(path), pa.Table.from_pylist(stored, schema=CHUNKS))
    read = landed_rows(StoredLake(tmp_path), source, [1, 2, 3], ["heat"])
    assert sorted(zip(*read.select(["row_id", "heat"]).to_pydict().values(), strict=True)) == [
        (1, 1.5),
        (2, 2.0),
        (4, 4.0),
    ]
    nothing = landed_rows(StoredLake(tmp_path), source, [7], ["heat"])
    assert nothing.num_rows == 0


def test_the_rows_of_drops_are_those_that_stand_in_chunks_of_one_landing_and_in_merged_ones(tmp_path: Path) -> None:
    (tmp_path / "meters.yml").write_text(SOURCE)
    source = load_source(tmp_path / "meters.yml")

    def chunk(landings: int | list[int], diff: int, heats: list[tuple[int, int, float]]) -> dict[str, Any]:
        """Of drop, line and heat of each row."""
        at = [source.drops.interval(drop)[0] + line for drop, line, _ in heats]
        ids = [first_row_id(drop, "a") + line for drop, line, _ in heats]
        if isinstance(landings, list):
            of_landing: dict[str, Any] = {"landing": max(landings), "landings": landings}
        else:
            of_landing = {"landing": landings, "landings": None}
        values = {"row_ids": ids, "event_times": at, "c_heat": [heat for _, _, heat in heats]}
        return {"entity": "m", "seq_no": heats[-1][0], "rows": len(heats), "diff": diff, **of_landing, **values}

    stored = [
        chunk([1, 1, 2, 3], 1, [(0, 1, 0.1), (1, 1, 1.1), (1, 2, 1.2), (2, 1, 2.1)]),
        # a row of the drop changed, once it was merged
        chunk(4, -1, [(1, 1, 1.1)]),
        chunk(4, 1, [(1, 1, 1.5)]),
        chunk(4, 1, [(1, 3, 1.3)]),
        chunk(5, 1, [(2, 2, 2.2)]),
        # what no ledger names
        chunk(6, 1, [(1, 4, 1.4)]),
    ]
    path = tmp_path / "bronze.db" / chunks(source).table
    write_deltalake(str(path), pa.Table.from_pylist(stored, schema=CHUNKS))
    for drops, heats in (
        ([1], [1.2, 1.3, 1.5]),
        ([0, 2], [0.1, 2.1, 2.2]),
        ([1, 2], [1.2, 1.3, 1.5, 2.1, 2.2]),
        ([3], []),
    ):
        rows = rows_of_drops(StoredLake(tmp_path), source, drops, range(1, 6), ["heat"])
        assert sorted(rows["heat"].to_pylist()) == heats
        assert set(rows["seq_no"].to_pylist()) <= set(drops)
