"""Each rule of the record readers by example: what is rejected, why, and what the neighbours are."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.engine.records import ColumnSpec, FileRejectedError, RecordSpec, read_csv, read_ndjson, read_parquet
from spark_jobs.engine.records.rules import FILE_RULES, RULES, show_raw
from spark_jobs.engine.records.times import AMBIGUOUS, READ, SKIPPED, local_to_utc, resolve_local

SPEC = RecordSpec(
    columns=(
        ColumnSpec("who", "who", "string", ("",)),
        ColumnSpec("at", "at", "timestamp", ("",)),
        ColumnSpec("n", "n", "int", ("",)),
        ColumnSpec("x", "x", "float", ("",), optional=True),
    ),
    timelines=(("at", "at"),),
    event_time=("at",),
    entity="who",
    delta_id=("who", "n"),
)
GOOD = "w,2013-01-01,1,2.5"
STRICT = replace(SPEC, columns=tuple(replace(column, optional=False) for column in SPEC.columns))


def raw_bytes(rule: str, raw: str) -> bytes:
    """The bytes of a rejected record, from the reject's `raw`: the inverse of `show_raw`. For `too_long`, only the
    beginning of the record."""
    if rule != "bad_utf8":
        return raw.encode()
    parts, remainder = bytearray(), raw.encode()
    while remainder:
        before, slash, remainder = remainder.partition(b"\\")
        parts += before
        if slash and remainder[:1] == b"x":
            parts.append(int(remainder[1:3], 16))
            remainder = remainder[3:]
        elif slash:
            parts += b"\\"
            remainder = remainder[1:]
    return bytes(parts)


def csv_rows(text: str | bytes, spec: RecordSpec = SPEC) -> list[dict[str, Any]]:
    data = text.encode() if isinstance(text, str) else text
    return pa.Table.from_batches(list(read_csv([data], spec)), schema=spec.schema()).to_pylist()


def json_rows(text: str, spec: RecordSpec = SPEC) -> list[dict[str, Any]]:
    return pa.Table.from_batches(list(read_ndjson([text.encode()], spec)), schema=spec.schema()).to_pylist()


def parquet_rows(table: pa.Table, spec: RecordSpec = SPEC) -> list[dict[str, Any]]:
    file = io.BytesIO()
    pq.write_table(table, file)
    file.seek(0)
    return pa.Table.from_batches(list(read_parquet(file, spec)), schema=spec.schema()).to_pylist()


@pytest.mark.parametrize(
    ("record", "rule", "told"),
    [
        (b"w,2013-01-01,abc,", "bad_int", "column `n`: expected a whole number, found 'abc'"),
        (b"w,2013-01-01,1.01,", "bad_int", "found '1.01'"),
        (b"w,2013-01-01,9223372036854775808,", "int_overflow", "2^63"),
        (b"w,2013-01-01,1,NaN", "bad_float", "a finite number, found 'NaN'"),
        (b"w,2013-01-01,1,-inf", "bad_float", "finite"),
        (b"w,2013-01-01,1,1e400", "bad_float", "finite"),
        (b"w,0000-01-01,1,", "bad_timestamp", "years 0001 to 9999"),
        (b"w,10000-01-01,1,", "bad_timestamp", "years 0001 to 9999"),
        (b"w,2013-02-29,1,", "bad_timestamp", "2013-02-29"),
        (b",2013-01-01,1,", "missing_entity", "column `who`"),
        (b"w,,1,", "missing_time", "a time on at"),
        (b"w,2013-01-01,,", "missing_delta_id", "column `n`"),
        (b"w,2013-01-01,1", "wrong_column_count", "4 values as in the header, found 3"),
        (b"w,2013-01-01,1,2,3", "wrong_column_count", "found 5"),
        (b'"w"x,2013-01-01,1,', "bad_quote", "after a closing quote"),
        (b"\xff,2013-01-01,1,", "bad_utf8", "UTF-8"),
        (b"w" * 200 + b",2013-01-01,1,", "too_long", "at most 100 bytes"),
    ],
)
def test_a_broken_record_is_one_reject_between_good_neighbours(record: bytes, rule: str, told: str) -> None:
    file = b"who,at,n,x\n" + GOOD.encode() + b"\n" + record + b"\n" + GOOD.encode()
    before, reject, after = csv_rows(file, replace(SPEC, max_record_bytes=100))
    assert [row["rule"] for row in (before, reject, after)] == [None, rule, None]
    assert (before["line"], reject["line"], after["line"]) == (2, 3, 4)
    assert told in reject["reason"]
    assert raw_bytes(rule, reject["raw"]) == record[:100]
    assert {name for name, value in reject.items() if value is not None} == {"line", "rule", "reason", "raw"}


@pytest.mark.parametrize(
    ("record", "rule"),
    [
        ("{", "bad_json"),
        ("[1]", "bad_json"),
        ('{"who": "\\ud800"}', "bad_json"),
        ('{"who": "w", "who": "v"}', "duplicate_column"),
        ('{"who": "w", "at": "2013-01-01", "n": {"deep": 1}}', "nested_value"),
        ('{"who": "w", "at": "2013-01-01", "n": [1]}', "nested_value"),
        ('{"who": "w", "at": "2013-01-01", "n": true}', "bad_int"),
        ('{"who": "w", "at": "2013-01-01", "n": 9223372036854775808}', "int_overflow"),
        ('{"who": "w", "at": "2013-01-01", "x": NaN}', "bad_float"),
        ('{"who": 5.0, "at": "2013-01-01"}', "bad_string"),
        ('{"who": "w", "at": 2013}', "bad_timestamp"),
        ('{"at": "2013-01-01"}', "missing_entity"),
    ],
)
def test_a_broken_object_is_one_reject_between_good_neighbours(record: str, rule: str) -> None:
    good = '{"who": "w", "at": "2013-01-01", "n": 1}'
    rows = json_rows(f"{good}\n{record}\n{good}\n")
    assert [row["rule"] for row in rows] == [None, rule, None]
    assert rows[1]["raw"] == record


MONEY = replace(SPEC, columns=(*SPEC.columns, ColumnSpec("price", "price", "decimal", ("",), digits=(7, 2))))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("12.50", "12.50"), ("12.5", "12.50"), ("12", "12.00"), ("+.5", "0.50"), ("7.", "7.00"), ("-0", "0.00"),
        ("99999.99", "99999.99"), ("-99999.99", "-99999.99"), (" 1.10\t", "1.10"), ("0001.2000", "1.20"), ("", None),
        ("100000", "decimal_overflow"), ("-100000.00", "decimal_overflow"), ("9" * 60, "decimal_overflow"),
        ("100000.001", "decimal_overflow"), ("0.001", "inexact_decimal"), ("99999.999", "inexact_decimal"),
        ("1e2", "bad_decimal"), ("1E-2", "bad_decimal"), ("1,5", "bad_decimal"), ("$1", "bad_decimal"),
        (".", "bad_decimal"), ("-", "bad_decimal"), ("1.2.3", "bad_decimal"), ("NaN", "bad_decimal"),
        ("1_000", "bad_decimal"), ("--1", "bad_decimal"), ("1 0", "bad_decimal"), ("٣", "bad_decimal"),
    ],
)  # fmt: skip
def test_a_decimal_is_taken_as_it_stands_or_not_at_all(text: str, told: str | None) -> None:
    (row,) = csv_rows(f'who,at,n,x,price\n{GOOD},"{text}"', MONEY)
    (other,) = json_rows(f'{{"who": "w", "at": "2013-01-01", "n": 1, "price": "{text}"}}'.replace("\t", "\\t"), MONEY)
    for found in (row, other):
        value = None if found["c_price"] is None else str(found["c_price"])
        assert (found["rule"] or value) == told, found["reason"]


def test_a_number_of_json_keeps_every_digit_of_a_decimal() -> None:
    spec = replace(MONEY, columns=(*SPEC.columns, ColumnSpec("price", "price", "decimal", (), digits=(38, 20))))
    digits = "123456789012345678.12345678901234567890"
    (row,) = json_rows(f'{{"who": "w", "at": "2013-01-01", "n": 1, "price": {digits}}}', spec)
    assert str(row["c_price"]) == digits


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "1e2",
            "column `price`: expected a decimal number without an exponent, and not a floating one, found '1e2'",
        ),
        ("k.A.", "column `price`: expected a decimal number, found 'k.A.'"),
        ("123456.7", "column `price`: expected at most 5 digits before the point of a decimal(7, 2), found '123456.7'"),
        ("1.234", "column `price`: expected at most 2 digits after the point of a decimal(7, 2), found '1.234'"),
    ],
)
def test_a_decimal_that_is_none_says_what_is_wrong_with_it(text: str, sentence: str) -> None:
    (row,) = csv_rows(f"who,at,n,x,price\n{GOOD},{text}", MONEY)
    assert row["reason"] == sentence


def test_a_stray_quote_costs_its_line_and_not_the_file() -> None:
    lines = [GOOD, '"w,2013-01-01,1,', GOOD, GOOD]
    rows = csv_rows("who,at,n,x\n" + "\n".join(lines))
    assert [(row["line"], row["rule"]) for row in rows] == [(2, None), (3, "unclosed_quote"), (4, None), (5, None)]


def test_quoted_newlines_belong_to_the_record_and_lines_are_counted() -> None:
    rows = csv_rows(f'who,at,n,x\n"two\nlines, ""quoted""",2013-01-01,1,\n{GOOD}')
    assert [(row["line"], row["entity"]) for row in rows] == [(2, 'two\nlines, "quoted"'), (4, "w")]


