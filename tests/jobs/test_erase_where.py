"""Rows are erased by a value of another column than the entity: their entities keep their other rows, and every table
is, now and as of every time, as in a lake into which the rows never landed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from spark_jobs.audit.audit import audit
from spark_jobs.config import Settings
from spark_jobs.engine.records import erased_hash
from spark_jobs.erasure.erase import EntityUnknown, erase, find
from spark_jobs.jobs.visits import merge
from spark_jobs.landing.choices import Choice, of_condition
from spark_jobs.landing.erasures import ErasedColumnGone, ErasureUnfinished, erased_values, erasures
from spark_jobs.sources import Source, find_source
from spark_jobs.storage.descriptions.people_tables import ERASURES, FINISHED
from spark_jobs.storage.descriptions.schema import Table
from spark_jobs.storage.descriptions.tables import DATABASES
from spark_jobs.storage.lakes.spark_lake import SparkLake
from spark_jobs.upkeep.pins import make_pin
from tests.jobs.harness import MINUTE, START, published, run
from tests.support.erasures import LEFT_OUT, assert_nothing_left, at_times, erase_until, land, rows_in_files

pytestmark = [pytest.mark.spark, pytest.mark.turns]

GONE = "c0354"
SOURCE = """
source: {name}
start: 2024-01-01
every: 1 day
landing: {{path: "{name}/{{date}}/*", format: ndjson}}
columns:
  id: string
  shop: string
  site: string
  customer: {{type: string, from: order.customer}}
  at: timestamp
  load: {{type: int, from: order.load}}
timelines: {{taken: at}}
event_time: taken
entity: shop
delta_id: id
windows:
  by_site{mark}:
    kind: sliding
    size: 60 min
    key: site
    time: taken
    aggregates: {{n: count(), total: sum(load), high: max(load)}}
    late: {{policy: reemit, limit: 6 hours}}
  by_customer{mark}:
    kind: session
    gap: 90 min
    key: customer
    time: taken
    aggregates: {{n: count(), total: sum(load)}}
    late: reemit
  by_shop{mark}:
    kind: session
    gap: 90 min
    key: shop
    time: taken
    aggregates: {{n: count(), total: sum(load)}}
    late: reemit
