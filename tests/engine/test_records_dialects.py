"""Records as other programs write them: encodings, nested members, arrays, envelopes of change data capture."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.engine.records import (
    ColumnSpec,
    FileRejectedError,
    RecordSpec,
    as_utf8,
    read_csv,
    read_json,
    read_ndjson,
)
from spark_jobs.engine.twins.records import naive_ndjson
from tests.effort import tries
from tests.engine.test_records_twins import comparable

SPEC = RecordSpec(
    columns=(
        ColumnSpec("who", "who", "string", ("",)),
        ColumnSpec("at", "at", "timestamp", ("",), time_formats=("epoch_ms", "iso")),
        ColumnSpec("n", "n", "int", ("",), optional=True),
    ),
    timelines=(("at", "at"),),
    event_time=("at",),
    entity="who",
)
AT = 1_704_067_200_000_000
DAY = "2024-01-01"


def rows(batches: Iterator[pa.RecordBatch]) -> list[tuple[Any, ...]]:
    """Line and rule, or line, entity, n and what is beside them, of each record."""
    read = comparable(batches)
    assert all(row["rule"] or row["event_time"] == AT for row in read)
    return [
        (row["line"], row["rule"]) if row["rule"] else (row["line"], row["entity"], row["c_n"], dict(row["extra"]))
        for row in read
    ]


def objects(*records: Any) -> list[bytes]:
    return ["\n".join(map(json.dumps, records)).encode()]


@pytest.mark.parametrize("cut", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize(
    ("encoding", "data", "who"),
    [
        ("cp1252", f"who,at\ncaf\xe9,{DAY}\n".encode("cp1252"), "café"),
        ("utf-8", f"who,at\ncafé,{DAY}\n".encode("utf-16"), "café"),
        ("cp1252", f"who,at\ncafé,{DAY}\n".encode("utf-8-sig"), "café"),
        ("utf-16-be", f"who,at\r\n\U0001f600,{DAY}\r\n".encode("utf-16-be"), "\U0001f600"),
        ("shift_jis", f"who,at\n表,{DAY}\n".encode("shift_jis"), "表"),
    ],
)
def test_text_of_any_encoding_reads_wherever_blocks_are_cut(encoding: str, data: bytes, who: str, cut: int) -> None:
    blocks = [data[at : at + cut] for at in range(0, len(data), cut)]
    assert rows(read_csv(as_utf8(blocks, encoding), SPEC)) == [(2, who, None, {})]


def test_bytes_that_an_encoding_lacks_reject_their_record_alone() -> None:
    data = f"who,at\nr\xf6d,{DAY}\n".encode("cp1252") + b"a\x81b,2024-01-01\n" + f"c,{DAY}\n".encode()
    spec = replace(SPEC, encoding="cp1252")
    read = comparable(read_csv(as_utf8([data], "cp1252"), spec))
    assert [(row["line"], row["entity"], row["rule"]) for row in read] == [
        (2, "röd", None), (3, None, "bad_utf8"), (4, "c", None),
    ]  # fmt: skip
    assert read[1]["reason"].startswith("expected text in CP1252")


def test_a_header_of_utf_16_without_a_mark_says_so() -> None:
    with pytest.raises(FileRejectedError, match="utf-16-le"):
        list(read_csv(as_utf8([f"who,at\na,{DAY}\n".encode("utf-16-le")], "utf-8"), SPEC))


def test_members_of_nested_objects_are_columns() -> None:
    columns = (
        replace(SPEC.columns[0], header="row.after.id"),
        SPEC.columns[1],
        replace(SPEC.columns[2], header="row.n"),
    )
    spec = replace(SPEC, columns=columns)
    nested = {"row": {"after": {"id": 7, "x": [1]}, "n": 3.0, "b": None}, "at": DAY}
    blocks = objects(
        nested, {"row.after.id": "a", "at": DAY}, {"row": {"after": None}, "at": DAY}, {"row": 5, "at": DAY}
    )
    assert rows(read_ndjson(blocks, spec)) == [
        (1, "7", 3, {"row.after.x": "[1]", "row.b": None}), (2, "a", None, {}),
        (3, "missing_entity"), (4, "missing_entity"),
    ]  # fmt: skip
    twice = {"row": {"after": {"id": 1}}, "row.after.id": 2, "at": DAY}
    assert rows(read_ndjson(objects(nested, twice), spec))[1] == (2, "duplicate_column")


EVENT = {"before": None, "after": {"who": "a", "n": 1}, "source": {"lsn": 9}, "op": "c"}
GONE = {"before": {"who": "a", "n": 1}, "after": None, "op": "d"}
MAXWELL = {"database": "d", "table": "t", "type": "update", "data": {"who": "a", "n": 2, "at": DAY}, "old": {"n": 1}}


@pytest.mark.parametrize("wrapped", [False, True])
def test_events_of_debezium_are_the_rows_that_they_change(wrapped: bool) -> None:
    at = {"ts_ms": AT // 1000}
    columns: tuple[ColumnSpec, ...] = (SPEC.columns[0], replace(SPEC.columns[1], header="_ts_ms"), SPEC.columns[2])
    columns += (ColumnSpec("old", "_before.n", "int", optional=True), ColumnSpec("op", "_op", "string"))
    spec = replace(SPEC, columns=columns, envelope="debezium")
    events = [EVENT | at, GONE | at, {"before": None, "after": None, "op": "t"} | at, {"op": "m"}, [1]]
    blocks = objects(*({"schema": {}, "payload": e} if wrapped and isinstance(e, dict) else e for e in events), None)
    read = comparable(read_ndjson(blocks, spec))
    assert [(r["line"], r["rule"], r["entity"], r["c_n"], r["c_old"], r["c_op"]) for r in read] == [
        (1, None, "a", 1, None, "c"), (2, None, "a", 1, 1, "d"), (3, "truncate", None, None, None, None),
        (4, "no_row_change", None, None, None, None), (5, "bad_json", None, None, None, None),
        (6, "tombstone", None, None, None, None),
    ]  # fmt: skip
    assert dict(read[0]["extra"]) == {"_source": '{"lsn":9}'}
    skipping = replace(spec, skip_tombstones=True)
    assert [r["line"] for r in comparable(read_ndjson(blocks, skipping))] == [1, 2, 3, 4, 5]
    assert list(read_ndjson(objects(None, None), skipping)) == []


def test_events_of_maxwell_are_the_rows_that_they_change() -> None:
    spec = replace(
        SPEC, envelope="maxwell", columns=(*SPEC.columns, ColumnSpec("old", "_before.n", "int", optional=True))
    )
    removed = MAXWELL | {"type": "delete", "old": None}
    others = [MAXWELL | {"type": kind} for kind in ("table-truncate", "bootstrap-start", 5)]
    read = comparable(read_ndjson(objects(MAXWELL, removed, *others), spec))
    assert [(r["rule"], r["entity"], r["c_n"], r["c_old"]) for r in read] == [
        (None, "a", 2, 1), (None, "a", 2, 2), ("truncate", None, None, None),
        *[("no_row_change", None, None, None)] * 2,
    ]  # fmt: skip
    assert [dict(r["extra"])["_op"] for r in read[:2]] == ["u", "d"]


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(["a", DAY, "c", "d", "t", "insert", "update"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["who", "at", "n", "op", "before", "after", "payload", "type", "data", "old", "x.y"]), inner
        )
    ),
    max_leaves=12,
)


@settings(max_examples=tries(60), deadline=None)
@given(st.lists(ANY_JSON, max_size=5), st.sampled_from([None, "debezium", "maxwell"]), st.booleans())
def test_nested_records_read_like_the_twin(records: list[Any], envelope: Any, skips: bool) -> None:
    columns = (replace(SPEC.columns[0], header="before.who", optional=True), *SPEC.columns[1:])
    spec = replace(SPEC, columns=columns, envelope=envelope, skip_tombstones=skips)
    (data,) = objects(*records)

    def outcome(read: Any) -> Any:
        try:
            return read()
        except FileRejectedError as refused:
            return refused.rule

    twin = outcome(lambda: naive_ndjson(data, spec))
    assert outcome(lambda: comparable(read_ndjson([data], spec))) == twin


@pytest.mark.parametrize("cut", [1, 2, 5, 1000])
def test_an_array_is_records_numbered_by_their_elements(cut: int) -> None:
    first, last = f'{{"who": "a]\\\\\\"[", "at": "{DAY}", \n "n": 1}}', f'{{"who":"c","at":"{DAY}","x":[{{}}]}}'
    text = f'[ {first},{{"who": "b\n", "at": 1}}, 5,\n,{last} ]\n'
    data = text.encode()
    blocks = [data[at : at + cut] for at in range(0, len(data), cut)]
    assert rows(read_json(blocks, SPEC)) == [
        (1, 'a]\\"[', 1, {}), (2, "bad_json"), (3, "bad_json"), (4, "bad_json"), (5, "c", None, {"x": "[{}]"}),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "empty_file"),
        (" [ ] ", "empty_file"),
        ("[1", "truncated_file"),
        ("{}", "unreadable_file"),
        ("[{}] x", "unreadable_file"),
    ],
)
def test_what_is_no_whole_array_is_rejected_whole(text: str, rule: str) -> None:
    with pytest.raises(FileRejectedError) as refused:
        list(read_json([text.encode()], SPEC))
    assert refused.value.rule == rule


def test_an_element_that_is_too_long_costs_no_other_one() -> None:
    long = {"who": "x" * 500, "at": DAY}
    text = json.dumps([long, {"who": "a", "at": DAY}]).encode()
    assert rows(read_json([text], replace(SPEC, max_record_bytes=100))) == [(1, "too_long"), (2, "a", None, {})]


def test_columns_without_a_name_at_the_end_hold_what_stands_in_them() -> None:
    blocks = [f"who,at,,\na,{DAY},,\nb,{DAY},,x\nc,{DAY},\n".encode()]
    assert rows(read_csv(blocks, SPEC)) == [
        (2, "a", None, {}),
        (3, "b", None, {"column 4": "x"}),
        (4, "wrong_column_count"),
    ]
    strict = replace(SPEC, unknown_columns="quarantine")
    assert rows(read_csv(blocks, strict)) == [(2, "a", None, {}), (3, "unknown_column"), (4, "wrong_column_count")]