def test_columns_may_stand_in_any_order_and_unknown_ones_stay_with_their_row() -> None:
    (row,) = csv_rows("new,x,n,at,who,other\nhello,2.5,1,2013-01-01,w,\n")
    assert (row["entity"], row["c_n"], row["c_x"]) == ("w", 1, 2.5)
    assert row["extra"] == [("new", "hello"), ("other", "")]
    (row,) = json_rows('{"n": 1, "new": {"a": [1.50, null]}, "who": "w", "at": "2013-01-01", "none": null}')
    assert row["extra"] == [("new", '{"a":[1.50,null]}'), ("none", None)]


@pytest.mark.parametrize("policy", ["quarantine", "fail"])
def test_another_policy_rejects_rows_with_unknown_or_missing_columns(policy: Any) -> None:
    spec = replace(STRICT, unknown_columns=policy)
    assert [row["rule"] for row in csv_rows(f"who,at,n,x,new\n{GOOD},5", spec)] == ["unknown_column"]
    whole = '{"who": "w", "at": "2013-01-01", "n": 1, "x": null}'
    short = '{"who": "w", "at": "2013-01-01", "n": 1}'
    assert [row["rule"] for row in json_rows(f"{whole}\n{short}", spec)] == [None, "missing_column"]
    assert [row["rule"] for row in json_rows(f"{whole}\n{short}", with_optional(spec, "x"))] == [None, None]


