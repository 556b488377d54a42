"""Source files guessed from samples: they load, read the sample that they were made from, and say what they can't."""

from __future__ import annotations

import csv
import gzip
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spark_jobs.cli.app import run
from spark_jobs.errors import ParameterError
from spark_jobs.landing.guess import Guess, guess_source
from spark_jobs.sources import LandingOptions, load_source, parse_source
from spark_jobs.sources.data_checks import Between, In
from tests.effort import tries

ROWS = [
    {
        "Event ID": str(n),
        "meter": "ab"[n % 2],
        "at": f"2024-03-0{1 + n % 3}T0{n}:00:00Z",
        "load": "NA" if n == 3 else f"{n}.5",
        "count": n,
        "zip": f"0{n}234",
        "serial": 9_223_372_036_854_775_807 - n,
        "too great": f"9{n}23372036854775807000",
        "ok": "true" if n % 2 else "false",
        "day": f"2024-03-0{1 + n % 3}",
    }
    for n in range(6)
]
TYPES = {
    "event_id": "int", "meter": "string", "at": "timestamp", "load": "float", "count": "int", "zip": "string",
    "serial": "int", "too_great": "string", "ok": "bool", "day": "date",
}  # fmt: skip


def as_csv(path: Path, rows: list[dict[str, Any]], delimiter: str = ",") -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)
    return path


def types(guess: Guess) -> dict[str, str]:
    return {name: column.type for name, column in guess.source.columns.items()}


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_a_csv_file_tells_types_nulls_names_and_delimiter(tmp_path: Path, delimiter: str) -> None:
    guess = guess_source([as_csv(tmp_path / "meters.csv", ROWS, delimiter)])
    source = guess.source
    assert types(guess) == TYPES
    assert source.dag.schedule == "manual", "a backfill of old files starts no run of today"
    assert (source.name, source.entity, source.event_time, source.timelines) == (
        "meters", "meter", ("at",), {"at": "at"},
    )  # fmt: skip
    assert source.delta_id == ("event_id",)
    assert source.header_name("event_id") == "Event ID"
    assert source.landing.delimiter == delimiter
    assert source.null_values("load") == ("", "NA")
    assert source.start_us == datetime(2024, 3, 1, tzinfo=UTC).timestamp() * 1_000_000
    assert (guess.rows, guess.rejected) == (6, {})


def test_other_formats_tell_the_same(tmp_path: Path) -> None:
    kept = {"load": lambda v: None if v == "NA" else float(v) * 1e16, "ok": lambda v: v == "true"}
    rows = [{k: kept.get(k, lambda v: v)(v) for k, v in row.items()} for row in ROWS]
    lines = "".join(json.dumps(row | {"nested": {"a": [1]}}) + "\n" for row in rows)
    (tmp_path / "m.ndjson.gz").write_bytes(gzip.compress(lines.encode()))
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "m.parquet")
    from_json, from_parquet = (guess_source([tmp_path / name]) for name in ("m.ndjson.gz", "m.parquet"))
    for guess, form in ((from_json, "ndjson"), (from_parquet, "parquet")):
        assert types(guess) == TYPES
        assert (guess.rows, guess.rejected, guess.source.landing.format) == (6, {}, form)


def test_several_files_are_one_sample_and_folders_of_dates_name_it(tmp_path: Path) -> None:
    files = []
    for day in (1, 2):
        folder = tmp_path / "Ship Logs" / f"2024-03-0{day}"
        folder.mkdir(parents=True)
        files.append(as_csv(folder / "a.csv", [{"ship": f"s{n}", "seen": f"2024-03-0{day} 10:0{n}"} for n in (0, 1)]))
    guess = guess_source(files)
    assert (guess.source.name, guess.source.entity, guess.rows) == ("ship_logs", "ship", 4)
    assert isinstance(guess.source.landing, LandingOptions)
    assert guess.source.landing.path == "ship_logs/{date}/*"


