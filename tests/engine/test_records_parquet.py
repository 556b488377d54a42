"""Parquet files: typed columns are taken as they are, and what a text is refused for, a value is refused for too."""

from __future__ import annotations

import datetime as dt
import io
import json
from dataclasses import replace
from decimal import Decimal, localcontext
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from spark_jobs.engine.records import ColumnSpec, Erasures, FileRejectedError, RecordSpec, erased_hash, read_parquet
from spark_jobs.engine.twins.records import naive_ndjson
from tests.effort import tries

SPEC = RecordSpec(
    columns=(
        ColumnSpec("who", "who", "string", optional=True),
        ColumnSpec("at", "at", "timestamp", optional=True),
        ColumnSpec("n", "n", "int", optional=True),
        ColumnSpec("x", "x", "float", optional=True),
        ColumnSpec("ok", "ok", "bool", optional=True),
        ColumnSpec("day", "day", "date", optional=True),
        ColumnSpec("price", "price", "decimal", digits=(20, 4), optional=True),
    ),
    timelines=(("at", "at"),),
    event_time=("at",),
    entity="who",
)
AT = dt.datetime(2013, 1, 1, 5, tzinfo=dt.UTC)
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def file_of(columns: dict[str, pa.Array], **options: Any) -> io.BytesIO:
    file = io.BytesIO()
    pq.write_table(pa.table(columns), file, **options)
    file.seek(0)
    return file


def rows_of(columns: dict[str, Any], spec: RecordSpec = SPEC) -> list[dict[str, Any]]:
    size = len(next(iter(columns.values())))
    whole = {"who": pa.array(["w"] * size), "at": pa.array([AT] * size, pa.timestamp("us", "UTC"))} | columns
    return pa.Table.from_batches(list(read_parquet(file_of(whole), spec)), schema=spec.schema()).to_pylist()


@pytest.mark.parametrize(
    ("column", "array", "values"),
    [
        ("n", pa.array([1, None], pa.int8()), [1, None]),
        ("n", pa.array([1, 2**63 - 1], pa.uint64()), [1, 2**63 - 1]),
        ("n", pa.array(["12", None]), [12, None]),
        ("n", pa.array(["12", "7"]).dictionary_encode(), [12, 7]),
        ("n", pa.array([None, None]), [None, None]),
        ("x", pa.array([1.5, None], pa.float32()), [1.5, None]),
        ("x", pa.array([3, None]), [3.0, None]),
        ("x", pa.array([Decimal("1.25")]), [1.25]),
        ("ok", pa.array([True, None]), [True, None]),
        ("price", pa.array([Decimal("1.25"), None]), [Decimal("1.25"), None]),
        ("price", pa.array([Decimal("-1.2500000000")]), [Decimal("-1.25")]),
        ("price", pa.array([Decimal("9" * 16 + "." + "9" * 4)]), [Decimal("9" * 16 + "." + "9" * 4)]),
        ("price", pa.array([Decimal("1" + "0" * 40 + ".5"), Decimal("2.5")], pa.decimal256(50, 1)).slice(1),
         [Decimal("2.5")]),
        ("price", pa.array([Decimal("0.0001")], pa.decimal256(50, 4)), [Decimal("0.0001")]),
        ("price", pa.array([7, None], pa.uint64()), [Decimal(7), None]),
        ("price", pa.array(["1.5", " 2 "]), [Decimal("1.5"), Decimal(2)]),
        ("day", pa.array([dt.date(1, 1, 1)]), [dt.date(1, 1, 1)]),
        ("day", pa.array([dt.datetime(2013, 1, 2)], pa.timestamp("ns")), [dt.date(2013, 1, 2)]),  # noqa: DTZ001
        ("who", pa.array(["w", "two words, long enough to stand outside the view"]).cast(pa.string_view()),
         ["w", "two words, long enough to stand outside the view"]),
        ("at", pa.array([1_999], pa.timestamp("ns", "UTC")), [EPOCH + dt.timedelta(microseconds=1)]),
        ("at", pa.array([-1], pa.timestamp("ns", "UTC")), [EPOCH - dt.timedelta(microseconds=1)]),
        ("at", pa.array([AT.replace(tzinfo=None)], pa.timestamp("ms")), [AT]),
        ("at", pa.array(["2013-01-01T05:00Z"]), [AT]),
        ("at", pa.array([dt.date(2013, 1, 1)]), [AT.replace(hour=0)]),
    ],
)  # fmt: skip
def test_values_of_fitting_types_are_taken(column: str, array: pa.Array, values: list[Any]) -> None:
    rows = rows_of({column: array})
    assert [row["rule"] for row in rows] == [None] * len(values)
    assert [row[f"c_{column}"] for row in rows] == values
    assert [row["line"] for row in rows] == list(range(1, len(values) + 1))


