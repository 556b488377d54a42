"""Money from files to published windows, on real Spark and Delta: every sum is that of Python's decimals, whatever came
late, was taken back, was mended or is asked for as of a time."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from decimal import ROUND_HALF_UP, Decimal, localcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from spark_jobs.cli.output import short_text
from spark_jobs.config import Settings
from spark_jobs.plans.replay import Asked, replay_of
from spark_jobs.reads.source_chunks import SourceChunks
from spark_jobs.reads.why import why
from spark_jobs.sources import load_source
from spark_jobs.storage.descriptions.times import micros
from tests.jobs.harness import DAY, MINUTE, START, Session, lake_of, run, write_lines, write_source

CALLS = {
    "n": "count()", "paid": "count(price)", "total": "sum(price)", "mean": "avg(price)", "least": "min(price)",
    "most": "max(price)", "opening": "first(price)", "ending": "last(price)", "prices": "count_distinct(price)",
    "half": "approx_quantile(price, 0.5, 0)", "sample": "collect(price, 2)", "tax_total": "sum(tax)",
}  # fmt: skip
SOURCE = f"""
source: shop
start: 2024-01-01
landing: {{path: "meters/{{date}}/*", format: ndjson}}
columns:
  id: string
  till: string
  at: timestamp
  price: decimal(18, 10)
  tax: {{type: "decimal(38, 2)", from: Tax}}
timelines: {{at: at}}
event_time: at
entity: till
delta_id: id
windows:
  days: {{kind: tumbling, size: 1 day, key: till, aggregates: {json.dumps(CALLS)}, late: reemit}}
  visits: {{kind: session, gap: 3 h, key: till, aggregates: {{total: sum(price), mean: avg(price)}}, late: reemit}}
  slid: {{kind: sliding, size: 2 h, key: till, aggregates: {{total: sum(price)}}, late: discard}}
  bursts:
    kind: adaptive
    key: till
    target_batch_size: 2
    min: 1 h
    max: 6 h
    reset: 1 day
    aggregates: {{total: sum(price)}}
    late: reemit
