"""Why a row is what it is, as far as it needs no Spark: the key as people write it, and which deltas stand."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.errors import ParameterError
from spark_jobs.reads import row_keys
from spark_jobs.reads import why as asked
from spark_jobs.reads.landed import landing_of
from spark_jobs.sources import Source, load_source

FLIGHTS = Path(__file__).parents[2] / "dags" / "sources" / "flights.yml"


@pytest.fixture(scope="module")
def flights() -> Source:
    return load_source(FLIGHTS)


def key(source: Source, table: str, *given: str) -> dict[str, Any]:
    return row_keys.row_key(row_keys.published_table(source, table), given)


def test_a_key_is_given_in_order_or_by_name(flights: Source) -> None:
    wanted = {"origin": "JFK", "window_start": "2013-01-01T05:00:00+00:00"}
    for given in (
        ("JFK", "2013-01-01T05:00:00Z"),
        ("window_start=2013-01-01T05:00", "JFK"),
        ("origin=JFK", "20130101T05+00:00"),
        ("2013-01-01 00:00-05:00", "origin=JFK"),
    ):
        assert key(flights, "silver.departure_delays", *given) == wanted
    # an empty text is a value, and what only looks like a name is one too
    assert key(flights, "departure_delays", "origin=", "2013-01-01T05:00Z")["origin"] == ""
    assert key(flights, "departure_delays", "a=b", "2013-01-01T05:00Z")["origin"] == "a=b"


def test_an_entity_is_named_as_its_table_names_it(flights: Source) -> None:
    for given in ("N14228", "entity=N14228", "tailnum=N14228"):
        assert key(flights, "gold.flights", given) == {"entity": "N14228"}


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (["JFK", "yesterday"], "an instant such as"),
        (["JFK", "window_start="], "an instant such as"),
        (["JFK", "0001-01-01T00:00+14:00"], "an instant such as"),
        (["JFK"], "a value for each of origin, window_start"),
        (["origin="], "a value for each of origin, window_start"),
        (["origin=JFK", "origin=LGA", "2013-01-01"], "a value for each of origin, window_start"),
        ([], "a value for each of origin, window_start"),
    ],
)
def test_a_key_that_fits_no_row_is_refused_before_spark_reads(flights: Source, given: list[str], found: str) -> None:
    with pytest.raises(ParameterError, match=found) as refused:
        asked.why(None, flights, "departure_delays", given)  # type: ignore[arg-type]
    assert refused.value.next_step


@pytest.mark.parametrize(
    ("type_", "good", "bad"),
    [
        ("BIGINT", "-7", ["7.0", "seven", "9223372036854775808", ""]),
        ("DOUBLE", "-0.0", ["zero", ""]),
        ("BOOLEAN", "true", ["1", ""]),
        ("DATE", "2013-01-07", ["2013-02-30", ""]),
        ("STRING", "", []),
    ],
)
def test_values_of_a_key_are_of_their_columns_type(type_: str, good: str, bad: list[str]) -> None:
    assert row_keys._as_spark_reads("k", good, type_) == good
    for text in bad:
        with pytest.raises(ParameterError, match=" as k, found "):
            row_keys._as_spark_reads("k", text, type_)


def test_causes_are_told_only_of_times_that_are_told_apart() -> None:
    since, after = datetime(2013, 1, 5, tzinfo=UTC), datetime(2013, 1, 5, 0, 0, 0, 1, tzinfo=UTC)
    causes = [{"time": "a change", "update_time": t, "update_row_id": i} for i, t in enumerate((since, after))]
    assert list(asked._causes_after_since(causes, since)) == [("a change", {"time": after, "row_id": 1})]


def test_deltas_that_stand_keep_the_sign_of_their_zeros() -> None:
    def update(row_id: int, value: float | None, diff: int, token: int) -> dict[str, Any]:
        return {"row_id": row_id, "load": value, "time": token, "diff": diff, "token": token}

    updates = [
        *[update(1, -0.0, 1, 3), update(1, 0.0, 1, 4), update(1, 0.0, -1, 5)],
        *[update(2, math.nan, 1, 3), update(2, float("nan"), 1, 6)],
        *[update(3, None, 1, 3), update(3, None, -1, 4)],
        *[
            update(4, 1.0, 1, 3),
            update(4, 1.0, -1, 4),
            update(4, 1.0, 1, 7),
            update(4, 2.0, 1, 4),
            update(4, 2.0, -1, 7),
        ],
    ]
    standing = [(row["row_id"], str(row["load"]), row["token"]) for row in asked._net_deltas(updates)]
    assert standing == [(1, "-0.0", 3), (2, "nan", 6), (4, "1.0", 7)]


def test_the_landing_of_an_update_is_one_that_brought_it_with_its_values() -> None:
    brought = [
        {"landing": landing, "event_time": 1, "delta_id": "a", "load": load}
        for landing, load in ((1, 0.0), (5, -0.0), (9, 0.0), (12, 3.0))
    ]
    update = {"row_id": 1, "event_time": 1, "delta_id": "a", "load": 0.0}
    for token, landing in ((1, None), (4, 1), (9, 1), (20, 9)):
        assert landing_of(update | {"token": token}, brought, ["load"]) == landing
    assert landing_of(update | {"token": 20, "load": -0.0}, brought, ["load"]) == 5
    # an update that is told without its values, or whose values no landing has
    assert landing_of({"row_id": 1, "event_time": 1, "delta_id": "a", "token": 20}, brought, ["load"]) == 12
    assert landing_of(update | {"token": 20, "load": 7.0}, brought, ["load"]) == 12
