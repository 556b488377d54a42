"""The condition of an erasure: one declared column equals one literal, and everything else is refused."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

from spark_jobs.errors import ParameterError
from spark_jobs.landing.choices import of_condition, of_entity
from spark_jobs.sources import Source, parse_source

TEXT = """
source: orders
start: 2024-01-01
every: 1 day
landing: {path: "orders/{date}/*", format: ndjson}
columns:
  shop: string
  customer: string
  at: timestamp
  day: date
  load: int
  heat: float
  paid: bool
  price: "decimal(10, 2)"
timelines: {taken: at}
event_time: taken
entity: shop
state: {mode: add, datatype: int64, components: {load: load}}
"""


@pytest.fixture(scope="module")
def source() -> Source:
    return parse_source(TEXT, file="orders.yml")


@pytest.mark.parametrize(
    ("condition", "column", "value"),
    [
        ("customer = 'c0354'", "customer", "c0354"),
        ("  `customer`='it''s = c'  ", "customer", "it's = c"),
        ("load = -7", "load", "-7"),
        ("load = 7.0", "load", "7"),
        ("heat = 1.5", "heat", "1.5"),
        ("paid = true", "paid", "true"),
        ("price = 3.5", "price", "3.50"),
        ("day = '2024-01-02'", "day", "2024-01-02"),
        ("at = '2024-01-02T03:04:05+01:00'", "at", "2024-01-02T02:04:05Z"),
        ("shop = 'S1'", "shop", "S1"),
    ],
)
def test_a_column_equals_a_literal(source: Source, condition: str, column: str, value: str) -> None:
    choice = of_condition(source, condition)
    assert (choice.column, choice.value) == (column, value)
    assert choice.is_entity == (column == "shop")
    assert choice.recorded_column == (None if column == "shop" else column)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("", "one literal"),
        ("customer", "one literal"),
        ("customer = ''", "one literal"),
        ("customer = 'a' OR 1 = 1", "one literal"),
        ("customer = 'a'; DROP", "one literal"),
        ("customer <> 'a'", "one literal"),
        ("customer = shop", "one literal"),
        ("customer = NULL", "one literal"),
        ("customer LIKE 'a'", "one literal"),
        ("customer IN ('a')", "one literal"),
        ("lower(customer) = 'a'", "one literal"),
        ("'a' = customer", "one literal"),
        ("buyer = 'a'", "declares"),
        ("customer = 7", "string"),
        ("customer = true", "string"),
        ("load = '7'", "int"),
        ("load = 7.5", "int"),
        ("load = 99999999999999999999", "int"),
        ("paid = 'true'", "bool"),
        ("paid = 1", "bool"),
        ("day = '2024-13-01'", "date"),
        ("at = 'never'", "timestamp"),
        ("at = 5", "timestamp"),
        ("price = 3.555", "decimal"),
    ],
)
def test_every_other_condition_is_refused(source: Source, condition: str, expected: str) -> None:
    with pytest.raises(ParameterError, match=expected) as refusal:
        of_condition(source, condition)
    assert refusal.value.consequence == "nothing was erased"
    assert "one value of one column" in refusal.value.next_step


def test_stored_values_are_compared_as_landing_compares_them(source: Source) -> None:
    at = dt.datetime(2024, 1, 2, 3, 4, 5, 6, tzinfo=dt.UTC)
    values = {
        "at = '2024-01-02T03:04:05.000006Z'": pa.array([at, None, at - dt.timedelta(1)], pa.timestamp("us", "UTC")),
        "price = 3.5": pa.array([Decimal("3.50"), None, Decimal("3.51")], pa.decimal128(10, 2)),
        "day = '2024-01-02'": pa.array([dt.date(2024, 1, 2), None, dt.date(2024, 1, 3)]),
        "paid = false": pa.array([False, None, True]),
    }
    for condition, column in values.items():
        assert of_condition(source, condition).flags(column).tolist() == [True, False, False], condition


def test_rows_of_json_are_compared_by_their_stored_form(source: Source) -> None:
    instant = of_condition(source, "at = '1970-01-01T00:00:01Z'")
    assert instant.of_json(['{"c_at": 1000000}', '{"c_at": 1000001}', "{}", None]).tolist() == [True, *[False] * 3]
    price = of_condition(source, "price = 3.5")
    assert price.of_json(['{"c_price": "3.50"}', '{"c_price": "3.51"}']).tolist() == [True, False]
    day = of_condition(source, "day = '1970-01-02'")
    assert day.of_json(['{"c_day": 1}', '{"c_day": 2}']).tolist() == [True, False]
    assert of_entity(source, "S1").of_json(['{"entity": "S1"}', '{"c_shop": "S1"}']).tolist() == [True, False]
