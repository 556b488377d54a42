"""Rows of data files: the wanted ones, each once, however the files are cut and wherever they are read."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, WriterProperties, write_deltalake

from spark_jobs.storage.delta.data_files import StoredRows, dataset_of, stored_rows
from spark_jobs.storage.delta.file_summaries import summarize_files
from spark_jobs.storage.delta.fingerprints import change_since, take_fingerprint
from spark_jobs.storage.delta.places import TableHandle, file_system
from spark_jobs.storage.delta.plain_reading import differing_files, misread_rows
from tests.installations import CHECKOUT

ROWS = 5000


def day(number: int, **more: list[int]) -> pa.Table:
    places = list(range(ROWS * number, ROWS * (number + 1)))
    kinds = ["even" if place % 2 == 0 else "odd" for place in places]
    return pa.table({"place": places, "text": [f"t{place}" for place in places], "kind": kinds, **more})


@pytest.fixture
def uri(tmp_path: Path) -> str:
    """A table of two days in two partitions, of which the second day has a column more and small row groups."""
    place = str(tmp_path / "table")
    write_deltalake(place, day(0), partition_by=["kind"])
    small = WriterProperties(max_row_group_size=1024)
    write_deltalake(
        place,
        day(1, late=[7] * ROWS),
        mode="append",
        schema_mode="merge",
        partition_by=["kind"],
        writer_properties=small,
    )
    return place


def places(rows: StoredRows) -> list[int]:
    return sorted(place for table in rows.tables() for place in table["place"].to_pylist())


def test_only_wanted_rows_and_columns_are_read(uri: str) -> None:
    where = (pc.field("place") >= ROWS) & (pc.field("place") < ROWS + 10)
    rows = stored_rows(TableHandle(uri), ["place", "kind", "place"], where, {"kind": ["odd"]})
    assert rows.whole().column_names == ["place", "kind"]
    assert set(rows.whole()["kind"].to_pylist()) == {"odd"}
    assert places(rows) == list(range(ROWS + 1, ROWS + 10, 2))
    assert len(rows.fragments) == 1, "the first day's file is skipped, and the other partition's"
    chosen = rows.whole(lambda table: pc.equal(table["place"], ROWS + 3))
    assert chosen["place"].to_pylist() == [ROWS + 3]


@pytest.mark.parametrize("lacks", ["both", "least", "greatest"])
def test_a_file_without_a_bound_is_read_whatever_is_asked_of_the_column(uri: str, lacks: str) -> None:
    """Logs of earlier versions have nulls counted and no bounds."""
    version = DeltaTable(uri).version() + 1
    (file, *_) = (f for f in pa.table(DeltaTable(uri).get_add_actions()).to_pylist() if f["partition"]["kind"] == "odd")
    bounds = {
        "minValues": {} if lacks != "greatest" else {"place": 0},
        "maxValues": {"place": 9} if lacks == "least" else {},
    }
    stats = {"numRecords": file["num_records"], "nullCount": {"place": 0}, **bounds}
    add = {"path": file["path"], "partitionValues": file["partition"], "size": file["size_bytes"]}
    add |= {"modificationTime": 0, "dataChange": False, "stats": json.dumps(stats)}
    Path(uri, "_delta_log", f"{version:020d}.json").write_text(json.dumps({"add": add}))
    rows = stored_rows(TableHandle(uri), ["place"], pc.field("place") >= 0)
    assert places(rows) == list(range(2 * ROWS))
    assert dataset_of(DeltaTable(uri), file_system(uri, {})).count_rows(filter=pc.field("place") < 10) == 10


def test_partitions_may_have_any_value(tmp_path: Path) -> None:
    kinds = ["50% off", "a/b", "é ü", "x=y", None]
    place = str(tmp_path / "100% #1")
    write_deltalake(place, pa.table({"kind": kinds, "n": [0, 1, 2, 3, 4]}), partition_by=["kind"])
    found = stored_rows(TableHandle(place), ["kind", "n"]).whole().sort_by("n")
    assert found["kind"].to_pylist() == kinds
    some = stored_rows(TableHandle(place), ["n"], None, {"kind": ["a/b", "x=y", "z"]})
    assert (sorted(some.whole()["n"].to_pylist()), len(some.fragments)) == ([1, 3], 2)
    summaries = summarize_files(TableHandle(place), "kind", ["é ü", "50% off"], ["n"])
    assert sorted((file.partition, file.bounds["n"]) for file in summaries) == [("50% off", (0, 0)), ("é ü", (2, 2))]


def test_a_column_that_an_older_file_lacks_is_null(uri: str) -> None:
    found = stored_rows(TableHandle(uri), ["place", "late"]).whole()
    assert {(row["place"] < ROWS, row["late"]) for row in found.to_pylist()} == {(True, None), (False, 7)}


@pytest.mark.parametrize("most_rows", [600, 1500, 4000, 100_000])
def test_parts_have_all_rows_once_also_elsewhere(uri: str, most_rows: int) -> None:
    rows = stored_rows(TableHandle(uri), ["place"])
    parts = [pickle.loads(pickle.dumps(part)) for part in rows.split(most_rows)]
    assert sorted(place for part in parts for place in places(part)) == list(range(2 * ROWS))
    assert rows.n_rows == 2 * ROWS == sum(part.n_rows for part in parts)
    assert len(parts) == 1 if most_rows >= 2 * ROWS else len(parts) > 2


def test_bytes_are_those_of_the_columns_that_are_read(uri: str) -> None:
    place, both = (stored_rows(TableHandle(uri), columns) for columns in (["place"], ["place", "text"]))
    assert 0 < place.n_bytes < both.n_bytes
    assert sum(part.n_bytes for part in both.split(1500)) == both.n_bytes
    assert replace(place, fragments=(), beside=day(2)).n_bytes == 8 * ROWS


def test_nothing_is_wanted(uri: str) -> None:
    for rows in (
        stored_rows(TableHandle(uri), ["place"], None, {"kind": []}),
        stored_rows(TableHandle(uri), ["place"], pc.field("place") < 0),
    ):
        assert (places(rows), rows.any(), rows.whole().num_rows, rows.n_rows) == ([], False, 0, 0)
        assert rows.split(10) == []
    assert stored_rows(TableHandle(uri), ["place"]).any()
    assert stored_rows(TableHandle(uri), ["text"]).none().schema == pa.schema([("text", pa.string())])


SERVE = """
import sys
from pathlib import Path
from tests.landing.test_remote import ObjectStore
folder = Path(sys.argv[1])
with ObjectStore() as server:
    for file in folder.rglob("*"):
        if file.is_file():
            server.objects[f"lake/table/{file.relative_to(folder).as_posix()}"] = file.read_bytes()
    print(server.server_address[1], flush=True)
    server.serve_forever()
