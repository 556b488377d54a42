"""The contracts of a lake, one suite over all implementations: readers get the same rows, writers add them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from spark_jobs.portal.held_lake import HeldLake
from spark_jobs.storage.descriptions.extract_table import EXTRACTS
from spark_jobs.storage.descriptions.schema import Column, Table
from spark_jobs.storage.descriptions.tables import FRONTIERS
from spark_jobs.storage.lakes.file_lake import FileLake
from spark_jobs.storage.lakes.lake import FrameLake, Lake, NeedsSpark, TableReader, with_frames
from spark_jobs.storage.lakes.overlay import OverlayLake
from spark_jobs.storage.lakes.spark_lake import SparkLake
from spark_jobs.storage.lakes.stored_lake import StoredLake

pytestmark = pytest.mark.spark

NUMBERS = Table(
    "silver",
    "contract_numbers",
    "Numbers.",
    (Column("kind", "STRING", "Kind."), Column("n", "BIGINT", "Number."), Column("text", "STRING", "Text.")),
    ("kind",),
    ("n",),
)
ODD, EVEN = [1, 3, 5, 7], [0, 2, 4]
READERS: dict[str, Callable[[SparkLake], TableReader]] = {
    "spark": lambda lake: lake,
    "files": lambda lake: FileLake(Path(lake.folder.root)),
    "overlay": OverlayLake,
    "stored": lambda lake: StoredLake(lake.folder.root),
    "held": lambda lake: HeldLake(lake.folder.root),
}
WRITERS: dict[str, Callable[[SparkLake], Lake]] = {
    "spark": lambda lake: lake,
    "files": lambda lake: FileLake(Path(lake.folder.root)),
    "overlay": OverlayLake,
}
FRAMES: dict[str, Callable[[SparkLake], FrameLake]] = {"spark": lambda lake: lake, "overlay": OverlayLake}


def frontier(source: str, token: int) -> dict[str, Any]:
    return {"source": source, "token": token}


def numbers(kind: str, values: list[int]) -> pa.Table:
    return pa.table({"kind": [kind] * len(values), "n": values, "text": [f"{kind} {n}" for n in values]})


def append(lake: Lake, *rows: pa.Table) -> None:
    lake.append_files(NUMBERS, lake.destination(NUMBERS).write(rows))


def read(lake: TableReader, **asked: Any) -> list[int]:
    return sorted(lake.stored(NUMBERS, ["n"], **asked).whole()["n"].to_pylist())


@pytest.fixture
def written(lake: SparkSession) -> SparkLake:
    """A lake with two records, and numbers in two partitions and three files."""
    of_session = SparkLake(lake)
    of_session.catalog.ensure({}, [NUMBERS])
    of_session.record(FRONTIERS, [frontier("meters", 1), frontier("gauges", 2)])
    append(of_session, numbers("odd", ODD[:2]))
    append(of_session, numbers("odd", ODD[2:]), numbers("even", EVEN))
    return of_session


@pytest.fixture
def readers(written: SparkLake) -> list[TableReader]:
    """All readers, over one lake: to make it takes longer than what a test asks them."""
    return [made(written) for made in READERS.values()]


@pytest.fixture(params=WRITERS)
def writer(request: pytest.FixtureRequest, written: SparkLake) -> Lake:
    return WRITERS[request.param](written)


def test_records_are_those_of_the_condition_and_none_of_a_table_that_is_not_there(readers: list[TableReader]) -> None:
    for reader in readers:
        assert sorted(row["token"] for row in reader.records(FRONTIERS)) == [1, 2]
        (of_gauges,) = reader.records(FRONTIERS, pc.field("source") == "gauges")
        assert (of_gauges["source"], of_gauges["token"]) == ("gauges", 2)
        assert reader.records(EXTRACTS) == []


def test_stored_rows_are_those_of_the_condition_and_the_partitions(readers: list[TableReader]) -> None:
    for reader in readers:
        assert read(reader) == sorted(ODD + EVEN)
        assert read(reader, where=pc.field("n") >= 4) == [4, 5, 7]
        assert read(reader, partitions={"kind": ["odd"]}) == ODD
        assert read(reader, where=pc.field("n") < 4, partitions={"kind": ["odd", "even"]}) == [0, 1, 2, 3]
        assert read(reader, partitions={"kind": []}) == []
        texts = reader.stored(NUMBERS, ["text", "kind"], pc.field("n") == 5).whole()
        assert texts.select(["kind", "text"]).to_pylist() == [{"kind": "odd", "text": "odd 5"}]


def summarized(lake: TableReader, kinds: list[str] | None) -> dict[str, tuple[int, int, int]]:
    """The rows, the least and the greatest number of each kind, by the summaries of its files."""
    files = list(lake.summaries(NUMBERS, "kind", kinds, ["n"]))
    of_kind = {file.partition: [f for f in files if f.partition == file.partition] for file in files}
    return {
        kind: (sum(f.rows for f in of), min(f.bounds["n"][0] for f in of), max(f.bounds["n"][1] for f in of))
        for kind, of in of_kind.items()
    }


def test_summaries_have_the_rows_and_bounds_of_partitions(readers: list[TableReader]) -> None:
    for reader in readers:
        assert summarized(reader, None) == {"odd": (4, 1, 7), "even": (3, 0, 4)}
        assert summarized(reader, ["even"]) == {"even": (3, 0, 4)}


def test_names_are_those_of_the_tables(readers: list[TableReader]) -> None:
    for reader in readers:
        assert NUMBERS.table in reader.catalog.names_if_present("silver")
        assert EXTRACTS.table not in reader.catalog.names_if_present("bronze")
        assert reader.catalog.names_if_present("nowhere") == set()


def test_what_is_written_is_read_beside_what_was_there(writer: Lake) -> None:
    writer.record(FRONTIERS, [frontier("meters", 3)])
    writer.record_next(FRONTIERS, pc.field("source") == "meters", lambda rows: [frontier("meters", 10 * len(rows))])
    assert sorted(row["token"] for row in writer.records(FRONTIERS)) == [1, 2, 3, 20]
    append(writer, numbers("odd", [9]))
    writer.replace_files(NUMBERS, writer.destination(NUMBERS).write([numbers("prime", [11])]), "kind", [])
    assert read(writer) == sorted([*ODD, *EVEN, 9, 11])
    assert read(writer, where=pc.field("n") > 8) == [9, 11]
    assert read(writer, partitions={"kind": ["odd"]}) == [*ODD, 9]
    assert sum(file.rows for file in writer.summaries(NUMBERS, "kind", None, ["n"])) == len(ODD + EVEN) + 2


@pytest.mark.parametrize("name", FRAMES)
def test_frames_are_read_beside_what_was_there(name: str, written: SparkLake) -> None:
    lake = FRAMES[name](written)
    append(lake, numbers("odd", [9]))
    lake.append(NUMBERS, lake.spark.createDataFrame([("odd", 13, "x")], NUMBERS.schema()), None)
    assert read(lake, partitions={"kind": ["odd"]}) == [*ODD, 9, 13]
    assert {row.n for row in lake.read(NUMBERS).where("n > 6").collect()} == {7, 9, 13}
    assert with_frames(lake, "this") is lake


def test_a_lake_of_files_has_no_frames(written: SparkLake) -> None:
    with pytest.raises(NeedsSpark, match="since this needs one"):
        with_frames(FileLake(Path(written.folder.root)), "this")


def test_records_that_cannot_follow_are_not_recorded(writer: Lake) -> None:
    def refuse(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        raise ValueError(f"after {len(rows)}")

    with pytest.raises(ValueError, match="after 2"):
        writer.record_next(FRONTIERS, pc.field("token") > 0, refuse)
    assert len(writer.records(FRONTIERS)) == 2


def test_a_plan_leaves_no_table_and_no_file_behind(written: SparkLake) -> None:
    def state() -> dict[str, Any]:
        files = written.folder.files().get_file_info(pa.fs.FileSelector("", recursive=True))
        return {file.path: file.size for file in files if file.type == pa.fs.FileType.File}

    before = state()
    plan = OverlayLake(written)
    plan.catalog.ensure({"bronze": ""}, [EXTRACTS])
    plan.catalog.define("DROP TABLE silver.contract_numbers")
    test_what_is_written_is_read_beside_what_was_there(plan)
    plan.close()
    assert state() == before
    assert plan.commits == 0
    assert read(written) == sorted(ODD + EVEN)