"""
SUMS = "state: {mode: add, datatype: int64, components: {orders: 1, load: load}}\n"
CHAINS = (
    "state: {mode: diff, datatype: int64, components: {load: load}}\n"
    "compaction: {strategy: tiered, keep_recent: 1, delta_threshold: 2}\n"
)
WINDOWS = ("by_site", "by_customer", "by_shop")
NAMES = {"orders": "", "others": "_o"}


def line(minute: int, shop: str, customer: str, load: int, *, site: str = "JFK", identity: str | None = None) -> str:
    at = (START + minute * MINUTE).strftime("%Y-%m-%dT%H:%M:%SZ")
    name = identity or f"{shop}-{minute}-{load}"
    order = {"customer": customer, "load": load}
    return json.dumps({"id": name, "shop": shop, "site": site, "at": at, "order": order})


NIGHT = 24 * 60
DROPS = {
    0: [
        *[line(60 + 7 * i, f"S{i % 3}", GONE if i % 4 == 1 else f"c{i}", i) for i in range(12)],
        line(400, "S9", GONE, 9, site="EWR"),  # a shop with no other order
        line(560, "S1", GONE, 4),
        line(600, "S1", "c1", 1),
        line(620, "S2", GONE, 3, identity="corrected-from"),
        line(630, "S2", "c2", 5, identity="corrected-to"),
        f'{{"id": "x", "shop": "S1", "site": 3, "order": {{"customer": "{GONE}"}}, "at": "never"}}',
    ],
    1: [
        *[line(NIGHT + 60 + 9 * i, f"S{i % 3}", GONE if i % 3 == 2 else f"c{i}", i) for i in range(9)],
        line(70, "S1", GONE, 5),  # late
        line(480, "S2", "c1", 2),  # late
        line(67, "S1", GONE, 1),  # again
        line(60, "S0", "c0", 0),  # again
        line(61, "S0", GONE, 77, identity="S0-60-0"),  # other values under an id that counts
        "nonsense",
    ],
    2: [line(2 * NIGHT + 5, "S2", "c2", 1), line(500, "S1", "c3", 3), line(NIGHT + 80, "S0", GONE, 8)],
}
CORRECTED = [
    line(620, "S2", "c7", 3, identity="corrected-from")
    if "corrected-from" in text
    else line(630, "S2", GONE, 5, identity="corrected-to")
    if "corrected-to" in text
    else text
    for text in DROPS[0]
]
"""The first drop, in which one order has changed to another customer, and another one to the customer who goes."""


def without(lines: list[str]) -> list[str]:
    """The lines without those of the customer; others keep their place."""
    return ["nothing" if GONE in text else text for text in lines]


@pytest.fixture(params=["sums", pytest.param("chains", id="chains")])
def home(spark_settings: Settings, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Settings]:
    """Two sources: one with orders of the customer, the other with the same files without them."""
    settings = spark_settings.model_copy(
        update={"home": tmp_path, "landing": tmp_path / "landing", "sources": tmp_path / "sources"}
    )
    settings.sources.mkdir()
    state = CHAINS if request.param == "chains" else SUMS
    for name, mark in NAMES.items():
        (settings.sources / f"{name}.yml").write_text(SOURCE.format(name=name, mark=mark) + state)
    yield settings


def orders(home: Settings) -> Source:
    return find_source(home.sources, "orders")


def gone(home: Settings) -> Choice:
    return of_condition(orders(home), f"customer = '{GONE}'")


def run_all(lake: SparkSession, home: Settings) -> None:
    for drop, lines in DROPS.items():
        land(home, "orders", drop, lines)
        land(home, "others", drop, without(lines))
        for source in NAMES:
            run(lake, home, drop, drop, source=source)


def correct(lake: SparkSession, home: Settings) -> None:
    land(home, "orders", 0, CORRECTED)
    land(home, "others", 0, without(CORRECTED))
    for source in NAMES:
        run(lake, home, 0, 0, source=source)


def assert_as_never_there(lake: SparkSession, home: Settings) -> None:
    for window in WINDOWS:
        assert at_times(lake, f"silver.{window}") == at_times(lake, f"silver.{window}_o"), window
    assert at_times(lake, "gold.orders") == at_times(lake, "gold.others")
    late = {source: late_rows(lake, source) for source in NAMES}
    assert late["orders"] == late["others"]
    deltas = {source: published(lake, f"bronze.{source}_deltas", "source", "row_id", "chunk_id") for source in NAMES}
    assert deltas["orders"] == deltas["others"]
    if orders(home).keeps_chains:
        assert chains(lake, "orders") == chains(lake, "others")


def late_rows(lake: SparkSession, source: str) -> list[Any]:
    rows = lake.sql(
        "SELECT replace(definition, '_o', '') AS definition, entity, event_time, drop_lo, late_by, action, diff,"
        f" known_from FROM silver.late_history WHERE source = '{source}'"
    )
    return sorted(map(repr, rows.collect()))


def chains(lake: SparkSession, source: str) -> list[Any]:
    """All segments with their deltas, without row ids."""
    rows = lake.sql(
        "SELECT entity, start_time, end_time, settled, settled_end, timestamp, delta_count, ints, seen, event_times,"
        " known, known_until, delta_ints, era, known_from, known_to, revision FROM gold.chain_history"
        f" WHERE source = '{source}' AND era <> 'compaction'"
    )
    return sorted(map(repr, rows.collect()))


def test_it_is_as_if_the_rows_had_never_landed(lake: SparkSession, home: Settings) -> None:
    run_all(lake, home)
    make_pin(SparkLake(lake), [orders(home)], "before")
    correct(lake, home)
    preview = find(home, orders(home), lake, gone(home))
    before = rows_in_files(lake)
    report = erase(home, orders(home), lake, gone(home), "asked on 2024-01-05")
    assert (report.rows, report.records, report.left, report.since) == (preview.rows, preview.records, [], None)
    assert (preview.records, len(preview.files)) == (1, 3)
    assert preview.tables == {table: counts for table, counts in report.tables.items() if any(counts.values())}
    assert sorted(report.files) == sorted(preview.files)
    assert_as_never_there(lake, home)
    assert_nothing_left(lake, home, GONE)
    assert rows_in_files(lake) == before
    assert audit(home, orders(home), lake).failed == []
    [(column, step)] = [(one.erased_column, one.step) for one in erasures(SparkLake(lake), orders(home))]
    assert (column, step) == ("customer", FINISHED)
    assert {row.shop for row in lake.sql("SELECT shop FROM pins.before__by_shop").collect()} == {"S0", "S1", "S2"}


@pytest.mark.parametrize("home", ["sums", pytest.param("chains", marks=pytest.mark.long)], indirect=True)
def test_what_lands_of_them_again_is_not_kept(lake: SparkSession, home: Settings) -> None:
    run_all(lake, home)
    merge(home, orders(home), lake, vacuum=False)
    erase(home, orders(home), lake, gone(home), "asked")
    late = [line(300, "S1", GONE, 7), line(310, "S1", "c9", 7), f'{{"order": {{"customer": "{GONE}"}}, "at": 1']
    again = [*DROPS[0], line(620, "S4", GONE, 7), line(640, "S5", "c5", 1)]
    for drop, lines in ((3, late), (0, again)):
        land(home, "orders", drop, lines)
        land(home, "others", drop, without(lines))
    for source in NAMES:
        run(lake, home, 0, 3, source=source)
    assert_as_never_there(lake, home)
    assert_nothing_left(lake, home, GONE)
    assert audit(home, orders(home), lake).failed == []
    file = home.sources / "orders.yml"
    text = file.read_text().replace("by_customer", "by_other").replace("key: customer", "key: site")
    file.write_text(text.replace("  customer: {type: string, from: order.customer}\n", ""))
    with pytest.raises(ErasedColumnGone, match="declare customer again"):
        run(lake, home, 0, 3, source="orders", accept_definition=True)


STEPS = ["histories", "account", "rows", "texts", "versions", "search"]


@pytest.mark.parametrize("home", ["chains"], indirect=True)
@pytest.mark.parametrize("step", ["rows", *(pytest.param(s, marks=pytest.mark.long) for s in STEPS if s != "rows")])
def test_interrupted_anywhere_it_goes_on(lake: SparkSession, home: Settings, step: str) -> None:
    run_all(lake, home)
    correct(lake, home)
    for _ in range(2):
        erase_until(step, lake, home, orders(home), gone(home))
        with pytest.raises(ErasureUnfinished, match="--where"):
            run(lake, home, 2, 2, source="orders")
    report = erase(home, orders(home), lake, gone(home), "asked")
    assert report.left == []
    assert_as_never_there(lake, home)
    assert audit(home, orders(home), lake).failed == []


@pytest.mark.parametrize("home", ["sums"], indirect=True)
def test_an_entity_that_was_erased_before_columns_were_recorded_stays_out(lake: SparkSession, home: Settings) -> None:
    columns = tuple(column for column in ERASURES.columns if column.name != "erased_column")
    tables, salt = SparkLake(lake), "00" * 16
    tables.catalog.ensure(DATABASES, [Table("bronze", "erasures", ERASURES.comment, columns, ERASURES.partitions)])
    row = {"source": "orders", "erasure": "erasure-1", "entity_hash": erased_hash("S1", salt), "salt": salt}
    tables.record(
        ERASURES, [{**row, "step": FINISHED, "number": 3, "because": "asked", "erased_by": "ann", "recorded_at": START}]
    )
    erased = erased_values(tables, orders(home))
    assert erased is not None and erased.has("S1") and not erased.columns
    land(home, "orders", 0, DROPS[0])
    run(lake, home, 0, 0, source="orders")
    assert {row.shop for row in lake.sql("SELECT shop FROM gold.orders").collect()} == {"S0", "S2", "S9"}
    report = erase(home, orders(home), lake, gone(home), "asked")
    assert report.left == []
    assert {row.shop for row in lake.sql("SELECT shop FROM gold.orders").collect()} == {"S0", "S2"}


@pytest.mark.parametrize("home", ["sums"], indirect=True)
def test_nothing_is_erased_by_a_value_that_never_landed(lake: SparkSession, home: Settings) -> None:
    land(home, "orders", 0, DROPS[0])
    run(lake, home, 0, 0, source="orders")
    nobody = of_condition(orders(home), "customer = 'c03'")
    with pytest.raises(EntityUnknown, match="column customer"):
        erase(home, orders(home), lake, nobody, "asked")
    numbered = of_condition(orders(home), "load = 9")
    assert find(home, orders(home), lake, numbered).rows == 2
    assert published(lake, "silver.by_site", *LEFT_OUT)
    assert pa.types.is_int64(numbered.kind)