def with_optional(spec: RecordSpec, *names: str) -> RecordSpec:
    return replace(spec, columns=tuple(replace(c, optional=c.optional or c.name in names) for c in spec.columns))


def refusal(read: Callable[[], object]) -> tuple[str, str]:
    with pytest.raises(FileRejectedError) as refused:
        read()
    return refused.value.rule, refused.value.found


@pytest.mark.parametrize("policy", ["keep", "quarantine", "fail"])
def test_a_file_that_lacks_a_declared_column_is_rejected_by_its_name_and_the_nearest_one(policy: Any) -> None:
    spec = replace(STRICT, unknown_columns=policy)
    rule, found = refusal(lambda: csv_rows("who,at,N,y\nw,2013-01-01,1,2", spec))
    assert (rule, found) == ("columns_missing", "no `n` (the file has `N`), no `x`")
    objects = '{"who": "w", "at": "2013-01-01", "N": 1}\n{"who": "w", "at": "2013-01-01", "y": 2}'
    assert refusal(lambda: json_rows(objects, spec)) == (rule, found)
    few = ["w", "2013-01-01", 1, 2]
    table = pa.table({name: [value] for name, value in zip(("who", "at", "N", "y"), few, strict=True)})
    assert refusal(lambda: parquet_rows(table, spec)) == (rule, found)