"""


@pytest.fixture
def store(uri: str) -> Iterator[dict[str, str]]:
    """The options of an object store that has the table. A process of its own: what opens a file holds this one up."""
    command = [sys.executable, "-c", SERVE, uri]
    with subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{int(server.stdout.readline())}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "here",
            "AWS_ACCESS_KEY_ID": "any",
            "AWS_SECRET_ACCESS_KEY": "any",
        }
        server.terminate()


@pytest.mark.slow
def test_files_of_an_object_store_are_read_as_local_ones_are(uri: str, store: dict[str, str]) -> None:
    where, columns = pc.field("place") < ROWS + 10, ["place", "late"]
    stored, local = TableHandle("s3://bucket/lake/table", store), TableHandle(uri)
    there, here = stored_rows(stored, columns, where), stored_rows(local, columns, where)
    parts = [pickle.loads(pickle.dumps(part)) for part in there.split(1500)]
    assert sorted(place for part in parts for place in places(part)) == places(there) == places(here)
    noted = take_fingerprint(stored, "meters", None)
    assert noted == take_fingerprint(local, "meters", None)
    assert change_since(stored, "meters", noted) is None
    later = replace(noted, version=noted.version + 1)
    assert "are gone" in str(change_since(stored, "meters", later))
    assert list(misread_rows(stored, ["place", "text"], {})) == []
    assert list(differing_files(stored, {})) == []


def test_rows_beside_the_files_are_rows_too(uri: str) -> None:
    more = pa.table({"place": [2 * ROWS, 2 * ROWS + 1], "text": ["a", "b"]})
    rows = replace(stored_rows(TableHandle(uri), ["place"]), beside=more)
    everything = list(range(2 * ROWS + 2))
    assert places(rows) == everything
    assert rows.n_rows == len(everything)
    assert sorted(place for part in rows.split(4000) for place in places(part)) == everything
    assert replace(rows, fragments=()).any()
