"""Tables of a real PostgreSQL as drops: by time, by id, by snapshot; read once, whatever happens in between."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_jobs.config import Settings
from spark_jobs.extraction import extraction as module
from spark_jobs.extraction.errors import ConnectionUnknown, ExtractLost, OriginUnreachable, OriginUnsuitable
from spark_jobs.jobs.request import Request
from spark_jobs.jvm.jars import POSTGRESQL
from spark_jobs.landing import ledger
from spark_jobs.plans.plan import plan_run
from spark_jobs.sources import find_source
from spark_jobs.storage.descriptions.times import micros
from tests.empty_lake import empty
from tests.extraction.harness import home_with, land, loads, run, source_with, time
from tests.jobs.harness import DAY, START, published, write_source
from tests.postgres import PASSWORD, USER, Postgres, postgres

pytestmark = [
    pytest.mark.turns,
    pytest.mark.spark,
    pytest.mark.skipif(not POSTGRESQL.is_there(Settings()), reason="PostgreSQL's driver: make setup-postgresql"),
]
BY_TIME = "landing: {kind: table, connection: shop, table: meters, increasing: seen}"
BY_ID = "landing: {kind: table, connection: shop, query: 'SELECT *, 1 AS one FROM meters', increasing: number}"
SNAPSHOT = "landing: {kind: table, connection: shop, table: meters, snapshot: true}"
EXTRACTS = "SELECT number, seq_no, range, rows, gone, files FROM bronze.extracts ORDER BY number"
WRONG = "-".join(("wröng", "password"))
"""Put together, so that no line of this file has it, which a traceback would show."""


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with postgres() as running:
        yield running


@pytest.fixture
def shop(server: Postgres) -> Iterator[Postgres]:
    server.execute(
        "CREATE TABLE meters (number BIGSERIAL, id TEXT, meter TEXT, at TIMESTAMPTZ, seen TIMESTAMPTZ, load INT,"
        " heat DOUBLE PRECISION, price NUMERIC(20, 6), note TEXT)"
    )
    yield server
    server.execute("DROP TABLE meters")


def insert(shop: Postgres, *rows: tuple[str, int, int, int]) -> None:
    """Rows of an identity, a drop, a minute in it and a load."""
    values = [
        (name, f"m-{name[0]}", time(drop, minute), time(drop, minute + 1), load) for name, drop, minute, load in rows
    ]
    shop.execute(
        "INSERT INTO meters (id, meter, at, seen, load, heat, price, note)"
        " VALUES (%s, %s, %s, %s, %s, 0.1, 0.000001, E'a \"quoted\"\\nßtext')",
        *values,
    )


def home(settings: Settings, tmp_path: Path, shop: Postgres, landing: str = BY_TIME) -> Settings:
    connections = {"shop": {"url": shop.url, "user": USER, "password": PASSWORD}}
    return home_with(settings, tmp_path, landing, connections)


ROWS = [("a1", 0, 5, 1), ("a2", 0, 1430, 2), ("b1", 1, 0, 3), ("b2", 1, 700, 4), ("b3", 1, 700, 4), ("c1", 2, 10, 5)]


@pytest.mark.long
def test_a_table_publishes_what_the_same_rows_in_files_do(
    lake: SparkSession, spark_settings: Settings, tmp_path: Path, shop: Postgres
) -> None:
    insert(shop, *ROWS)
    settings = home(spark_settings, tmp_path, shop)
    for day in range(3):
        run(lake, settings, day, day)
    tables = ("silver.hourly", "silver.shifts", "gold.meters")
    daily = {name: published(lake, name) for name in tables}
    extracted = lake.sql(EXTRACTS).collect()
    assert [row.rows for row in extracted] == [2, 3, 1]
    assert json.loads(extracted[1].range) == {
        "from": "2024-01-02T00:00:00.000000",
        "until": "2024-01-03T00:00:00.000000",
    }
    extra = lake.sql("SELECT extra FROM bronze.meters_deltas WHERE delta_id = 'a1'").collect()[0].extra
    assert (extra["price"], extra["note"]) == ("0.000001", 'a "quoted"\nßtext')

    # read once: what the table holds now is no matter, and a second run changes nothing
    shop.execute("UPDATE meters SET load = 99")
    again = run(lake, settings, 0, 2)
    assert again[0]["known_files"] == 3
    assert "extracted_rows" not in again[0]
    assert {name: published(lake, name) for name in tables} == daily
    files = tmp_path / "as files"
    (settings.landing_folder / "meters").rename(files)

    empty(lake)
    other = home(spark_settings, tmp_path / "backfill", shop)
    values = {name: load for name, _, _, load in ROWS}
    for name, load in values.items():
        shop.execute(f"UPDATE meters SET load = {load} WHERE id = '{name}'")
    run(lake, other, 0, 2)
    assert {name: published(lake, name) for name in tables} == daily
    backfilled = {
        path.relative_to(other.landing_folder / "meters"): path.read_bytes()
        for path in other.landing_folder.rglob("*.gz")
    }
    assert backfilled == {path.relative_to(files): path.read_bytes() for path in files.rglob("*.gz")}

    empty(lake)
    by_files = write_source(
        spark_settings.model_copy(update={"home": tmp_path / "f", "landing": tmp_path / "f" / "landing"}),
        source_with('landing: {path: "meters/{date}/*", format: ndjson}'),
    )
    by_files.landing_folder.mkdir(parents=True)
    files.rename(by_files.landing_folder / "meters")
    run(lake, by_files, 0, 2)
    assert {name: published(lake, name) for name in tables} == daily


def test_late_rows_come_by_the_overlap_or_by_reading_again(
    lake: SparkSession, spark_settings: Settings, tmp_path: Path, shop: Postgres
) -> None:
    settings = home(spark_settings, tmp_path, shop, BY_TIME.replace("seen}", "seen, overlap: 1 day}"))
    insert(shop, ("a1", 0, 5, 1), ("a2", 0, 6, 2))
    land(lake, settings, 0, 0)
    insert(shop, ("a3", 0, 7, 3), ("b1", 1, 5, 4))
    landed = land(lake, settings, 1, 1)
    assert (landed["rows"], landed["duplicates"]) == (2, 0), "only what is new: the overlap repeats nothing"
    assert loads(lake) == [("a1", 1), ("a2", 2), ("a3", 3), ("b1", 4)]

    insert(shop, ("a4", 0, 1, 5))
    shop.execute("DELETE FROM meters WHERE id = 'a1'")
    shop.execute("UPDATE meters SET load = 20 WHERE id = 'a2'")
    landed = land(lake, settings, 0, 0, reread=True)
    # a4 and the new a2 came, a1 and the old a2 went; a3 stays in the drop that brought it
    assert (landed["extracted_rows"], landed["gone_rows"]) == (2, 2)
    assert loads(lake) == [("a2", 20), ("a3", 3), ("a4", 5), ("b1", 4)]
    landed = land(lake, settings, 0, 1, reread=True)
    assert (landed["extracted_rows"], landed["gone_rows"], landed["rows"]) == (0, 0, 0)


def test_ids_go_on_where_they_ended(
    lake: SparkSession, spark_settings: Settings, tmp_path: Path, shop: Postgres
) -> None:
    settings = home(spark_settings, tmp_path, shop, BY_ID)
    insert(shop, ("a1", 0, 5, 1), ("a2", 0, 6, 2))
    land(lake, settings, 0, 0)
    assert land(lake, settings, 1, 1)["empty_drops"] == ["2024-01-02"]
    insert(shop, ("b1", 1, 6, 3))
    land(lake, settings, 2, 3)
    ranges = [json.loads(row.range) for row in lake.sql(EXTRACTS).collect()]
    assert ranges == [
        {"after": None, "through": 2},
        {"after": 2, "through": 2},
        {"after": 2, "through": 3},
        {"after": 3, "through": 3},
    ]
    assert loads(lake) == [("a1", 1), ("a2", 2), ("b1", 3)]


def test_a_snapshot_lands_as_what_differs(
    lake: SparkSession, spark_settings: Settings, tmp_path: Path, shop: Postgres
) -> None:
    settings = home(spark_settings, tmp_path, shop, SNAPSHOT)
    insert(shop, ("a1", 0, 5, 1), ("a2", 0, 6, 2), ("a3", 0, 7, 3), ("a4", 0, 8, 4))
    land(lake, settings, 0, 0)
    ids = {row.delta_id: row.row_id for row in lake.sql("SELECT delta_id, row_id FROM bronze.meters_deltas").collect()}
    shop.execute("DELETE FROM meters WHERE id = 'a1'")
    shop.execute("UPDATE meters SET load = 30 WHERE id = 'a3'")
    insert(shop, ("b1", 1, 5, 5))
    landed = land(lake, settings, 1, 1)
    assert (landed["rows"], landed["rows_back"]) == (2, 2)
    assert loads(lake) == [("a2", 2), ("a3", 30), ("a4", 4), ("b1", 5)]
    now = {row.delta_id: row.row_id for row in lake.sql("SELECT delta_id, row_id FROM bronze.meters_deltas").collect()}
    assert (now["a2"], now["a4"]) == (ids["a2"], ids["a4"]), "rows that stay keep their ids"
    shop.execute("DELETE FROM meters")
    landed = land(lake, settings, 2, 2)
    assert (landed["gone_rows"], loads(lake)) == (4, [])


@pytest.mark.turns
@pytest.mark.parametrize(
    "step", [pytest.param("commit", marks=pytest.mark.long), "reveal", pytest.param("write", marks=pytest.mark.long)]
)
def test_a_run_that_is_killed_is_as_if_it_had_not_been(
    lake: SparkSession, spark_settings: Settings, tmp_path: Path, shop: Postgres, step: str, monkeypatch: Any
) -> None:
    """After the files were written, after they count, and after they have their names; rows arrive in between."""
    settings = home(spark_settings, tmp_path, shop, BY_ID)
    insert(shop, ("a1", 0, 5, 1), ("a2", 0, 6, 2))

    def killed(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    target = {"commit": (module.Readings, "commit"), "reveal": (module, "reveal"), "write": (ledger, "write")}[step]
    with monkeypatch.context() as patch:
        if step == "reveal":
            real = module.reveal
            # the one before reading passes
            calls = iter([real])

            def reveal(*given: Any) -> None:
                next(calls, killed)(*given)

            patch.setattr(module, "reveal", reveal)
        else:
            patch.setattr(*target, killed)
        with pytest.raises(KeyboardInterrupt):
            land(lake, settings, 0, 0)
    insert(shop, ("a3", 0, 7, 3))
    land(lake, settings, 0, 0)
    land(lake, settings, 1, 1)
    assert loads(lake) == [("a1", 1), ("a2", 2), ("a3", 3)]
    rows = [row.rows for row in lake.sql(EXTRACTS).collect()]
    assert rows == ([3, 0] if step == "commit" else [2, 1])
    assert [path.name for path in settings.landing_folder.rglob(".*") if path.is_file()] == []


def test_a_plan_reads_and_leaves_nothing(
    lake: SparkSession, spark_settings: Settings, tmp_path: Path, shop: Postgres
) -> None:
    settings = home(spark_settings, tmp_path, shop, BY_ID)
    insert(shop, ("a1", 0, 5, 1))
    source = find_source(settings.sources, "meters")
    made = plan_run(settings, source, (micros(START), micros(START + DAY)), lake, request=Request(), sample=0)
    assert made.base.files.keys() == {"meters/2024-01-01/rows-00000.ndjson.gz"}
    assert list(settings.landing_folder.rglob("*.gz*")) == []
    insert(shop, ("a2", 0, 6, 2))
    land(lake, settings, 0, 0)
    assert loads(lake) == [("a1", 1), ("a2", 2)]


def test_what_is_wrong_has_a_name_and_shows_no_secret(
    lake: SparkSession, spark_settings: Settings, tmp_path: Path, shop: Postgres
) -> None:
    insert(shop, ("a1", 0, 5, 1))
    good = {"url": shop.url, "user": USER, "password": PASSWORD}
    cases: list[tuple[type[Exception], str, dict[str, str], str]] = [
        (
            OriginUnreachable,
            "user and password",
            {**good, "password": WRONG},
            BY_TIME,
        ),
        (OriginUnreachable, "check the connection's url", {**good, "url": "jdbc:postgresql://127.0.0.1:1/x"}, BY_TIME),
        (OriginUnsuitable, "no_such", good, BY_TIME.replace("table: meters", "table: no_such")),
        (OriginUnsuitable, "no nothing among", good, BY_TIME.replace("seen}", "nothing}")),
        (OriginUnsuitable, "overlap", good, BY_TIME.replace("seen}", "seen, overlap: 5}")),
        (OriginUnsuitable, "TIDEMARK_JDBC_JARS", {**good, "url": "jdbc:oracle:thin:@//127.0.0.1/x"}, BY_TIME),
        (ConnectionUnknown, "`url`", {"user": "x"}, BY_TIME),
    ]
    for number, (kind, expected, connection, landing) in enumerate(cases):
        settings = home_with(spark_settings, tmp_path / str(number), landing, {"shop": connection})
        with pytest.raises(kind, match=expected) as refusal:
            land(lake, settings, 0, 0)
        for secret in (PASSWORD, WRONG):
            assert secret not in "".join(map(str, (refusal.value, refusal.value.__cause__, refusal.getrepr())))
    settings = home(spark_settings, tmp_path, shop)
    settings.connections.chmod(0o640)
    with pytest.raises(ConnectionUnknown, match="chmod 600"):
        land(lake, settings, 0, 0)
    settings.connections.chmod(0o600)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger, "write", _fail)
        with pytest.raises(RuntimeError):
            land(lake, settings, 0, 0)
    next(settings.landing_folder.rglob("*.gz")).unlink()
    with pytest.raises(ExtractLost, match="--reread"):
        land(lake, settings, 0, 0)
    land(lake, settings, 0, 0, reread=True)
    assert loads(lake) == [("a1", 1)]


def _fail(*_: Any) -> None:
    raise RuntimeError