def test_times_since_1970_are_times_where_there_are_no_others(tmp_path: Path) -> None:
    rows = [{"sensor": "ab"[n % 2], "sent_at": 1_700_000_000_000 + n, "size": 1_700_000_000_000} for n in range(4)]
    guess = guess_source([as_csv(tmp_path / "s.csv", rows)])
    assert types(guess) == {"sensor": "string", "sent_at": "timestamp", "size": "int"}
    assert guess.source.columns["sent_at"].format == "epoch_ms"
    assert guess.rows == 4


def test_a_column_that_the_reader_rejects_becomes_text(tmp_path: Path) -> None:
    rows = [{"ship": "ab"[n % 2], "seen": "2024-03-01T10:00", "gone": f"2024-03-01T10:{58 + n}"} for n in range(4)]
    guess = guess_source([as_csv(tmp_path / "s.csv", rows)])
    assert types(guess)["gone"] == "string"
    assert (guess.rows, guess.rejected) == (4, {})


def test_decimals_are_what_a_schema_says_and_a_remark_where_texts_only_look_so(tmp_path: Path) -> None:
    rows = [
        {"till": "ab"[n % 2], "at": f"2024-03-01T10:0{n}", "Net Price": f"{n}.50", "heat": f"{n}.{n}5"[: 3 + n % 2]}
        for n in range(4)
    ]
    guess = guess_source([as_csv(tmp_path / "s.csv", rows)])
    assert types(guess) == {"till": "string", "at": "timestamp", "net_price": "float", "heat": "float"}
    remarked = [line.split(":")[0].strip() for line in guess.text.splitlines() if "decimal(18, 2)" in line]
    assert remarked == ["net_price"]
    # the remark's type can be copied as it is
    taken = guess.text.replace('type: float, from: "Net Price"', 'type: "decimal(18, 2)", from: "Net Price"')
    assert 'always 2 decimals: "decimal(18, 2)" if' in guess.text
    assert parse_source(taken, file="s.yml").columns["net_price"].type == "decimal(18, 2)"
    schema = pa.schema(
        [("till", pa.string()), ("at", pa.string()), ("Net Price", pa.decimal128(12, 2)), ("tax", pa.decimal128(5, 4))]
    )
    table = pa.table([["a", "b", "b", "a"], [row["at"] for row in rows], [None, 1, 2, 3], [1, 1, 1, 1]], schema=schema)
    pq.write_table(table, tmp_path / "s.parquet")
    guess = guess_source([tmp_path / "s.parquet"])
    assert types(guess) | {"till": "", "at": ""} == {
        "till": "", "at": "", "net_price": "decimal(12, 2)", "tax": "decimal(5, 4)",
    }  # fmt: skip
    assert "sum_tax: sum(tax)" in guess.text
    assert (guess.rows, guess.rejected) == (4, {})


def test_names_that_become_one_stay_two(tmp_path: Path) -> None:
    rows = [{"From": "ab"[n % 2], "a b": n, "a-b": n, "1st": n, "t": "2024-03-01T10:00"} for n in range(4)]
    guess = guess_source([as_csv(tmp_path / "s.csv", rows)])
    named = {name: guess.source.header_name(name) for name in guess.source.columns}
    assert named == {"from_": "From", "a_b": "a b", "a_b_2": "a-b", "c_1st": "1st", "t": "t"}


@pytest.mark.parametrize(
    ("content", "options", "found"),
    [
        (None, {}, "No such file"),
        (b"", {}, "which is empty"),
        (b"\xff\xfe,\0\n\0", {}, "with columns"),
        (b"PAR1 no more", {}, "Parquet"),
        (b"ship,n\na,1\nb,2\n", {}, "a column of times"),
        (b"t,n\n2024-03-01T10:00,1\n2024-03-01T11:00,2\n", {}, "which entity a row changes"),
        (b"ship,t\na,2024-03-01T10:00\n", {"entity": "car"}, "one of the columns ship, t"),
        (b"ship,t\na,2024-03-01T10:00\n", {"time": "ship"}, "one of the columns t"),
    ],
)
def test_what_can_not_be_guessed_is_said(tmp_path: Path, content: bytes | None, options: Any, found: str) -> None:
    path = tmp_path / "s.csv"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ParameterError, match=found) as refused:
        guess_source([path], **options)
    assert refused.value.next_step