def test_an_optional_column_is_null_in_a_file_that_lacks_it() -> None:
    spec = replace(SPEC, unknown_columns="quarantine")
    (of_csv,) = csv_rows("who,at,n\nw,2013-01-01,1", spec)
    (of_json,) = json_rows('{"who": "w", "at": "2013-01-01", "n": 1}', spec)
    (of_parquet,) = parquet_rows(pa.table({"who": ["w"], "at": ["2013-01-01"], "n": [1]}), spec)
    assert [(row["rule"], row["c_n"], row["c_x"]) for row in (of_csv, of_json, of_parquet)] == [(None, 1, None)] * 3


def test_a_file_of_json_lacks_what_none_of_its_readable_records_has() -> None:
    first, second = '{"who": "w", "at": "2013-01-01", "n": 1}', '{"who": "w", "at": "2013-01-01", "x": null}'
    assert [row["rule"] for row in json_rows(f"{first}\n{second}", replace(STRICT, delta_id=None))] == [None, None]
    assert [row["rule"] for row in json_rows('{"who": "w"\n[1]', STRICT)] == ["bad_json", "bad_json"]
    assert refusal(lambda: json_rows('{"x": 1, "n": \n{"who": 1, "at": 1, "n": 1}', STRICT))[1] == "no `x`"


@pytest.mark.parametrize(
    ("data", "rule"),
    [
        (b"", "empty_file"),
        (b"\n\r\n", "empty_file"),
        (b"\xef\xbb\xbf", "empty_file"),
        (b"who,\xff\n", "bad_header"),
        (b"who,at,who\n", "duplicate_header"),
        (b'"who', "bad_header"),
        (b"who;at;n;x\nw;2013-01-01;1;2.5\n", "wrong_delimiter"),
        (b'"x"\t"who"\r\n1\tw\n', "wrong_delimiter"),
        (b"w" * (2 << 20), "bad_header"),
    ],
)
def test_a_file_without_a_header_is_rejected_whole(data: bytes, rule: str) -> None:
    with pytest.raises(FileRejectedError) as refused:
        csv_rows(data)
    assert refused.value.rule == rule
    assert rule in FILE_RULES


@pytest.mark.parametrize("policy", ["keep", "quarantine", "fail"])
def test_a_file_of_another_delimiter_says_which_it_seems_to_have(policy: Any) -> None:
    with pytest.raises(FileRejectedError) as refused:
        csv_rows("who;at;n;x\nw;2013-01-01;1;2.5", replace(SPEC, unknown_columns=policy))
    assert refused.value.rule == "wrong_delimiter"
    assert refused.value.reason == (
        "expected columns separated by ',', as declared, found a header that seems to be separated by ';'"
    )
    with pytest.raises(FileRejectedError, match="separated by ','"):
        csv_rows(f"who,at,n,x\n{GOOD}", replace(SPEC, unknown_columns=policy, delimiter="|"))


@pytest.mark.parametrize("header", ["who", "name;of", "name", "who;at,n", "a;b,who", "name;who"])
def test_a_header_that_no_other_delimiter_fits_better_is_no_matter_of_delimiters(header: str) -> None:
    assert csv_rows(header, with_optional(SPEC, "who", "at", "n", "x")) == []