state: {{mode: add, datatype: int64, components: {{sales: 1}}}}
"""
ONE_WINDOW = SOURCE[: SOURCE.index("  visits:")] + SOURCE[SOURCE.index("state:") :]


@dataclass(frozen=True)
class Sale:
    """One row: the drop it lands in, its minute since START, its till and what it says."""

    drop: int
    minute: int
    till: str
    price: str | None
    tax: str = "0.01"

    def line(self) -> str:
        row = {"id": f"{self.till}-{self.minute}-{self.drop}", "till": self.till}
        row["at"] = f"{START + self.minute * MINUTE:%Y-%m-%dT%H:%M:%SZ}"
        # a number of JSON, digit by digit: no float in between
        told = "null" if self.price is None else self.price
        return f'{json.dumps(row)[:-1]}, "price": {told}, "Tax": "{self.tax}"}}'


NINES = "99999999.9999999999"
FIRST = [Sale(0, 60 + n, "a", NINES, "9" * 35 + ".99" if n == 0 else "0.01") for n in range(12)]
FIRST += [Sale(0, 300, "b", "0.1"), Sale(0, 301, "b", "0.2"), Sale(0, 302, "b", "0.3"), Sale(0, 900, "b", None)]
BROKEN = [Sale(0, 310, "b", "1e2"), Sale(0, 311, "b", "0.00000000001"), Sale(0, 312, "b", "100000000.5")]
NEXT = [Sale(1, 24 * 60 + 5, "a", "-0.0000000001"), Sale(1, 24 * 60 + 5, "b", "1.5000000000")]
LATE = [Sale(1, 303, "b", "-0.6"), Sale(1, 72, "a", "0.0000000012"), Sale(1, 240, "c", "12.3400000000")]


def mean(values: list[Decimal], scale: int) -> Decimal:
    with localcontext(prec=120, rounding=ROUND_HALF_UP):
        return (sum(values, Decimal()) / len(values)).quantize(Decimal(1).scaleb(-scale))


def days(sales: Iterable[Sale]) -> dict[tuple[str, int], dict[str, Any]]:
    """The windows `days`, in Python's decimals."""
    held: dict[tuple[str, int], list[Sale]] = {}
    for sale in sorted(sales, key=lambda s: (s.minute, s.drop)):
        held.setdefault((sale.till, sale.minute // (24 * 60)), []).append(sale)
    found = {}
    for window, own in held.items():
        prices = [Decimal(sale.price) for sale in own if sale.price is not None]
        with localcontext(prec=60):
            found[window] = {
                "n": len(own), "paid": len(prices), "total": sum(prices), "mean": mean(prices, 14),
                "least": min(prices), "most": max(prices), "opening": prices[0], "ending": prices[-1],
                "prices": len({*prices}), "half": float(sorted(prices)[(len(prices) - 1) // 2]),
                "sample": prices[:2], "tax_total": sum(Decimal(sale.tax) for sale in own),
            }  # fmt: skip
    return found


def published_days(spark: Session, table: str = "silver.days") -> dict[tuple[str, int], dict[str, Any]]:
    rows = spark.sql(f"SELECT *, unix_micros(window_start) AS start FROM {table}").collect()
    return {
        (row.till, (row.start - micros(START)) // (86_400 * 10**6)): {name: row[name] for name in CALLS} for row in rows
    }


@pytest.fixture
def home(spark_settings: Settings, tmp_path: Path) -> Settings:
    settings = spark_settings.model_copy(update={"home": tmp_path, "landing": tmp_path / "landing"})
    return write_source(settings, SOURCE, "shop")


@pytest.mark.spark
@pytest.mark.turns
def test_sums_of_money_are_those_of_pythons_decimals(lake: SparkSession, home: Settings) -> None:
    for sales, drop, name in (
        (FIRST, 0, "a.ndjson"), (BROKEN, 0, "bad.ndjson"), (NEXT, 1, "a.ndjson"), (LATE, 1, "late.ndjson"),
    ):  # fmt: skip
        write_lines(home, drop, [sale.line() for sale in sales], name)
    run(lake, home, 0, 0, source="shop")
    assert published_days(lake) == days(FIRST)
    assert published_days(lake)["a", 0]["total"] == Decimal("1199999999.9999999988")
    types = dict(lake.table("silver.days").dtypes)
    assert {types[n] for n in ("total", "least", "mean")} == {"decimal(28,10)", "decimal(18,10)", "decimal(22,14)"}
    assert types["tax_total"] == "decimal(38,2)"
    rejects = lake.table("bronze.quarantine").orderBy("line").collect()
    assert [row.rule for row in rejects] == ["bad_decimal", "inexact_decimal", "decimal_overflow"]

    run(lake, home, 1, 1, source="shop")
    landed = [*FIRST, *NEXT, *LATE]
    assert published_days(lake) == days(landed)
    (visit,) = lake.table("silver.visits").where("till = 'b' AND window_start < timestamp'2024-01-01 08:00'").collect()
    assert (visit.total, visit.mean) == (Decimal("0E-10"), Decimal("0E-14"))
    last = lake.table("silver.slid").where("till = 'b' AND window_end = timestamp'2024-01-01 05:02:00'").collect()
    assert [row.total for row in last] == [Decimal("0.6")], "the late row counts in no window that had ended"
    assert {row.row_id for row in lake.table("silver.late").where("definition = 'slid'").collect()}
    bursts = lake.sql("SELECT sum(total) AS total FROM silver.bursts WHERE till = 'c'").collect()
    assert bursts[0].total == Decimal("12.34")
    at = f"timestamp'{START + DAY:%Y-%m-%d %H:%M:%S}' - INTERVAL '0.000001' SECOND"
    assert published_days(lake, f"silver.days_as_of({at})") == days(FIRST), "as it was known then"


@pytest.mark.spark
@pytest.mark.long
def test_sums_of_money_follow_what_is_taken_back_and_what_is_mended(lake: SparkSession, home: Settings) -> None:
    home = write_source(home, ONE_WINDOW, "shop")
    for sales, drop, name in (
        (FIRST, 0, "a.ndjson"), (BROKEN, 0, "bad.ndjson"), (NEXT, 1, "a.ndjson"), (LATE, 1, "late.ndjson"),
    ):  # fmt: skip
        write_lines(home, drop, [sale.line() for sale in sales], name)
    run(lake, home, 0, 1, source="shop")
    assert published_days(lake) == days([*FIRST, *NEXT, *LATE])
    run(lake, home, 1, 1, source="shop", retract=True, only_file="meters/2024-01-02/late.ndjson")
    assert published_days(lake) == days([*FIRST, *NEXT])
    write_lines(home, 0, [Sale(0, 310, "b", "100.00").line()], "bad.ndjson")
    again = replay_of(lake, load_source(home.sources / "shop.yml"), Asked())
    assert again is not None
    run(lake, home, 0, 0, source="shop", replay=again.files)
    mended = [*FIRST, *NEXT, Sale(0, 310, "b", "100.00")]
    assert published_days(lake) == days(mended)


@pytest.mark.spark
@pytest.mark.turns
def test_chunks_json_duplicates_and_explanations_hold_every_digit(lake: SparkSession, home: Settings) -> None:
    home = write_source(home, ONE_WINDOW, "shop")
    again = '{"id": "b-300-0", "till": "b", "at": "2024-01-01T05:00:00Z", "Tax": 0.01, "price": '
    write_lines(home, 0, [*[sale.line() for sale in FIRST], f"{again}0.10}}", f"{again}0.1000000001}}"])
    run(lake, home, 0, 0, source="shop")
    assert published_days(lake) == days(FIRST)
    duplicates = lake.table("bronze.duplicates").orderBy("line").collect()
    assert [row.conflict for row in duplicates] == [False, True], "0.10 is 0.1"
    assert json.loads(duplicates[1].row)["c_price"] == "0.1000000001"
    source = load_source(home.sources / "shop.yml")
    chunks = SourceChunks(lake_of(lake), source)
    found = chunks.range_query("b", "at", micros(START), micros(START + DAY) - 1, ["price"]).column("price")
    assert found.type == pa.decimal128(18, 10)
    assert found.to_pylist() == [Decimal(n) for n in ("0.1", "0.2", "0.3")]
    latest = chunks.latest_at("a", "at", micros(START + timedelta(hours=12)), ["price"])["price"]
    assert (latest.value, short_text(latest.value)) == (Decimal(NINES), NINES)
    components = [
        json.loads(row.components) for row in lake.table("bronze.shop_deltas").where("entity = 'a'").collect()
    ]
    assert {c["price"] for c in components} == {NINES}
    told = why(lake_of(lake), source, "silver.days", ["b", "2024-01-01T00:00:00Z"])
    assert {row["price"] for row in told.deltas} == {None, *found.to_pylist()}


def test_a_sum_beyond_its_type_is_null_and_named(lake: Session, home: Settings) -> None:
    home = write_source(home, ONE_WINDOW, "shop")
    sales = [Sale(0, n, "a", "1", "9" * 36 + ".99") for n in range(2)]
    write_lines(home, 0, [*(sale.line() for sale in sales), Sale(0, 3, "b", "2").line()])
    run(lake, home, 0, 0, source="shop")
    shown = published_days(lake)
    assert set(shown) == {("a", 0), ("b", 0)}
    assert [name for name, value in shown["a", 0].items() if value is None] == ["tax_total"]
    (said,) = lake.table("quality.results").where("kind = 'overflow'").collect()
    assert (said.relation, said.failing, json.loads(said.sample)[0]["till"]) == ("silver.days", 1, "a")


@pytest.mark.long
def test_decimals_of_csv_and_parquet_land_alike(lake: Session, home: Settings) -> None:
    prices = [Decimal("12.50"), None, Decimal("-0.0000000001"), Decimal("99999999.9999999999")]
    times = [START + n * MINUTE for n in range(4)]
    for form in ("csv", "parquet"):
        text = (
            ONE_WINDOW.replace("source: shop", f"source: shop_{form}").replace("ndjson", form).replace("meters/", form)
        )
        write_source(home, text.replace("  days:", f"  days_{form}:"), f"shop_{form}")
    folder = {form: home.landing_folder / f"{form}{START:%Y-%m-%d}" for form in ("csv", "parquet")}
    for path in folder.values():
        path.mkdir(parents=True)
    texts = ["" if price is None else f"{price:f}" for price in prices]
    lines = [f"{n},a,{times[n].isoformat()},{text},1" for n, text in enumerate(texts)]
    (folder["csv"] / "a.csv").write_text("\n".join(["id,till,at,price,Tax", *lines]) + "\n")
    table = pa.table(
        {"id": list("0123"), "till": ["a"] * 4, "at": times, "price": pa.array(prices, pa.decimal128(30, 12)),
         "Tax": pa.array([1] * 4)}
    )  # fmt: skip
    pq.write_table(table, folder["parquet"] / "a.parquet")
    sales = [Sale(0, n, "a", None if p is None else f"{p:f}", "1") for n, p in enumerate(prices)]
    for form in ("csv", "parquet"):
        run(lake, home, 0, 0, source=f"shop_{form}")
        assert published_days(lake, f"silver.days_{form}") == days(sales)