@pytest.mark.parametrize("form", ["csv", "ndjson", "parquet"])
def test_the_start_is_the_first_event_of_all_rows_of_all_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.setattr("spark_jobs.landing.sampling.SAMPLE_ROWS", 5)
    years = {"a": [2014] * 7 + [2011], "b": [2014, 2013, 2015, 2014, 2014, 2014, 2012]}
    files = []
    for name, of_file in years.items():
        rows = [{"meter": "ab"[n % 2], "at": f"{year}-03-0{n + 1}T00:00:00Z"} for n, year in enumerate(of_file)]
        files.append(tmp_path / f"{name}.{form}")
        if form == "csv":
            as_csv(files[-1], rows)
        elif form == "parquet":
            pq.write_table(pa.Table.from_pylist(rows), files[-1])
        else:
            files[-1].write_text("".join(json.dumps(row) + "\n" for row in rows))
    for ordered in (files, files[::-1]):
        guess = guess_source(ordered)
        assert guess.source.start_us == datetime(2011, 3, 8, tzinfo=UTC).timestamp() * 1_000_000
        assert (guess.rows, guess.rejected) == (15, {})


def test_the_command_writes_a_file_that_loads_and_overwrites_none(tmp_path: Path, capsys: Any) -> None:
    files = [str(as_csv(tmp_path / f"{name}.csv", rows)) for name, rows in (("meters", ROWS[:3]), ("more", ROWS[3:]))]
    folder = tmp_path / "sources"
    assert run(["init", files[0], "--from", *files]) == 2
    assert "which is a file" in capsys.readouterr().err
    assert run(["init", str(folder), "--from", *files, "--json"]) == 0, "the folder is made"
    document = json.loads(capsys.readouterr().out)
    assert (document["path"], document["rows"], document["columns"]) == (str(folder / "meters.yml"), 6, TYPES)
    text = (folder / "meters.yml").read_text()
    assert load_source(folder / "meters.yml").entity == "meter"
    assert run(["init", str(folder), "--from", *files]) == 2
    assert (folder / "meters.yml").read_text() == text
    assert run(["init", str(folder), "--from", *files, "--name", "others"]) == 0
    assert load_source(folder / "others.yml").name == "others"
    assert run(["init", str(folder), "--from", *files, "--name", "../up"]) == 2
    assert sorted(path.name for path in tmp_path.rglob("*.yml")) == ["meters.yml", "others.yml"]


def test_checks_are_guessed_marked_and_hold_of_the_sample(tmp_path: Path) -> None:
    rows = [
        {"meter": "ab"[n % 2], "at": f"2024-03-01T{n % 24:02}:00:00Z", "load": n, "note": "" if n % 3 else "x"}
        for n in range(40)
    ]
    guess = guess_source([as_csv(tmp_path / "meters.csv", rows)])
    checks = guess.source.checks
    assert {check.treatment for check in checks.values()} == {"warn"}
    assert set(checks) == {"meter_known", "load_in_range", "meter_given", "at_given", "load_given"}
    known, in_range = checks["meter_known"], checks["load_in_range"]
    assert isinstance(known, In)
    assert isinstance(in_range, Between)
    assert (known.values, in_range.min, in_range.max) == (
        ("a", "b"),
        0,
        78,
    )
    lines = [line for line in guess.text.splitlines() if "treatment:" in line and not line.startswith("#")]
    assert len(lines) == len(checks)
    assert all(line.endswith("# guess") for line in lines)
    # of six records nothing is guessed
    assert guess_source([as_csv(tmp_path / "few.csv", rows[:6])]).source.checks == {}