def test_an_undeclared_column_is_named() -> None:
    spec = replace(SPEC, unknown_columns="quarantine")
    (of_csv,) = csv_rows(f"who,at,n,x,new,also\n{GOOD},5,6", spec)
    (of_json,) = json_rows('{"who": "w", "at": "2013-01-01", "n": 1, "x": 1, "new": {"a": 1}, "also": null}', spec)
    for row in (of_csv, of_json):
        assert (row["rule"], row["reason"]) == ("unknown_column", "expected declared columns only, found 'also', 'new'")
    many = ",".join(f"c{n}" for n in range(9))
    (row,) = csv_rows(f"who,at,n,x,{many}\n{GOOD}{',' * 9}", spec)
    assert row["reason"].endswith("found 'c0', 'c1', 'c2', 'c3', 'c4' and 4 more")


def test_a_header_alone_is_a_file_without_rows() -> None:
    assert csv_rows("who,at,n,x\n") == []


def test_a_line_of_10_mb_is_one_reject_that_keeps_its_beginning() -> None:
    blocks = [b"who,at,n,x\n", *[b"y" * (1 << 20)] * 10, b"\n" + GOOD.encode()]
    rows = pa.Table.from_batches(list(read_csv(blocks, SPEC))).to_pylist()
    assert [(row["line"], row["rule"]) for row in rows] == [(2, "too_long"), (3, None)]
    assert rows[0]["raw"] == "y" * (1 << 20)


def test_delta_ids_of_different_parts_differ() -> None:
    spec = replace(SPEC, columns=(*SPEC.columns[:2], ColumnSpec("n", "n", "string"), SPEC.columns[3]))
    ids = [row["delta_id"] for row in csv_rows("who,at,n\na|b,2013-01-01,c\na,2013-01-01,b|c\na\\,2013-01-01,|c", spec)]
    assert len(set(ids)) == 3


@given(st.binary(max_size=40))
def test_a_record_that_is_no_utf8_can_be_had_back_from_its_raw_text(record: bytes) -> None:
    assert raw_bytes("bad_utf8", show_raw(record, escape=True)) == record


def test_every_rule_has_its_own_name() -> None:
    assert len(set(RULES)) == len(RULES)
    assert not FILE_RULES & set(RULES)


NEW_YORK = "America/New_York"
HOUR = 3_600_000_000


@pytest.mark.parametrize(
    ("local", "earliest", "latest", "how"),
    [
        ("2013-07-01T12:00", "2013-07-01T16:00", "2013-07-01T16:00", READ),
        ("2013-11-03T01:30", "2013-11-03T05:30", "2013-11-03T06:30", AMBIGUOUS),
        ("2013-03-10T02:30", "2013-03-10T06:30", "2013-03-10T07:30", SKIPPED),
    ],
)
def test_a_local_time_is_once_twice_or_never(local: str, earliest: str, latest: str, how: int) -> None:
    micros = [int(np.datetime64(text, "us").astype(np.int64)) for text in (local, earliest, latest)]
    assert local_to_utc(micros[0], NEW_YORK) == (*micros[1:], how)


@given(
    st.lists(st.integers(-(10**15), 3 * 10**15), max_size=20),
    st.sampled_from([NEW_YORK, "Australia/Lord_Howe", "Asia/Kathmandu", "America/Sao_Paulo", "Europe/Dublin"]),
)
def test_local_times_resolved_by_the_hour_are_those_resolved_one_by_one(locals_us: list[int], zone: str) -> None:
    values = np.array(locals_us, np.int64)
    resolved = resolve_local(values, np.ones(len(values), bool), zone)
    one_by_one = [local_to_utc(value, zone) for value in locals_us]
    assert [tuple(int(part) for part in parts) for parts in zip(*resolved, strict=True)] == one_by_one


def test_a_resolved_local_time_is_noted_with_its_row() -> None:
    column = ColumnSpec("at", "at", "timestamp", (), timezone=NEW_YORK, dst="latest")
    spec = replace(SPEC, columns=(SPEC.columns[0], column, *SPEC.columns[2:]))
    (row,) = csv_rows("who,at,n\nw,2013-11-03 01:30,1", spec)
    assert row["extra"] == [("@dst:at", "ambiguous, latest")]
    assert row["event_time"].isoformat() == "2013-11-03T06:30:00+00:00"
    (row,) = csv_rows(
        "who,at,n\nw,2013-11-03 01:30,1",
        replace(spec, columns=(SPEC.columns[0], replace(column, dst="refuse"), *SPEC.columns[2:])),
    )
    assert row["rule"] == "ambiguous_local_time"
    assert NEW_YORK in row["reason"]