@pytest.mark.parametrize(
    ("column", "array", "rule"),
    [
        ("n", pa.array([2**63], pa.uint64()), "int_overflow"),
        ("n", pa.array([1.5]), "bad_int"),
        ("n", pa.array([True]), "bad_int"),
        ("n", pa.array([[1]]), "nested_value"),
        ("x", pa.array([float("nan")]), "bad_float"),
        ("x", pa.array([float("-inf")]), "bad_float"),
        ("who", pa.array([5.0]), "bad_string"),
        ("price", pa.array([1.5]), "bad_decimal"),
        ("price", pa.array([1.5], pa.float32()), "bad_decimal"),
        ("price", pa.array(["1.5e1"]), "bad_decimal"),
        ("price", pa.array([Decimal("0.00001")]), "inexact_decimal"),
        ("price", pa.array([Decimal("1" + "0" * 16)]), "decimal_overflow"),
        ("price", pa.array([Decimal("9" * 38)]), "decimal_overflow"),
        ("price", pa.array([2**62]), "decimal_overflow"),
        ("price", pa.array([Decimal("1" + "0" * 40)], pa.decimal256(50, 0)), "decimal_overflow"),
        ("who", pa.array([None], pa.string()), "missing_entity"),
        ("at", pa.array([None], pa.timestamp("s")), "missing_time"),
        ("at", pa.array([253_402_300_800], pa.timestamp("s", "UTC")), "bad_timestamp"),
        ("at", pa.array([-(2**62)], pa.timestamp("ms", "UTC")), "bad_timestamp"),
        ("at", pa.array([5]), "bad_timestamp"),
        ("day", pa.array([2**31 - 1], pa.date32()), "bad_date"),
        ("day", pa.array([AT], pa.timestamp("us", "UTC")), "bad_date"),
        ("day", pa.array([1], pa.timestamp("ns")), "bad_date"),
    ],
)
def test_a_value_of_no_fitting_type_is_a_reject_with_the_row_as_json(column: str, array: pa.Array, rule: str) -> None:
    (row,) = rows_of({column: array})
    assert row["rule"] == rule
    assert row["reason"]
    assert row["raw"].startswith("{")
    assert row["entity"] is None


@settings(max_examples=tries(80), deadline=None)
@given(
    st.lists(st.none() | st.integers(-(10**38) + 1, 10**38 - 1), min_size=1, max_size=12),
    st.integers(0, 38),
    st.sampled_from([(38, 0), (38, 38), (20, 4), (1, 1), (5, 0)]),
)
def test_decimals_of_another_type_read_as_their_text_does(units: list[int | None], held: int, digits: Any) -> None:
    spec = replace(SPEC, columns=(*SPEC.columns[:-1], ColumnSpec("price", "price", "decimal", digits=digits)))
    with localcontext(prec=60):
        values = [None if unit is None else Decimal(unit).scaleb(-held) for unit in units]
    array = pa.array(values, pa.decimal128(38, held))
    texts = pa.array([None if value is None else f"{value:f}" for value in values], pa.string())
    found, wanted = rows_of({"price": array}, spec), rows_of({"price": texts}, spec)
    assert [(row["rule"], row["c_price"]) for row in found] == [(row["rule"], row["c_price"]) for row in wanted]


def test_undeclared_columns_stay_with_their_row_as_text() -> None:
    (row,) = rows_of({"new": pa.array([[1, 2]]), "more": pa.array([None], pa.int64()), "raw": pa.array([b"\xff"])})
    assert row["extra"] == [("new", "[1, 2]"), ("more", None), ("raw", "\\xff")]
    (row,) = rows_of({"new": pa.array([1])}, replace(SPEC, unknown_columns="quarantine"))
    assert row["rule"] == "unknown_column"
    assert row["reason"] == "expected declared columns only, found 'new'"


NOWHERE = pa.array([1_999]).view(pa.timestamp("ns", "Nowhere/At_All"))


@pytest.mark.parametrize("stores_schema", [True, False])
def test_times_of_every_year_are_read_from_int96(stores_schema: bool) -> None:
    times = [dt.datetime(year, 1, 1, tzinfo=dt.UTC) for year in (1, 1600, 2300)]
    times.append(dt.datetime.max.replace(tzinfo=dt.UTC))
    columns = {"who": pa.array(["w"] * 4), "at": pa.array(times, pa.timestamp("us", "UTC"))}
    file = file_of(columns, use_deprecated_int96_timestamps=True, store_schema=stores_schema)
    assert pq.ParquetFile(file).metadata.schema.column(1).physical_type == "INT96"
    file.seek(0)
    found = pa.Table.from_batches(list(read_parquet(file, SPEC)))
    assert found["t_at"].cast(pa.int64()).to_pylist() == [
        (time - EPOCH) // dt.timedelta(microseconds=1) for time in times
    ]