@pytest.mark.parametrize(
    ("least", "greatest", "low", "high"),
    [("1.07", "4.22", "0", "7.37"), ("-0.1", "0.2", "-0.4", "0.5"), ("0.000001", "0.000002", "0", "0.000003"),
     ("1.5", "3.0", "0", "4.5"), ("1.5", "2.5", "0", "3.5"), ("0.5", "1.25", "0", "2")],
)  # fmt: skip
def test_guessed_bounds_are_as_short_as_the_values(
    tmp_path: Path, least: str, greatest: str, low: str, high: str
) -> None:
    rows = [{"till": "ab"[n % 2], "at": "2024-03-01T10:00Z", "fare": least if n % 3 else greatest} for n in range(12)]
    guess = guess_source([as_csv(tmp_path / "s.csv", rows)])
    assert f"column: fare, min: {low}, max: {high}, treatment" in guess.text
    check = guess.source.checks["fare_in_range"]
    assert isinstance(check, Between)
    assert (check.min, check.max) == (float(low), float(high))


TRIPS = [
    {"Trip-Nr": 400 + n, "Start": "ab"[n % 2], "Begin": f"01.03.2024 1{n % 10}:00", "km": f"{n}.5"} for n in range(12)
]


@pytest.mark.parametrize("name", ["Trip-Nr", "Order No.", "num", "Auftragsnummer", "key", "Code", "Trip-ID", "guid"])
def test_a_number_or_key_that_a_doubled_line_alone_repeats_is_the_delta_id(tmp_path: Path, name: str) -> None:
    rows = [{name: row["Trip-Nr"], **{k: v for k, v in row.items() if k != "Trip-Nr"}} for row in [*TRIPS, TRIPS[3]]]
    guess = guess_source([as_csv(tmp_path / "trips.csv", rows)])
    assert [guess.source.header_name(column) for column in guess.source.delta_id or ()] == [name]


def test_two_rows_that_share_a_number_are_no_doubled_line(tmp_path: Path) -> None:
    other = TRIPS[4] | {"Trip-Nr": 403}
    guess = guess_source([as_csv(tmp_path / "trips.csv", [*TRIPS, TRIPS[3], other])])
    assert not guess.source.delta_id
    sentence = (
        "delta_id: none, so a line that comes twice counts twice; no column of numbers or texts has another value in"
        " each line (1 line comes twice)"
    )
    assert sentence in guess.evidence
    assert " ".join(sentence.split()[:9]) in guess.text


def test_a_source_without_a_delta_id_names_the_column_that_could_be_it(tmp_path: Path) -> None:
    rows = [{"fahrt": row["Trip-Nr"], "Start": row["Start"], "Begin": row["Begin"]} for row in TRIPS]
    said = [guess_source([as_csv(tmp_path / "t.csv", [*rows, *more])]).evidence[-1] for more in ([], rows[:1])]
    begin = "delta_id: none, so a line that comes twice counts twice; `fahrt` has"
    assert said == [
        f"{begin} another value in each line: `delta_id: fahrt`",
        f"{begin} the same value only in equal lines (1 line comes twice): `delta_id: fahrt`",
    ]


@pytest.mark.parametrize(
    ("form", "local"),
    [("2024-03-01T10:{:02}:00", True), ("2024-03-01 10:{:02}", True), ("01.03.2024 10:{:02}", True),
     ("2024-03-01T10:{:02}:00Z", False), ("2024-03-01 10:{:02}:00 +0100", False), ("2024-03-01T10:{:02}:00-08", False),
     ("2024-03-01 10:{:02}:00 UTC", False), ("17092512{:02}", False), ("2024-03-{:02}", False)],
)  # fmt: skip
def test_times_without_an_offset_are_said_to_be_utc(tmp_path: Path, form: str, local: bool) -> None:
    rows = [{"meter": "ab"[n % 2], "at": form.format(n + 10), "n": n} for n in range(12)]
    guess = guess_source([as_csv(tmp_path / "s.csv", rows)])
    said = "event time `at`: 12 of 12 times have no offset and are taken as UTC; `timezone:` of the column"
    assert any(sentence.startswith(said) for sentence in guess.evidence) == local
    assert ("times have no offset and are taken as UTC" in guess.text) == local