def test_a_stray_quote_far_from_the_end_costs_its_line_and_keeps_the_count() -> None:
    lines = ['"w,2013-01-01,1,', *[GOOD] * 20]
    rows = csv_rows("who,at,n,x\n" + "\n".join(lines), replace(SPEC, max_record_bytes=50))
    assert [row["line"] for row in rows] == list(range(2, 23))
    assert [row["rule"] for row in rows] == ["unclosed_quote", *[None] * 20]


FLOATS = [
    "1e22",
    "1e23",
    "1e-22",
    "1e-23",
    "9007199254740992",
    "9007199254740993",
    "18014398509481985",
    "0.1",
    "5e-324",
]
HARD_FLOATS = [
    "1.7976931348623157e308",
    "2.2250738585072011e-308",
    "10.357019999999999",
    "123456789012345678901234567890",
    "-0",
]


@pytest.mark.parametrize("text", [*FLOATS, *HARD_FLOATS, "1e-400", "0." + "0" * 30 + "7", "9" * 19, "1" + "0" * 22])
def test_a_float_is_the_nearest_double(text: str) -> None:
    (row,) = csv_rows(f"who,at,n,x\nw,2013-01-01,1,{text}")
    assert row["c_x"].hex() == float(text).hex()


@pytest.mark.parametrize(
    ("text", "value"),
    [("9223372036854775807", 2**63 - 1), ("-9223372036854775808", -(2**63)), ("+0007", 7), (" -1\t", -1), ("-0", 0)],
)
def test_a_whole_number_reads_to_the_last_one(text: str, value: int) -> None:
    assert csv_rows(f"who,at,n,x\nw,2013-01-01,{text},")[0]["c_n"] == value


@pytest.mark.parametrize("text", ["-9223372036854775809", "9223372036854775808", "9" * 19, "-" + "9" * 40])
def test_a_whole_number_beyond_the_last_one_is_told_as_such(text: str) -> None:
    assert csv_rows(f"who,at,n,x\nw,2013-01-01,{text},")[0]["rule"] == "int_overflow"


@pytest.mark.parametrize(
    "text",
    ["2013-01-01T23:60", "2013-01-01T24:00", "2013-01-01T00:00:60", "2013-01-01T00:00+24:00", "2013-01-01T00:00+00:60",
     "2013-01-01T00:00:00.", "2013-01-01T00:00:00.1234567890", "2013-01-01T", "2013-01-01T00", "2013-01-01t00:00",
     "2013-01-01T00:00z", "2013-13-01", "2013-00-01", "2013-01-00", "1900-02-29", "0001-01-01T00:00+01:00",
     "9999-12-31T23:59-01:00", "2013-01-01T00:00  Z", "2013/01/01", "20130101", "1356998400"],
)  # fmt: skip
def test_what_is_no_instant_is_refused(text: str) -> None:
    assert csv_rows(f"who,at,n,x\nw,{text},1,")[0]["rule"] == "bad_timestamp"


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("1970-01-01", 0),
        ("1970-01-01 00:00", 0),
        ("1970-01-01T00:00:00.0000019Z", 1),
        ("1969-12-31T23:59:59.999999Z", -1),
        ("1970-01-01T05:45+0545", 0),
        ("1969-12-31T19:00-05", 0),
        ("1969-12-31T19-05", None),
        ("2000-02-29", 951_782_400_000_000),
    ],
)
def test_an_instant_reads_to_the_microsecond(text: str, micros: int | None) -> None:
    (row,) = csv_rows(f"who,at,n,x\nw,{text},1,")
    assert row["rule"] == (None if micros is not None else "bad_timestamp")
    if micros is not None:
        assert round(row["event_time"].timestamp() * 1_000_000) == micros
