"""The record readers and their naive twin return the same rows, for any bytes and wherever blocks are cut."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from spark_jobs.engine.calendar import Drops
from spark_jobs.engine.records import (
    ColumnSpec,
    Erasures,
    FileRejectedError,
    RecordSpec,
    RowCheck,
    erased_hash,
    read_csv,
    read_ndjson,
)
from spark_jobs.engine.twins.records import naive_csv, naive_ndjson
from tests.effort import tries

SPEC = RecordSpec(
    columns=(
        ColumnSpec("who", "who", "string", ("", "NA")),
        ColumnSpec("at", "at", "timestamp", ("",)),
        ColumnSpec("n", "n", "int", ("",)),
        ColumnSpec("x", "x", "float", ("", "-")),
        ColumnSpec("ok", "is ok", "bool", ("",)),
        ColumnSpec("day", "day", "date", ("",), timezone="America/New_York", dst="earliest"),
        ColumnSpec("local", "local", "timestamp", ("",), timezone="America/New_York", dst="latest"),
        ColumnSpec("s", "s", "timestamp", ("",), time_formats=("epoch_s", "iso", "%d/%m/%Y")),
        ColumnSpec("price", "price", "decimal", ("",), digits=(12, 3)),
    ),
    timelines=(("at", "at"), ("day", "day"), ("local", "local"), ("s", "s")),
    event_time=("at", "local"),
    entity="who",
    arrival="s",
    delta_id=("who", "n"),
    max_record_bytes=90,
)
SPEC = replace(SPEC, columns=tuple(replace(column, optional=True) for column in SPEC.columns))
DAY_US = 86_400_000_000
CHECKS = (
    RowCheck("who_known", "in", "one of w, x", "who", values=("w", "x")),
    RowCheck("n_given", "not_null", "a value", "n"),
    RowCheck("n_small", "between", "a value from -5 to 2^40", "n", least=-5, greatest=2**40),
    RowCheck("x_positive", "between", "a value of 0 or more", "x", least=0.0),
    RowCheck("price_low", "between", "a value of at most 9.5", "price", greatest=Decimal("9.5")),
    RowCheck("ok_true", "in", "true", "ok", values=(True,)),
    RowCheck("day_modern", "between", "a date from 2000 on", "day", least=10_957),
    RowCheck("local_early", "between", "a time until 2013-03-10", "local", greatest=1_362_873_600_000_000),
    RowCheck("who_form", "matches", "text of the form [a-z ]+", "who", pattern="[a-z ]+"),
    RowCheck("on_time", "lateness", "an event time at most a day before its drop", greatest=DAY_US),
)
SALT = "00112233445566778899aabbccddeeff"
ERASURES = Erasures(
    SALT,
    frozenset(erased_hash(entity, SALT) for entity in ("w", "é", "12")),
    frozenset(
        (column, erased_hash(value, SALT, column))
        for column, value in [("n", "12"), ("n", "-1"), ("ok", "true"), ("day", "2012-11-04")]
    ),
)
SPECS = st.builds(
    lambda policy, dst, limit, id_, digits, most, checks, drop, erased, needed, marks, escape: replace(
        SPEC,
        erased=erased,
        checks=tuple(checks),
        drops=Drops(0, DAY_US),
        drop_lo_us=drop * DAY_US,
        columns=tuple(
            replace(
                c,
                dst=dst,
                digits=c.digits and digits,
                optional=c.name not in needed,
                decimal=marks[0],
                thousands=marks[1],
            )
            for c in SPEC.columns
        ),
        unknown_columns=policy,
        escape=escape,
        max_record_bytes=limit,
        delta_id=id_,
        max_rejects=most[0],
        max_lines=most[1],
    ),
    st.sampled_from(["keep", "keep", "quarantine"]),
    st.sampled_from(["earliest", "latest", "refuse"]),
    st.sampled_from([8, 90, 1000, 1000, 1000]),
    st.sampled_from([None, ("who", "n"), ("at",), ("ok", "day", "local")]),
    st.sampled_from([(12, 3), (12, 3), (1, 0), (2, 2), (19, 1), (38, 0), (38, 19), (38, 38)]),
    st.sampled_from([(10_000, 10_000), (1, 10_000), (2, 10_000), (10_000, 3)]),
    st.lists(st.sampled_from(CHECKS[:4] + CHECKS[5:]), max_size=3, unique=True),
    st.sampled_from([0, 15_000, 15_774]),
    st.sampled_from([None, None, ERASURES]),
    st.sampled_from([(), (), ("who", "at"), tuple(column.name for column in SPEC.columns)]),
    st.sampled_from([(".", ""), (".", ""), (".", ","), (",", "."), (",", " "), (",", "")]),
    st.sampled_from(["", "\\"]),
)
NUMBERS = st.one_of(
    st.integers(-(2**63) - 2, 2**63 + 1).map(str),
    st.floats().map(repr),
    st.from_regex(r"[+-]?[0-9]{0,25}\.?[0-9]{0,5}([eE][+-]?[0-9]{1,3})?", fullmatch=True),
    st.from_regex(r"[+-]?0{0,2}[0-9]{0,40}\.[0-9]{0,40}0{0,2}", fullmatch=True),
    st.from_regex(r"[+-]?[0-9]{1,3}([.,' ][0-9]{2,3}){0,3}([.,][0-9]{0,4})?([eE][+-]?[0-9]{1,6})?", fullmatch=True),
    st.sampled_from(
        [
            "0x1F",
            "1_000",
            "1.",
            "7.0",
            "7.000",
            "-0.0",
            "1.234,56",
            "1,234.56",
            "1625931586.5",
            "-1.5e-7",
            "٣",
            "1e400",
            "-0",
            "00012",
            "9223372036854775808",
            "+5",
            " 7 ",
            "9" * 30,
            "1e",
        ]
    ),
)
TIMES = st.one_of(
    st.datetimes().map(str),
    st.datetimes(timezones=st.timezones()).map(lambda t: t.isoformat(timespec="seconds")),
    st.sampled_from(
        ["2013-03-10 02:30", "2013-11-03T01:30:00", "2013-11-03", "0000-01-01", "0001-01-01", "9999-12-31T23:59:59",
         "10000-01-01", "2012-02-29", "2013-02-29", "2013-01-01T24:00", "2013-01-01T00:00:60Z", "2013-01-01T00:00Z",
         "2013-01-01T00:00:00.1234567+05:30", "2013-01-01T00:00:00.+01", "2013-01-01T00:00-0130", "2013-1-1",
         "2013-01-01 00:00:00,5 UTC", "2013-01-01T00:00 -0800", "2013-01-01 00:00UTC", "2013-01-01T00:00 ",
         "31/12/2013",
         "253402300799.9999999", "-62135596800.0000001", "1.6e9", "1e400", "0e999999", ".5", "5.", "-.0000001",
         "2013-01-01T10", "253402300799", "-62135596801", "1356998400", "0001-01-01T00:00+14:00"]
    ),
)  # fmt: skip
VALUES = st.one_of(
    NUMBERS,
    TIMES,
    st.sampled_from(["", "NA", "true", "FALSE", "T", "f", "yes", "No", "1", "x", "a|b", "\\", '\\"', "-"]),
    st.text(max_size=6),
)


def comparable(batches: Iterator[pa.RecordBatch]) -> list[dict[str, Any]]:
    rows = []
    for batch in batches:
        batch.validate(full=True)
        plain = {}
        for field, column in zip(batch.schema, batch.columns, strict=True):
            number = (
                pa.int64()
                if pa.types.is_timestamp(field.type)
                else pa.int32()
                if pa.types.is_date(field.type)
                else None
            )
            plain[field.name] = (column.cast(number) if number else column).to_pylist()
        rows += [dict(zip(plain, values, strict=True)) for values in zip(*plain.values(), strict=True)]
    return rows


def outcome(read: Callable[[], list[dict[str, Any]]]) -> Any:
    try:
        return read()
    except FileRejectedError as refused:
        return refused.rule


def cut(data: bytes, sizes: list[int]) -> Iterator[bytes]:
    for size in sizes:
        yield data[:size]
        data = data[size:]
    yield data


def check_csv(data: bytes, spec: RecordSpec, sizes: list[int]) -> None:
    assert outcome(lambda: comparable(read_csv(cut(data, sizes), spec))) == outcome(lambda: naive_csv(data, spec))


def check_ndjson(data: bytes, spec: RecordSpec, sizes: list[int]) -> None:
    assert outcome(lambda: comparable(read_ndjson(cut(data, sizes), spec))) == outcome(lambda: naive_ndjson(data, spec))


def test_headers_of_any_delimiter_read_the_same() -> None:
    for columns in (["who", "at", "n"], ["who"], ["no", "at"], ["no", "other"], [" who ", "at"]):
        for delimiter in ",;\t|":
            for quote in ("", '"'):
                header = delimiter.join(f"{quote}{name}{quote}" for name in columns)
                for declared in ",;\t|":
                    check_csv(f"{header}\nw\n".encode(), replace(SPEC, delimiter=declared), [3])


SIZES = st.lists(st.integers(0, 30), max_size=20)
HEADER = b"who,at,n,x,is ok,day,local,s,price\n"


def quoted(value: str) -> str:
    return '"' + value.replace('"', '""') + '"'


CLOCK_CHANGE = dt.datetime(2013, 3, 9, tzinfo=dt.UTC)
GOOD = {
    "who": st.sampled_from(["w", "ü|\\", "two words"]),
    "at": st.builds(lambda time, zone: f"{time}{zone}", st.datetimes(), st.sampled_from(["", "Z", "+05:30", "-0800"])),
    "n": st.integers(-(2**63), 2**63 - 1).map(str),
    "x": st.floats(allow_nan=False, allow_infinity=False).map(repr),
    "is ok": st.sampled_from(["true", "FALSE", "1", "0"]),
    "day": st.dates().map(str),
    "local": st.integers(0, 3000).map(lambda minutes: f"{CLOCK_CHANGE + dt.timedelta(minutes=minutes):%Y-%m-%dT%H:%M}"),
    "s": st.integers(-(10**10), 10**11).map(str),
    "price": st.from_regex(r"[+-]?0{0,3}[0-9]{1,9}(\.[0-9]{0,3}0{0,3})?", fullmatch=True),
}
COLUMNS = list(GOOD)
CHANGES = st.lists(st.tuples(st.sampled_from(COLUMNS), VALUES), max_size=2).map(dict)
CELLS = st.builds(lambda good, changes: good | changes, st.fixed_dictionaries(GOOD), CHANGES)
FIELDS = st.tuples(st.sampled_from([str, str, str, quoted]), st.sampled_from([str, str, str, quoted]))
LINES = st.one_of(
    st.builds(
        lambda cells, ways: ",".join(ways[i % 2](v) for i, v in enumerate(map(cells.get, COLUMNS))), CELLS, FIELDS
    ),
    st.lists(st.one_of(VALUES, VALUES.map(quoted), st.text('"\n\r,a', max_size=4)), min_size=8, max_size=10).map(
        ",".join
    ),
)
ORDERS = st.one_of(
    st.just(COLUMNS), st.just(COLUMNS), st.just(COLUMNS), st.permutations([*COLUMNS[:5], "new", *COLUMNS[6:]])
)
HEADERS = ORDERS.map(lambda names: ",".join(names).encode() + b"\n")


@settings(max_examples=tries(60), deadline=None)
@given(HEADERS, st.lists(LINES, max_size=5), st.sampled_from(["\n", "\r\n"]), SPECS, SIZES)
def test_csv_of_values_reads_like_the_twin(
    header: bytes, lines: list[str], end: str, spec: RecordSpec, sizes: list[int]
) -> None:
    check_csv(header + end.join(lines).encode("utf-8", "surrogatepass"), spec, sizes)


NOISE = st.lists(
    st.sampled_from(
        [b'"', b"\n", b"\r", b"\r\n", b",", b"a", b'""', b"\xff", b"\xc3\xa9", b"b" * 12, b"2013-01-01", b"\\"]
    ),
    max_size=40,
).map(b"".join)


@settings(max_examples=tries(80), deadline=None)
@given(
    st.sampled_from(
        [
            b"who,at\n",
            b"who\n",
            b"who,at,,\n",
            b"who,,at\n",
            b",\n",
            b"sep=,\r\nwho,at\n",
            b"sep=;\nwho\n",
            b"",
            b'"who","at"\r\n',
            b"\xef\xbb\xbfwho,at\n",
        ]
    ),
    NOISE,
    SPECS,
    SIZES,
)
@example(b"who,at\n", b'"a\nb,2013-01-01\nc,2013-01-01', SPEC, [3])
@example(b"who,at\n", b"a,2013-01-01\n\r", SPEC, [])
def test_csv_of_noise_reads_like_the_twin(header: bytes, noise: bytes, spec: RecordSpec, sizes: list[int]) -> None:
    check_csv(header + noise, spec, sizes)


ODD_VALUES = [
    "17",
    "-0",
    "7.0",
    "null",
    "true",
    "NaN",
    "-Infinity",
    "{}",
    "[1, 2.50]",
    '{"a": [1e5]}',
    '"\\ud800"',
    '"\\n"',
    "01",
    "1.",
    "-",
]
JSON_VALUES = st.one_of(NUMBERS, st.sampled_from(ODD_VALUES), VALUES.map(json.dumps))
JSON_GOOD = {
    name: values if name in ("n", "x", "s") else values.map(json.dumps) if name != "is ok" else st.just("true")
    for name, values in GOOD.items()
} | {"price": st.decimals(0, 10**9, places=3).map("{:f}".format) | GOOD["price"].map(json.dumps)}
JSON_CHANGES = st.lists(st.tuples(st.sampled_from([*COLUMNS, "new"]), JSON_VALUES), max_size=2).map(dict)
JSON_CELLS = st.builds(
    lambda good, changes: list((good | changes).items()), st.fixed_dictionaries(JSON_GOOD), JSON_CHANGES
)
KEYS = st.sampled_from([*COLUMNS, "new", "n\\u0065w", ""])
OBJECTS = st.builds(
    lambda members, blank: "{" + ",".join(f'"{key}"{blank}:{blank}{value}{blank}' for key, value in members) + "}",
    st.one_of(JSON_CELLS, JSON_CELLS, st.lists(st.tuples(KEYS, JSON_VALUES), max_size=5)),
    st.sampled_from(["", " ", "\t"]),
)
NO_OBJECTS = ["", " ", "\r", "{", "[1]", "3", "{} x", "{,}", '{"who" "a"}', "\x00", " {} ", "\ufeff{}"]
JSON_LINES = st.one_of(OBJECTS, OBJECTS, st.sampled_from(NO_OBJECTS))


@settings(max_examples=tries(80), deadline=None)
@given(st.lists(JSON_LINES, max_size=6), st.sampled_from(["\n", "\r\n"]), SPECS, SIZES)
def test_ndjson_reads_like_the_twin(lines: list[str], end: str, spec: RecordSpec, sizes: list[int]) -> None:
    check_ndjson(end.join(lines).encode("utf-8", "surrogatepass"), spec, sizes)


@pytest.mark.parametrize("end", ["\r", "\n", "\r\n"])
def test_a_file_whose_lines_end_in_carriage_returns_alone_is_no_empty_one(end: str) -> None:
    data = end.join(["who,at,n", "w,2013-01-01,1", "v,2013-01-02,2", ""]).encode()
    check_csv(data, replace(SPEC, delta_id=None), [5])
    found = outcome(lambda: comparable(read_csv([data], replace(SPEC, delta_id=None))))
    assert found == "bad_header" if end == "\r" else [row["rule"] for row in found] == [None, None]


@settings(max_examples=tries(60), deadline=None)
@given(st.binary(max_size=80), SPECS, SIZES)
def test_random_bytes_read_like_the_twin(data: bytes, spec: RecordSpec, sizes: list[int]) -> None:
    check_csv(data, spec, sizes)
    check_ndjson(data, spec, sizes)


@pytest.mark.parametrize("text", ["1" * 5000, "0" * 5000 + "7", "[" * 5000 + "]" * 5000, '{"who":' * 3000])
def test_values_that_would_exhaust_a_parser_are_a_reject_or_a_number(text: str) -> None:
    spec = replace(SPEC, max_record_bytes=100_000, unknown_columns="keep")
    check_ndjson(f'{{"who": "w", "at": "2013-01-01", "n": {text}, "x": {text}, "price": {text}}}'.encode(), spec, [])
    check_csv(HEADER + f"w,2013-01-01,{text},{text},,,,,{text}\n".encode(), spec, [])


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_a_row_that_breaks_a_check_is_rejected_for_it_and_one_at_its_bound_is_not(check: RowCheck) -> None:
    keeps = {"who": "w", "n": 2**40, "x": 0, "price": "9.5", "is ok": 1, "day": "2000-01-01"}
    keeps |= {"local": "2013-03-09T19:00", "at": "2013-03-09T00:00Z", "s": 0}
    breaks: dict[str, dict[str, Any]] = {
        "who_known": {"who": "y"},
        "n_given": {"n": ""},
        "n_small": {"n": 2**40 + 1},
        "x_positive": {"x": -1e-9},
    }
    breaks |= {"price_low": {"price": "9.501"}, "ok_true": {"is ok": 0}, "day_modern": {"day": "1999-12-31"}}
    breaks |= {"local_early": {"local": "2013-03-09T19:01"}, "who_form": {"who": "W"}}
    breaks |= {"on_time": {"at": "2013-03-08T23:59:59.999999Z"}}
    # its day begins a day after `at`; a part of the id may be absent here
    spec = replace(SPEC, checks=(check,), drops=Drops(0, DAY_US), delta_id=None).of_drop(15_774)
    rows = [keeps, {**keeps, **breaks[check.name]}, dict.fromkeys(keeps, "") | {"who": "w", "at": keeps["at"]}]
    data = HEADER + "".join(",".join(str(row[c]) for c in COLUMNS) + "\n" for row in rows).encode()
    expected = naive_csv(data, spec)
    rejected = [check.rule if check.kind == "not_null" else None]
    assert [row["rule"] for row in expected] == [None, check.rule, *rejected]
    assert f"(check {check.name}), found " in expected[1]["reason"]
    assert comparable(read_csv([data], spec)) == expected
    lines = [json.dumps({k: (str(v) if v != "" else None) for k, v in row.items()}) + "\n" for row in rows]
    check_ndjson("".join(lines).encode(), spec, [])