@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_times_of_parquet_are_counted_and_have_an_offset_if_their_type_has_a_zone(
    tmp_path: Path, unit: str, zone: str | None
) -> None:
    hours = pa.array(range(12), pa.int64())
    instants = pa.array([n * 3_600_000 for n in range(12)], pa.timestamp("ms")).cast(pa.timestamp(unit, zone))
    table = pa.table({"meter": ["a", "b"] * 6, "day": pa.array([None] * 12, pa.date32()), "at": instants, "n": hours})
    pq.write_table(table, tmp_path / "s.parquet")
    guess = guess_source([tmp_path / "s.parquet"])
    assert any(said.startswith("event time `at`: 12 of 12 rows of the sample have one") for said in guess.evidence)
    assert any("12 of 12 times have no offset" in said for said in guess.evidence) == (zone is None)


@pytest.mark.parametrize(
    ("path", "name"),
    [("rides/trips_20260608.csv", "trips"), ("rides/2026-06-08_trips.csv", "trips"), ("rides/20260608.csv", "rides"),
     ("rides/trips-2026-06-08-north.csv", "trips_north"), ("rides/2026-06-08/a.csv", "rides"),
     ("rides/order_12345678.csv", "order_12345678"), ("rides/trips_20260608/a.csv", "a")],
)  # fmt: skip
def test_the_name_is_that_of_the_file_without_its_date(tmp_path: Path, path: str, name: str) -> None:
    file = tmp_path / path
    file.parent.mkdir(parents=True)
    assert guess_source([as_csv(file, ROWS)]).source.name == name


@pytest.mark.parametrize("given", ["start_ort", "Start-Ort", "start-ort", "START ORT"])
def test_columns_are_named_as_in_the_files_or_as_guessed(tmp_path: Path, given: str) -> None:
    rows = [{"Rad": "xyz"[n % 3], "Start-Ort": "ab"[n % 2], "Beginn Am": f"2024-03-01T10:{n:02}Z"} for n in range(12)]
    guess = guess_source([as_csv(tmp_path / "s.csv", rows)], entity=given, time="Beginn Am")
    assert (guess.source.entity, guess.source.event_time) == ("start_ort", ("beginn_am",))


_THIRD = {3: "bad_timestamp"}
SAMPLES: dict[str, tuple[bytes, int, dict[int, str]]] = {
    # the file, the rows that read, and by their lines the rules of those that don't
    "a day that is none.csv": (b"k,at,v\na,2024-02-28,1\na,2024-02-30,2\nb,2024-03-01,3\nb,2024-03-02,3\n", 3,
                               {3: "bad_date"}),
    "24 o'clock.csv": (b"k,at\na,2024-01-01 23:00:00\na,2024-01-01 24:00:00\nb,2024-01-01 22:00:00\n", 2, _THIRD),
    "leap second.csv": (b"k,at\na,2016-12-31T23:59:59Z\na,2016-12-31T23:59:60Z\nb,2016-12-31T23:59:58Z\n", 2, _THIRD),
    "day zero.csv": (b"k,at\na,2016-12-31T23:59:59Z\na,0000-00-00 00:00:00\nb,2016-12-31T23:59:58Z\n", 2, _THIRD),
    "utc.csv": (b"k,at\na,2016-12-31 23:59:59 UTC\nb,2016-12-31 23:59:58.25 UTC\n", 2, {}),
    "offset.csv": (b"k,at\na,2016-12-31 23:59:59 -0800\nb,2016-12-31 23:59:58 -0800\n", 2, {}),
    "too great.ndjson": (b'{"k":"a","at":"2024-03-01","n":1}\n{"k":"a","at":"2024-03-01","n":18446744073709551615}\n'
                         b'{"k":"b","at":"2024-03-01","n":3}\n', 2, {2: "int_overflow"}),
    "mixed.ndjson": (b'{"k":"a","at":"2024-03-01","n":1}\n{"k":"a","at":"2024-03-01","n":"x"}\n'
                     b'{"k":"b","at":"2024-03-01","n":3}\n', 2, {2: "bad_int"}),
    "array.json": (b'[\n{"k":"a","at":"2024-03-01T10:00:00Z"},\n{"k":"b","at":"2024-03-01T10:00:00Z"}\n]\n', 2, {}),
    "slashes.csv": (b"k,at\na,2010/01/01 00:00:00\nb,2010/01/01 01:00:00\n", 2, {}),
    "words.csv": (b"k,at\na,Jan 1 2000\nb,Feb 3 2000\nc,Feb 30 2000\n", 2, {4: "bad_date"}),
    "day first.csv": (b"k,at\na,01/03/2024 10:00\nb,31/03/2024 10:05\n", 2, {}),
    "comma of seconds.csv": (b'k,at\na,"2024-03-01 10:00:00,123"\nb,"2024-03-01 10:05:00,456"\n', 2, {}),
    "fractions of epochs.csv": (b"k,ts\na,1709251200.123\nb,1709251260.5\na,1709254800\n", 3, {}),
    "sep line.csv": (b"sep=;\r\nk;at;v\r\na;2024-03-01 10:00:00;1\r\nb;2024-03-01 10:05:00;7\r\n", 2, {}),
    "no names.csv": (b"k,at,v,,\na,2024-03-01 10:00:00,1,,\nb,2024-03-01 10:05:00,7,,\n", 2, {}),
    "commas.csv": (b"k;at;v\na;2024-03-01 10:00:00;1.234,56\nb;2024-03-01 10:05:00;7,5\n", 2, {}),
    "cp1252.csv": ("k,at\nü,2024-03-01 10:00:00\né,2024-03-01 10:05:00\n".encode("cp1252"), 2, {}),
    "utf16.csv": ("k,at\nü,2024-03-01 10:00:00\né,2024-03-01 10:05:00\n".encode("utf-16"), 2, {}),
    "escapes.csv": (b'k,at\n"a \\"b\\", c",2024-03-01\nb,2024-03-02\n', 2, {}),
    "debezium.ndjson": (b'{"before":null,"after":{"k":"a","at":"2024-03-01"},"op":"c"}\n'
                        b'{"before":null,"after":{"k":"b","at":"2024-03-01"},"op":"c"}\n'
                        b'{"before":null,"after":null,"op":"t"}\n', 2, {3: "truncate"}),
}  # fmt: skip