def test_an_instant_that_no_calendar_has_is_told_by_its_number_and_is_none() -> None:
    nested = pa.StructArray.from_arrays([NOWHERE, pa.array(["x"])], ["when", "what"])
    (row,) = rows_of({"new": NOWHERE, "more": nested})
    extra = dict(row["extra"])
    assert (row["rule"], extra["new"]) == (None, f"1999 {NOWHERE.type}")
    assert all(told in extra["more"] for told in ("1970-01-01 00:00:00.000001999", '"x"'))
    for beyond in (NOWHERE, pa.array([2**62]).view(pa.timestamp("us"))):
        (row,) = rows_of({"n": beyond})
        assert (row["rule"], json.loads(row["raw"])["n"].split()[0]) == ("bad_int", str(beyond[0].value))
    (row,) = rows_of({"at": NOWHERE})
    assert (row["rule"], row["t_at"]) == (None, EPOCH + dt.timedelta(microseconds=1))


def test_text_that_is_no_utf8_is_a_reject() -> None:
    broken = pa.StringArray.from_buffers(2, pa.array([0, 2, 3], pa.int32()).buffers()[1], pa.py_buffer(b"a\xffb"))
    rows = rows_of({"who": broken})
    assert [row["rule"] for row in rows] == ["bad_utf8", None]
    assert "a\\xff" in json.loads(rows[0]["raw"])["who"]


@pytest.mark.parametrize("data", [b"", b"PAR1", b"who,at\n", b"PAR1" * 40])
def test_what_is_no_parquet_file_is_rejected_whole(data: bytes) -> None:
    with pytest.raises(FileRejectedError) as refused:
        list(read_parquet(io.BytesIO(data), SPEC))
    assert refused.value.rule == ("unreadable_file" if data else "empty_file")


@settings(max_examples=tries(60), deadline=None)
@given(st.integers(0, 4_000), st.binary(min_size=1, max_size=8), st.booleans())
@example(3_818, b"\x80", False)
def test_a_damaged_file_is_rejected_or_read_and_never_an_accident(at: int, damage: bytes, cut: bool) -> None:
    names = pa.array([f"w{i}" for i in range(50)])
    data = bytearray(file_of({"who": names, "at": pa.array([AT] * 50), "n": pa.array(range(50))}).getvalue())
    at %= len(data)
    data = data[:at] if cut else data[:at] + damage + data[at + len(damage) :]
    try:
        rows = sum(batch.num_rows for batch in read_parquet(io.BytesIO(bytes(data)), SPEC))
    except FileRejectedError as refused:
        assert refused.rule in {"empty_file", "unreadable_file", "duplicate_header"}
    else:
        assert rows >= 0


ROWS = st.fixed_dictionaries(
    {
        "who": st.one_of(st.none(), st.text(max_size=3)),
        "n": st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)),
        "x": st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False)),
        "ok": st.one_of(st.none(), st.booleans()),
        "at": st.one_of(st.none(), st.datetimes().map(str)),
    }
)


@settings(max_examples=tries(50), deadline=None)
@given(st.lists(ROWS, min_size=1, max_size=5))
def test_rows_read_from_parquet_are_those_read_from_json(rows: list[dict[str, Any]]) -> None:
    columns = {name: pa.array([row[name] for row in rows]) for name in rows[0]}
    found = pa.Table.from_batches(list(read_parquet(file_of(columns), SPEC)))
    found = found.set_column(found.schema.get_field_index("c_at"), "c_at", found["c_at"].cast(pa.int64()))
    twin = naive_ndjson("\n".join(map(json.dumps, rows)).encode(), SPEC)
    for name in ("line", "rule", "reason", "entity", "c_n", "c_x", "c_ok", "c_at"):
        assert found[name].to_pylist() == [row[name] for row in twin], name


def test_nothing_is_kept_of_rows_about_an_erased_entity() -> None:
    salt = "00" * 16
    spec = replace(SPEC, erased=Erasures(salt, frozenset({erased_hash("w2", salt)})))
    rows = rows_of({"who": pa.array(["w1", "w2", "w3"]), "n": pa.array(["1", "2", "none"])}, spec)
    assert [(row["rule"], row["entity"], row["raw"]) for row in rows[:2]] == [
        (None, "w1", None),
        ("erased", None, None),
    ]
    broken = rows_of({"who": pa.array(["w2", "w3"]), "n": pa.array(["none", "none"])}, spec)
    assert [(row["rule"], row["raw"] is None) for row in broken] == [("erased", True), ("bad_int", False)]
