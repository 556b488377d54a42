"""Sample files as people have them: odd dialects and bad lines are read or named, each guess says how sure it is."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from spark_jobs.cli.app import run
from spark_jobs.errors import ParameterError
from spark_jobs.landing.guess import Guess, guess_source
from spark_jobs.sources import LandingOptions
from spark_jobs.trials.trial import try_files

N = 60
METERS = "id,meter,at,v\n" + "".join(f"{n},m{n % 3},2024-03-01T{n % 24:02}:00:00Z,{n}\n" for n in range(N))


def guess(tmp_path: Path, content: str | bytes, name: str = "s.csv") -> Guess:
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return guess_source([path])


def types(guessed: Guess) -> dict[str, str]:
    return {name: column.type for name, column in guessed.source.columns.items()}


def files_of(guessed: Guess) -> LandingOptions:
    """The guessed options of the files."""
    assert isinstance(guessed.source.landing, LandingOptions)
    return guessed.source.landing


def says(guessed: Guess, *parts: str) -> bool:
    """True if one sentence of the evidence has all parts."""
    return any(all(part in sentence for part in parts) for sentence in guessed.evidence)


def column_of(values: list[str], name: str = "v", delimiter: str = ",") -> str:
    """A CSV file with a meter, a time and one more column."""
    rows = [f"m{n % 3}{delimiter}2024-03-01T{n % 24:02}:00:00Z{delimiter}{value}" for n, value in enumerate(values)]
    return "\n".join([delimiter.join(("meter", "at", name)), *rows, ""])


def test_bad_lines_are_counted_with_their_lines_and_spoil_nothing(tmp_path: Path) -> None:
    lines = METERS.splitlines()
    lines[5], lines[9], lines[20], lines[30] = "a,b", '7,"m1,2024-03-01T01:00:00Z,4', ",,,,,", "total: 5"
    guessed = guess(tmp_path, "\n".join(lines) + "\n")
    assert guessed.rows == N - 4
    assert guessed.rules == {"wrong_column_count": 3, "unclosed_quote": 1}
    assert [reject["line"] for reject in guessed.rejects] == [6, 10, 21, 31]
    # the open quote on line 10 hides no line behind it
    assert guessed.source.delta_id == ("id",)
    assert says(guessed, "entity `meter`", f"3 different values in {N - 4} rows")


@pytest.mark.parametrize(
    ("delimiter", "evidence"), [(";", "`;`"), ("\t", "a tab"), ("|", "`|`"), (" ", "a blank"), ("~", "`~`")]
)
def test_the_delimiter_is_the_one_that_parts_the_lines_alike(tmp_path: Path, delimiter: str, evidence: str) -> None:
    # the header alone has more commas
    text = column_of([f"{n},5" for n in range(N)], "v,(kW,mean)", delimiter)
    guessed = guess(tmp_path, text)
    assert files_of(guessed).delimiter == delimiter
    assert (files_of(guessed).decimal, types(guessed)["v_kw_mean"], guessed.rows) == (",", "float", N)
    assert says(guessed, f"{evidence} parts {N + 1} of {N + 1} lines into 3 values")
    assert says(guessed, "decimal comma", "such as 0,5")


@pytest.mark.parametrize(
    ("value", "decimal", "thousands"),
    [
        ('"1,2{:02}.50"', ".", ","), ('"1.2{:02},50"', ",", "."), ("1'2{:02}.50", ".", "'"), ("1 2{:02}.50", ".", " "),
        ("1_2{:02}.50", ".", "_"), ('"1 2{:02},50"', ",", " "), ('"12{:02},5"', ",", ""),
    ],
)  # fmt: skip
def test_marks_in_numbers_are_declared_and_read(tmp_path: Path, value: str, decimal: str, thousands: str) -> None:
    guessed = guess(tmp_path, column_of([value.format(n) for n in range(N)]))
    landing = files_of(guessed)
    assert (landing.decimal, landing.thousands, types(guessed)["v"]) == (decimal, thousands, "float")
    assert (guessed.rows, guessed.rejected) == (N, {})
    assert says(guessed, "such as 1")


def test_a_few_other_texts_hide_no_decimal_comma(tmp_path: Path) -> None:
    # one of sixty, though there are few different numbers
    guessed = guess(tmp_path, column_of([*(f"{n % 5},5" for n in range(N - 1)), "k.A."], delimiter=";"))
    assert (files_of(guessed).decimal, types(guessed)["v"]) == (",", "float")
    assert [(reject["line"], reject["rule"]) for reject in guessed.rejects] == [(N + 1, "bad_float")]


def test_a_mark_that_may_be_either_is_said(tmp_path: Path) -> None:
    assert says(guess(tmp_path, column_of([f"1,{n:03}" for n in range(N)], delimiter=";")), "may also be the other one")


@pytest.mark.parametrize(
    ("values", "evidence"),
    [
        ([f"${n}.50" for n in range(N)], f"{N} of {N} values are numbers with a sign or unit, such as $0.50"),
        ([f"{n} EUR" for n in range(N)], "numbers with a sign or unit"),
        ([f"({n}.50)" for n in range(N)], "numbers with a sign or unit"),
        ([f"{n % 24:02}:30" for n in range(N)], "times of day, such as 00:30"),
    ],
)
def test_values_that_no_type_reads_stay_text_and_are_named(tmp_path: Path, values: list[str], evidence: str) -> None:
    guessed = guess(tmp_path, column_of(values))
    assert types(guessed)["v"] == "string"
    assert says(guessed, "`v`", evidence)


def dates(pattern: str, days: list[tuple[int, int]]) -> str:
    rows = [f"m{n % 3},{pattern.format(d=day, m=month)},{n}" for n, (day, month) in enumerate(days)]
    return "\n".join(["meter,seen,v", *rows, ""])


@pytest.mark.parametrize(
    ("text", "form", "order"),
    [("{d:02}/{m:02}/2024", "%d/%m/%Y", "day before month"), ("{m:02}/{d:02}/2024", "%m/%d/%Y", "month before day"),
     ("{d}.{m}.24", "%d.%m.%y", ""), ("{m}/{d}/24", "%m/%d/%y", "month before day"),
     ("{d}-{m}-2024", "%d-%m-%Y", "day before month")],
)  # fmt: skip
def test_few_dates_decide_the_order_of_day_and_month(tmp_path: Path, text: str, form: str, order: str) -> None:
    # with more different dates than patterns are tried with, of which three are unambiguous
    days = [(1 + n % 12, 1 + n // 12 % 12) for n in range(3000)]
    days[1000], days[2000], days[2500] = (13, 4), (31, 1), (28, 2)
    guessed = guess(tmp_path, dates(text, days))
    assert guessed.source.columns["seen"].format == form
    assert guessed.rows == 3000
    assert not order or says(guessed, f"{order}: 3 of 3,000 dates have a")


def test_dates_that_read_both_ways_are_a_guess_that_says_so(tmp_path: Path) -> None:
    guessed = guess(tmp_path, dates("{d:02}/{m:02}/2024", [(1 + n % 12, 5) for n in range(N)]))
    assert "%m/%d/%Y fits as well" in guessed.text
    assert says(guessed, "`seen`", "is a guess: none of 60 dates has a first or second number above 12")


def test_a_date_that_no_order_reads_is_no_evidence(tmp_path: Path) -> None:
    days = [(1 + n % 12, 5) for n in range(N)]
    guessed = guess(tmp_path, dates("{d:02}/{m:02}/2024", [*days, (31, 6)]))
    assert says(guessed, "`seen`", f"is a guess: none of {N} dates has a first or second number above 12")
    assert (guessed.rows, guessed.rules) == (N, {"bad_date": 1})


@pytest.mark.parametrize(("text", "order"), [("{d:02}/{m:02}/2024", "day"), ("{m:02}/{d:02}/2024", "month")])
def test_another_column_settles_the_order_of_day_and_month(tmp_path: Path, text: str, order: str) -> None:
    rows = [f"m{n % 3},{text.format(d=1 + n % 12, m=5)},{text.format(d=13 + n % 12, m=5)}" for n in range(N)]
    guessed = guess(tmp_path, "\n".join(["meter,begun,ended", *rows, ""]))
    first = {"day": "%d/%m/%Y", "month": "%m/%d/%Y"}[order]
    assert {guessed.source.columns[name].format for name in ("begun", "ended")} == {first}
    assert says(guessed, f"`begun`: {order} before", "as in `ended`: its own dates read both ways")
    assert not says(guessed, "fits as well")


@pytest.mark.parametrize(("text", "order"), [("{d:02}/{m:02}/2024", "day"), ("{m:02}/{d:02}/2024", "month")])
def test_the_date_in_the_name_of_the_file_settles_the_order_of_day_and_month(
    tmp_path: Path, text: str, order: str
) -> None:
    days = [(1 + n % 2, 5) for n in range(N)]
    guessed = guess(tmp_path, dates(text, days), "trips_20240503.csv")
    assert guessed.source.columns["seen"].format == {"day": "%d/%m/%Y", "month": "%m/%d/%Y"}[order]
    assert says(guessed, f"{order} before", f"{N} of {N} dates are near the date in their file's name")
    # of a day whose number is that of the month, both orders are as near
    assert "fits as well" in guess(tmp_path, dates(text, [(5, 5)] * N), "trips_20240505.csv").text


def test_dates_in_both_orders_are_refused_with_their_counts(tmp_path: Path) -> None:
    days = [(13 + n % 10, 5) if n % 2 else (5, 13 + n % 10) for n in range(N)]
    with pytest.raises(ParameterError, match="30 of 60 values read as %d/%m/%Y and 30 as %m/%d/%Y"):
        guess(tmp_path, dates("{d:02}/{m:02}/2024", days))


@pytest.mark.parametrize("column", ["sent_at", "datum"])
@pytest.mark.parametrize(
    ("unit", "times"), [("epoch_s", 1), ("epoch_ms", 10**3), ("epoch_us", 10**6), ("epoch_ns", 10**9)]
)
def test_units_since_1970_are_told_by_the_years(tmp_path: Path, column: str, unit: str, times: int) -> None:
    numbers = [0, *((1_700_000_000 + 60 * n) * times for n in range(1, N))]
    guessed = guess(
        tmp_path, "\n".join([f"meter,{column}", *(f"m{n % 3},{each}" for n, each in enumerate(numbers)), ""])
    )
    assert guessed.source.columns[column].format == unit
    assert says(guessed, f"{N - 1} of {N} numbers are", "since 1970")


@pytest.mark.parametrize(
    ("text", "kind", "form"),
    [("202403{:02}", "date", "%Y%m%d"), ("202403{:02}1015", "timestamp", "%Y%m%d%H%M"),
     ("202403{:02}101500", "timestamp", "%Y%m%d%H%M%S")],
)  # fmt: skip
@pytest.mark.parametrize("quote", ["", '"'])
def test_times_in_digits_alone_are_times(tmp_path: Path, text: str, kind: str, form: str, quote: str) -> None:
    values = [text.format(1 + n % 28) for n in range(N)]
    rows = [f'{{"meter": "m{n % 3}", "seen": {quote}{value}{quote}}}' for n, value in enumerate(values)]
    for guessed in (
        guess(tmp_path, "\n".join(["meter,seen", *(f"m{n % 3},{value}" for n, value in enumerate(values)), ""])),
        guess(tmp_path, "\n".join([*rows, ""]), "s.ndjson"),
    ):
        assert (types(guessed)["seen"], guessed.source.columns["seen"].format, guessed.rows) == (kind, form, N)
        assert says(guessed, "`seen`", f"{N} of {N} values read as {form}")


def test_numbers_of_two_units_are_refused_with_their_counts(tmp_path: Path) -> None:
    rows = [f"m{n % 3},{1_700_000_000 * (1000 if n % 2 else 1)}" for n in range(N)]
    with pytest.raises(ParameterError, match=r"30 of 60 numbers fit epoch_s and 30 .*epoch_ms.*\[epoch_s, epoch_ms\]"):
        guess(tmp_path, "\n".join(["meter,ts", *rows, ""]))


def test_texts_of_json_with_as_many_digits_are_decimals_and_their_sums_exact(tmp_path: Path) -> None:
    rows = [
        {"id": n, "account": f"a{n % 2}", "at": "2024-03-01T10:00:00Z", "amount": "0.10", "rate": "0.5" + "5" * (n % 2)}
        for n in range(N)
    ]
    rows[3]["amount"] = "NA"
    path = tmp_path / "pay.ndjson"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    trial = try_files([path], tmp_path / "scratch")
    assert trial.guess is not None
    assert types(trial.guess) | {"id": "", "account": "", "at": ""} == {
        "id": "", "account": "", "at": "", "amount": "decimal(18, 2)", "rate": "float",
    }  # fmt: skip
    assert says(trial.guess, "`amount`", "59 of 59 values are texts with 2 digits after the point")
    [windows] = trial.windows.values()
    assert sorted(map(str, windows["sum_amount"].to_pylist())) == ["2.90", "3.00"]


def test_headers_without_letters_of_english_are_numbered(tmp_path: Path) -> None:
    guessed = guess(tmp_path, METERS.replace("id,meter,at,v", "ключ,meter,at,значение"))
    assert [*guessed.source.columns] == ["column_1", "meter", "at", "column_4"]
    assert says(guessed, "`ключ` is `column_1`, `значение` is `column_4`", "letters a to z")


@pytest.mark.parametrize("share", [2, 5])
def test_lines_that_are_no_records_may_be_most(tmp_path: Path, share: int) -> None:
    header, *lines = METERS.splitlines()
    mixed = [line if n % share == 0 else "garbage" for n, line in enumerate(lines)]
    guessed = guess(tmp_path, "\n".join([header, *mixed, ""]))
    assert (guessed.rows, guessed.rules) == (N // share, {"wrong_column_count": N - N // share})


def test_a_byte_of_zero_costs_one_line(tmp_path: Path) -> None:
    guessed = guess(tmp_path, METERS + "60,m\0,2024-03-01T10:00:00Z,1\n")
    assert guessed.rows + sum(guessed.rules.values()) == N + 1


def test_words_of_sql_and_other_names_are_explained(tmp_path: Path) -> None:
    text = METERS.replace("id,meter,at,v", "Order,User,at,größe")
    guessed = guess(tmp_path, text)
    assert [*guessed.source.columns] == ["order_", "user_", "at", "grosse"]
    assert says(guessed, "`Order` is `order_`", "`User` is `user_`", "SQL reserves the word")
    assert says(guessed, "`größe` is `grosse`", "letters a to z")
    assert "SQL reserves" in guessed.text


def test_a_key_has_another_name_than_columns_of_published_tables(tmp_path: Path) -> None:
    guessed = guess(tmp_path, METERS.replace("id,meter", "id,source"))
    assert (guessed.source.entity, guessed.source.header_name("source_")) == ("source_", "source")
    assert says(guessed, "`source` is `source_`", "published tables")


def test_an_id_that_repeats_behind_the_sample_is_no_delta_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_jobs.landing.sampling.SAMPLE_ROWS", 10)
    # a row that came again is equal, and its id may be
    assert guess(tmp_path, METERS + METERS.splitlines()[3] + "\n").source.delta_id == ("id",)
    guessed = guess(tmp_path, METERS + "3,m1,2024-03-01T09:00:00Z,7\n")
    assert guessed.source.delta_id is None
    assert says(guessed, "no delta_id `id`", f"1 of {N + 1} rows have a value that another row has")


def test_a_column_that_is_another_behind_the_sample_stays_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_jobs.landing.sampling.SAMPLE_ROWS", 10)
    guessed = guess(tmp_path, column_of([*map(str, range(10)), *(f"A-{n}" for n in range(N - 10))]))
    assert types(guessed)["v"] == "string"
    assert (guessed.rows, guessed.rejected) == (N, {})
    assert says(guessed, "`v`", "50 records do not read as int, so it stays text")


def packed(text: str) -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        archive.writestr("a.csv", text)
    return sink.getvalue()


def taped(text: str) -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w:gz") as archive:
        member = tarfile.TarInfo("a.csv")
        member.size = len(text)
        archive.addfile(member, io.BytesIO(text.encode()))
    return sink.getvalue()


@pytest.mark.parametrize(
    "packing", [gzip.compress, lambda data: pa.compress(data, "zstd", asbytes=True)], ids=["gzip", "zstd"]
)
def test_compressed_files_are_read_as_they_are(tmp_path: Path, packing: Callable[[bytes], bytes]) -> None:
    assert guess(tmp_path, packing(METERS.encode())).rows == N


HEADLESS = METERS.partition("\n")[2]
QUOTED = "meter,at,note\n" + "".join(f"'m{n % 3}',2024-03-01T10:00:00Z,'a, b'\n" for n in range(N))
ALIGNED = "meter     at                    v\n" + "".join(f"m{n}        2024-03-01T10:00:00Z  {n}\n" for n in range(9))
REFUSED: dict[str, tuple[str | bytes, str, str]] = {
    # the file, what is found in it, and the way on
    "bzip2": (bz2.compress(METERS.encode()), "compressed with bzip2", "bunzip2"),
    "xz": (lzma.compress(METERS.encode()), "compressed with xz", "unxz"),
    "zip": (packed(METERS), "a ZIP archive", "unzip"),
    "excel": (packed(METERS).replace(b"a.csv", b"xl/st"), "a spreadsheet of Excel", "save the sheet as CSV"),
    "tar": (taped(METERS), "a tar archive", "tar -xf"),
    "html": ("<!DOCTYPE html><html><body>Please log in</body></html>", "a page of HTML", "download the file again"),
    "bytes": (bytes(range(256)) * 9, "bytes of zero", "export the data"),
    "carriage returns": (METERS.replace("\n", "\r"), "carriage returns alone", "tr "),
    "names twice": (METERS.replace("id,meter,at,v", "v,meter,at,v"), "'v' again", "mend the files"),
    "names alone": ("id,meter,at\n", "names of columns alone", "name another"),
    "a title": (f"Report of meters\nMarch, 2024\n\n{METERS}", "whose line 4 has the first 4 values", "tail -n +4"),
    "a comment": (f"# in kW\n{METERS}", "whose line 1 is '# in kW'", "tail -n +2"),
    "no names": (HEADLESS, "one with values: 0, m0, 2024-03-01T00:00:00Z", "a line of names in front"),
    "single quotes": (QUOTED, "single quotes are around values such as 'm0'", "double quotes"),
    "aligned": (ALIGNED, "blanks align the columns", "put commas between them"),
    "pretty JSON": (
        json.dumps({"data": [{"k": "a"}]}, indent=1),
        "the records in its member `data`",
        "jq -c '.data[]'",
    ),
    "wrapped JSON": (json.dumps({"rows": [{"k": "a"}]}), "the records in its member `rows`", "jq -c '.rows[]'"),
    "a short header": (METERS.replace("id,meter,at,v", "id;meter"), "whose line 1 is 'id;meter'", "with as many names"),
    "no entity": ('{"at": "2024-03-01T10:00:00Z", "meta": {"device": "a"}}\n', "none among at", "from: meta."),
    "a zone's name": (
        "meter,seen\nm1,2024-03-01 10:00:00 CET\nm1,2024-03-01 11:00:00 CET\n",
        "`seen` with texts such as '2024-03-01 10:00:00 CET'",
        "write the source file by hand",
    ),
    "no time": ("meter,v\nm1,a\nm2,b\n", "none among meter, v", "write the source file by hand"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_layouts_that_no_reader_reads_are_named_with_a_way_on(tmp_path: Path, case: str) -> None:
    content, found, next_step = REFUSED[case]
    with pytest.raises(ParameterError) as refused:
        guess(tmp_path, content)
    assert found in refused.value.found
    assert next_step in refused.value.next_step


def test_the_way_on_from_lines_in_front_leads_to_a_file_that_reads(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=r"tail -n \+4"):
        guess(tmp_path, f"Report\nMarch\n\n{METERS}")
    assert guess(tmp_path, "".join(f"Report\nMarch\n\n{METERS}".splitlines(keepends=True)[3:])).rows == N


def test_files_written_in_several_ways_are_named_with_the_difference(tmp_path: Path) -> None:
    paths = [tmp_path / "a.csv", tmp_path / "b.csv"]
    for path, text in zip(paths, (METERS, METERS.replace(",", ";")), strict=True):
        path.write_text(text)
    with pytest.raises(ParameterError, match=r"csv in a.csv and csv \(delimiter ';'\) in b.csv"):
        guess_source(paths)


def test_rejects_of_files_with_one_name_have_their_folder(tmp_path: Path) -> None:
    paths = []
    for day in ("2024-03-01", "2024-03-02"):
        (tmp_path / day).mkdir()
        paths.append(tmp_path / day / "a.csv")
        paths[-1].write_text(f"{METERS}x\n")
    assert [reject["file"] for reject in guess_source(paths).rejects] == ["2024-03-01/a.csv", "2024-03-02/a.csv"]


@pytest.mark.parametrize("command", ["init", "try"])
def test_both_commands_say_how_sure_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
    path = tmp_path / "meters.csv"
    path.write_text(METERS + "total: 5\n" * 30)
    arguments = [str(path)] if command == "try" else [str(tmp_path), "--from", str(path)]
    assert run([command, *arguments]) == 0
    out = capsys.readouterr().out
    for part in (
        "60 rows read, 30 rejected (30 wrong_column_count)", "meters.csv, line 62: expected 4 values", "more",
        "how sure it is:", "delta_id `id`: rows with the same value are equal, in all 60 rows",
    ):  # fmt: skip
        assert part in out
    arguments += ["--name", "again", "--json"]
    assert run([command, *arguments]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["rejected_by_rule"] == {"wrong_column_count": 30}
    assert any("parts 61 of 91 lines" in sentence for sentence in document["evidence"])