@pytest.mark.parametrize("name", SAMPLES)
def test_the_guessed_file_reads_the_sample_and_names_what_does_not_read(tmp_path: Path, name: str) -> None:
    data, rows, rejects = SAMPLES[name]
    (tmp_path / name).write_bytes(data)
    guess = guess_source([tmp_path / name], name="x")
    assert (guess.rows, {reject["line"]: reject["rule"] for reject in guess.rejects}) == (rows, rejects)
    assert sum(guess.rejected.values()) == len(rejects)


BAD = st.sampled_from(["", "2024-02-30", "24:00", "x", "NaN", "1e999", "0000-00-00 00:00:00"])
STAMPS = ["2024-03-0{}T10:00:00Z", "0{}/03/2024 10:00", "2024/03/0{}", "17092512{}0.5"]


@settings(max_examples=tries(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(STAMPS), st.sampled_from([",", ";"]), st.sampled_from(["utf-8", "utf-16", "cp1252"]),
    st.lists(st.tuples(st.integers(1, 9), st.one_of(st.integers(-9, 9).map(str), BAD)), min_size=4, max_size=12),
    st.lists(st.tuples(st.integers(0, 3), BAD), max_size=1),
)  # fmt: skip
def test_rows_read_and_rows_rejected_are_all_rows(
    tmp_path: Path,
    stamp: str,
    delimiter: str,
    encoding: str,
    cells: list[tuple[int, str]],
    broken: list[tuple[int, str]],
) -> None:
    rows = [["xé"[n % 2], stamp.format(n), value] for n, value in cells]
    for place, value in broken:
        rows[place][1] = value
    path = tmp_path / "s.csv"
    path.write_bytes("".join(delimiter.join(row) + "\n" for row in [["k", "at", "v"], *rows]).encode(encoding))
    guess = guess_source([path])
    assert guess.rows + sum(guess.rejected.values()) == len(rows)
    assert len(guess.rejects) == sum(guess.rejected.values())
    assert all(2 <= reject["line"] <= len(rows) + 1 and reject["reason"] for reject in guess.rejects)
    assert guess.rows >= len(rows) / 2 - 1
