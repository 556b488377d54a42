"""Each kind of check is caught by the check that names it, and by no other, where one row is changed in the one way
that it guards against; Great Expectations is the judge."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

from spark_jobs.config import Settings
from spark_jobs.engine.records import read_csv
from spark_jobs.gates.checks import Assertion, assertions_about, verify
from spark_jobs.gates.judging import Checked, judge
from spark_jobs.gates.project import build_data_docs
from spark_jobs.gates.verdicts import GateFailed, Verdict, verdict_lines
from spark_jobs.landing.record_spec import record_spec
from spark_jobs.sources import Source, SourceFileError, parse_source, sql_column
from spark_jobs.sources.columns import COLUMN_TYPES

pytestmark = pytest.mark.slow

DAY = dt.timedelta(days=1)
START = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
CHECKS: dict[str, dict[str, Any]] = {
    "given": {"kind": "not_null", "column": "till"},
    "ranged": {"kind": "between", "column": "amount", "min": 0, "max": 100},
    "weighed": {"kind": "between", "column": "weight", "max": 2.5},
    "recent": {"kind": "between", "column": "at", "min": "2023-12-01"},
    "known": {"kind": "in", "column": "kind", "values": ["sale", "return"]},
    "priced": {"kind": "in", "column": "price", "values": ["1.50", "2.00"]},
    "formed": {"kind": "matches", "column": "code", "pattern": "[A-Z]{2}[0-9]+"},
    "alone": {"kind": "unique", "columns": "code"},
    "pair": {"kind": "unique", "columns": ["till", "at"]},
    "whole": {"kind": "type", "column": "amount", "type": "int"},
    "counted": {"kind": "row_count", "min": 4, "max": 5},
    "fresh": {"kind": "freshness", "column": "seen", "within": "6 hours"},
    "sparse": {"kind": "null_share", "column": "note", "max": 0.5},
    "on_time": {"kind": "lateness", "max": "1 day"},
    "sums": {"kind": "sql", "sql": "amount < 50 OR weight > 0"},
    "mean": {
        "kind": "expectation",
        "type": "ExpectColumnMeanToBeBetween",
        "arguments": {"column": "n", "max_value": 9},
    },
    "mostly": {"kind": "between", "column": "n", "max": 5, "mostly": 0.5},
}
COLUMNS = {
    "till": "string",
    "at": "timestamp",
    "seen": "timestamp",
    "amount": "int",
    "weight": "float",
    "kind": "string",
}
COLUMNS |= {"price": "decimal(6, 2)", "code": "string", "note": "string", "n": "int"}


def source(checks: dict[str, Any], *, windows: dict[str, Any] | None = None, **columns: str) -> Source:
    document = {
        "source": "shop",
        "start": "2024-01-01",
        "landing": {"path": "shop/{date}/*", "format": "csv"},
        "columns": {**COLUMNS, **columns},
        "windows": windows or {},
        "timelines": ["at", "seen"],
        "event_time": "at",
        "entity": "till",
        "checks": checks,
    }
    return parse_source(yaml.safe_dump(document, sort_keys=False), file="shop.yml")


DAILY = {
    "daily": {
        "kind": "sliding",
        "size": "1 day",
        "key": "till",
        "time": "at",
        "aggregates": {"total": "sum(price)"},
        "late": "reemit",
    }
}
ABOUT = Checked("bronze", "bronze.shop_chunks", ("row_id",), "shop", "r", "the owner")


def rows() -> list[dict[str, Any]]:
    """A sound drop."""
    return [
        {
            "till": f"t{i}",
            "at": START + i * dt.timedelta(hours=1),
            "seen": START + DAY - dt.timedelta(hours=5 - i),
            "amount": 10 * i,
            "weight": 0.5,
            "kind": "sale",
            "price": "1.50",
            "code": f"AB{i}",
            "n": i,
            "note": "x" if i % 2 else None,
        }
        for i in range(4)
    ]


FAULTS: dict[str, dict[str, Any]] = {
    "given": {"till": None},
    "ranged": {"amount": 101, "weight": 0.5},
    "weighed": {"weight": 2.50001},
    "known": {"kind": "gift"},
    "priced": {"price": "1.51"},
    "formed": {"code": "ab1"},
    "alone": {"code": "AB0"},
    "pair": {"till": "t0", "at": START},
    "sparse": {"note": None, "more": 1},
    "recent": {"at": START - dt.timedelta(days=31, microseconds=1)},
    "on_time": {"at": START - DAY - dt.timedelta(microseconds=1)},
    "mean": {"n": 41},
    "sums": {"amount": 60, "weight": -1.0},
}
ALSO = {"recent": {"on_time"}}
"""What else a fault breaks: a row of the year before is late, too."""


def table(rows: list[dict[str, Any]]) -> pa.Table:
    """Rows as landing would give them."""
    at = pa.timestamp("us", tz="UTC")
    kinds = {"string": pa.string(), "timestamp": at, "int": pa.int64(), "float": pa.float64()}
    types = {name: kinds.get(kind, pa.decimal128(6, 2)) for name, kind in COLUMNS.items()}
    held = {name: pa.array([row[name] for row in rows], types[name]) for name in COLUMNS if name != "price"}
    late = [(START - row["at"]) // dt.timedelta(microseconds=1) for row in rows]
    answers = [row["amount"] < 50 or row["weight"] > 0 for row in rows]
    return pa.table(
        {
            "row_id": pa.array([2**60 + 2 * i + 1 for i in range(len(rows))], pa.int64()),
            **held,
            "price": pa.array([Decimal(row["price"]) for row in rows], types["price"]),
            "late_by": pa.array(late, pa.int64()),
            sql_column("sums"): pa.array(answers, pa.bool_()),
        }
    )


@pytest.fixture(scope="module")
def quality(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    yield Settings(home=tmp_path_factory.mktemp("home"), expectations=tmp_path_factory.mktemp("own"))


def verdicts(quality: Settings, given: pa.Table, checks: dict[str, Any] = CHECKS, **reasons: str) -> list[Verdict]:
    hi_us = int((START + DAY).timestamp() * 1e6)
    held = assertions_about(quality, source(checks), "rows", hi_us)
    return judge(quality, ABOUT, given, held, reasons, suite="rows checks")


def broken(quality: Settings, given: pa.Table, checks: dict[str, Any] = CHECKS) -> set[str]:
    return {verdict.name for verdict in verdicts(quality, given, checks) if verdict.verdict != "passed"}


def test_a_sound_drop_keeps_all(quality: Settings) -> None:
    told = verdicts(quality, table(rows()))
    assert [verdict.name for verdict in told] == list(CHECKS)
    assert {verdict.verdict for verdict in told} == {"passed"}
    assert {verdict.expected for verdict in told} != {""}


@pytest.mark.turns
@pytest.mark.parametrize("name", FAULTS)
def test_a_row_changed_in_one_way_is_caught_by_the_check_against_it_alone(quality: Settings, name: str) -> None:
    drop = rows()
    drop[3] |= FAULTS[name]
    if FAULTS[name].get("more"):
        drop[1]["note"] = None
    assert broken(quality, table(drop)) == {name} | ALSO.get(name, set())


def test_what_is_about_all_rows_is_caught_by_the_check_against_it_alone(quality: Settings) -> None:
    stale = [{**row, "seen": row["seen"] - DAY} for row in rows()]
    assert broken(quality, table(stale)) == {"fresh"}
    assert broken(quality, table([*rows(), *rows()[:2]])) == {"counted", "alone", "pair"}
    as_text = table(rows())
    place = as_text.column_names.index("amount")
    texts = as_text.set_column(place, "amount", as_text["amount"].cast(pa.string()))
    assert "whole" in broken(quality, texts)
    high = [{**row, "n": 6} for row in rows()]
    assert broken(quality, table(high)) == {"mostly"}
    assert broken(quality, table([*high[:2], *rows()[2:]])) == set()


def test_a_verdict_shows_the_rows_that_break_it_and_who_acts(quality: Settings) -> None:
    drop = rows()
    drop[2]["amount"], drop[3]["amount"] = 101, -1
    (verdict,) = [each for each in verdicts(quality, table(drop)) if each.verdict != "passed"]
    assert (verdict.verdict, verdict.failing, verdict.severity) == ("failed", 2, "critical")
    assert verdict.observed == "2 of 4 rows that break it"
    assert list(verdict.sample) == [{"row_id": 2**60 + 5, "amount": 101}, {"row_id": 2**60 + 7, "amount": -1}]
    assert "the owner acts" in str(verdict.on_failure)
    refusal = str(
        GateFailed(gate="bronze", source="shop", run_id="r", failed=[verdict], page="runs/shop/r", report="index.html")
    )
    assert "ranged: `amount`: a value from 0 to 100" in refusal
    assert "expected a value from 0 to 100, found 2 of 4 rows that break it" in refusal
    assert f"e.g. row_id={2**60 + 5}, amount=101\n" in refusal


def test_a_verdict_has_units_and_no_python_of_its_values(quality: Settings) -> None:
    drop = rows()
    drop[2]["at"] -= 3 * DAY
    kind = {"kind": "expectation", "type": "expect_table_columns_to_match_set"}
    checks = {
        "on_time": CHECKS["on_time"],
        "known": {**kind, "arguments": {"column_set": ["amount"], "exact_match": True}},
    }
    late, known = verdicts(quality, table(drop), checks)
    assert late.sample[0]["late_by (µs)"] == (START - drop[2]["at"]) // dt.timedelta(microseconds=1)
    assert "amount" in json.loads(known.observed)
    assert known.expectation.endswith('with column_set ["amount"], exact_match true')
    nested = replace(late, sample=({"row_id": 1, "extra": {"a": None, "at": START}},))
    assert f'e.g. row_id=1, extra={{"a": null, "at": "{START.isoformat()}"}}' in verdict_lines(nested)


def test_treatment_severity_and_a_reason_decide_what_becomes_of_a_failure(quality: Settings) -> None:
    drop = rows()
    drop[0]["amount"] = -1
    warns = {"low": {"kind": "between", "column": "amount", "min": 0, "treatment": "warn"}}
    (warned,) = verdicts(quality, table(drop), warns)
    assert (warned.verdict, warned.severity, warned.stops) == ("warned", "warning", False)
    fails = {"low": {"kind": "between", "column": "amount", "min": 0, "severity": "info"}}
    (failed,) = verdicts(quality, table(drop), fails)
    assert (failed.verdict, failed.severity, failed.stops) == ("failed", "info", True)
    (passed,) = verdicts(quality, table(drop), fails, low="a refund, booked by hand")
    assert (passed.verdict, passed.because, passed.stops) == ("overridden", "a refund, booked by hand", False)


def test_a_check_that_cannot_be_made_out_stops(quality: Settings) -> None:
    absent = table(rows()).drop_columns(["amount"])
    (told,) = verdicts(quality, absent, {"ranged": CHECKS["ranged"]})
    assert (told.verdict, told.stops) == ("error", True)
    assert "could not be checked" in told.observed


def rules_of(checks: dict[str, Any], drop: list[dict[str, Any]]) -> list[str | None]:
    """The rule by which each row of a drop is rejected where the checks quarantine."""
    quarantining = {name: {**check, "treatment": "quarantine"} for name, check in checks.items()}
    spec = record_spec(source(quarantining)).of_drop(0)
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([COLUMNS, *([row[c] for c in COLUMNS] for row in drop)])
    rejected: list[str | None] = pa.Table.from_batches(read_csv([text.getvalue().encode()], spec))["rule"].to_pylist()
    return rejected


def test_the_kernel_that_quarantines_and_great_expectations_agree(quality: Settings) -> None:
    """Great Expectations is a second twin of the kernel: both judge the same rows by the same checks."""
    able = ("given", "ranged", "weighed", "recent", "known", "priced", "formed", "on_time")
    for name in able:
        drop = [{**row, **FAULTS[name]} if i == 1 else row for i, row in enumerate(rows())]
        rule = "missing_entity" if name == "given" else f"check.{name}"
        assert rules_of({name: CHECKS[name]}, drop) == [None, rule, None, None], name
        assert broken(quality, table(drop), {name: CHECKS[name]}) == {name}


@pytest.mark.parametrize(
    ("check", "kept", "broken_by"),
    [
        ({"kind": "between", "min": 0.10, "max": 0.70}, ["0.10", "0.70"], ["0.09", "0.71"]),
        ({"kind": "between", "min": 0.10}, ["0.10"], ["0.09"]),
        ({"kind": "between", "max": "0.70"}, ["0.70"], ["0.71"]),
        ({"kind": "in", "values": ["0.10", 0.7]}, ["0.10", "0.70"], ["0.11", "0.69"]),
    ],
)
def test_decimals_are_held_against_what_the_file_says_in_both_treatments(
    quality: Settings, check: dict[str, Any], kept: list[str], broken_by: list[str]
) -> None:
    drop = [{**row, "price": price} for row, price in zip(rows(), [*kept, *broken_by], strict=False)]
    rule = {"priced": {**check, "column": "price"}}
    (told,) = verdicts(quality, table(drop), rule)
    assert [str(row["price"]) for row in told.sample] == broken_by
    assert (told.verdict, told.failing) == ("failed", len(broken_by))
    rejected = [name is not None for name in rules_of(rule, drop)]
    assert rejected == [row["price"] in broken_by for row in drop]


def test_a_decimal_of_more_digits_than_a_float_has_is_held_against_all_of_them(quality: Settings) -> None:
    bound, below = "12345678901234567890.0000000002", "12345678901234567890.0000000001"
    with_long = source({"long": {"kind": "between", "column": "amount", "min": bound}}, amount="decimal(38, 10)")
    held = assertions_about(quality, with_long, "rows", 0)
    given = pa.table({"row_id": [1, 2], "amount": pa.array([Decimal(bound), Decimal(below)], pa.decimal128(38, 10))})
    (told,) = judge(quality, ABOUT, given, held, {}, suite="rows checks")
    assert [str(row["amount"]) for row in told.sample] == [below]
    # pages of the results can be made of it
    assert build_data_docs(quality) > 0


def test_a_whole_number_of_more_bits_than_a_float_has_is_held_against_all_of_them(quality: Settings) -> None:
    bound = 2**62 + 1
    with_large = source({"large": {"kind": "between", "column": "amount", "min": bound, "max": bound}})
    assertions = assertions_about(quality, with_large, "rows", 0)
    amounts = [bound - 1, bound, bound + 1, None]
    drop = pa.table({"row_id": [1, 2, 3, 4], "amount": pa.array(amounts, pa.int64())})
    (verdict,) = judge(quality, ABOUT, drop, assertions, {}, suite="rows checks")
    assert [row["amount"] for row in verdict.sample] == [bound - 1, bound + 1]
    assert build_data_docs(quality) > 0


@pytest.mark.parametrize("bound", ["9" * 38, "-" + "9" * 38])
def test_a_bound_may_have_all_the_digits_of_its_column(bound: str) -> None:
    check = {"kind": "in", "column": "amount", "values": [bound]}
    assert source({"long": check}, amount="decimal(38, 0)").checks
    with pytest.raises(SourceFileError, match=r"decimal\(38, 1\)"):
        source({"long": check}, amount="decimal(38, 1)")
    with pytest.raises(SourceFileError, match=r"decimal\(38, 0\)"):
        source({"long": {**check, "values": [f"{bound[:-1]}.5"]}}, amount="decimal(38, 0)")


@pytest.mark.turns
def test_decimals_of_a_window_and_of_a_suite_are_held_against_what_is_written(tmp_path: Path) -> None:
    """Which columns of theirs are decimals only the rows tell."""
    own = tmp_path / "own"
    own.mkdir()
    limits = {"column": "total", "min_value": 0.1, "max_value": 0.7}
    suite = {"name": "shop.daily", "expectations": [{"type": "expect_column_values_to_be_between", "kwargs": limits}]}
    (own / "shop.json").write_text(json.dumps(suite))
    checks = {
        "bounded": {"kind": "between", "table": "daily", "column": "total", "min": 0.10, "max": 0.70},
        "listed": {"kind": "in", "table": "daily", "column": "total", "values": [0.1, "0.70"]},
    }
    quality = Settings(home=tmp_path / "home", expectations=own)
    held = assertions_about(quality, source(checks, windows=DAILY), "daily", 0)
    totals = [Decimal(total) for total in ("0.10", "0.70", "0.71", "0.09")]
    given = pa.table({"total": pa.array(totals, pa.decimal128(16, 2))})
    told = judge(quality, ABOUT, given, held, {}, suite="daily checks")
    assert len(told) == 3
    for verdict in told:
        assert (verdict.verdict, verdict.failing) == ("failed", 2), verdict
        assert [row["total"] for row in verdict.sample] == totals[2:]


OF_TYPES = {
    "int": pa.array([1, None]),
    "float": pa.array([0.5, None]),
    "decimal(6, 2)": pa.array([Decimal("0.50"), None], pa.decimal128(6, 2)),
    "string": pa.array(["a", None]),
    "bool": pa.array([True, None]),
    "timestamp": pa.array([START, None], pa.timestamp("us", tz="UTC")),
    "date": pa.array([START.date(), None], pa.date32()),
}


def test_every_type_is_told_from_every_other(quality: Settings) -> None:
    assert [kind.partition("(")[0] for kind in OF_TYPES] == [kind.partition("(")[0] for kind in COLUMN_TYPES]
    for kind in OF_TYPES:
        checks = {"typed": {"kind": "type", "column": "amount", "type": kind}}
        told = {
            other: verdicts(quality, pa.table({"row_id": pa.array([1, 2]), "amount": array}), checks)[0].verdict
            for other, array in OF_TYPES.items()
        }
        assert told == {other: "passed" if other == kind else "failed" for other in OF_TYPES}, kind


@pytest.mark.parametrize("code", ["AB1\n", "AB\u0663", "\nAB1", "AB1\nAB1"])
def test_a_form_means_the_same_in_both_treatments(quality: Settings, code: str) -> None:
    checks = {"formed": {"kind": "matches", "column": "code", "pattern": "AB\\d"}}
    drop = [{**row, "code": code if i == 2 else "AB1"} for i, row in enumerate(rows())]
    (told,) = verdicts(quality, table(drop), checks)
    assert [row["code"] for row in told.sample] == [code]
    assert rules_of(checks, drop) == [None, None, "check.formed", None]


SUITE = {
    "name": "shop.rows",
    "expectations": [
        {"type": "expect_column_values_to_be_between", "kwargs": {"column": "amount", "max_value": 20}},
        {
            "type": "expect_column_values_to_not_be_null",
            "kwargs": {"column": "note"},
            "severity": "warning",
            "meta": {"name": "noted"},
        },
    ],
}
OWN = '''
"""A class of one's own, and a suite that uses it."""
import great_expectations as gx
from great_expectations.expectations import ExpectColumnValuesToBeInSet


class ExpectColumnValuesToBeEven(ExpectColumnValuesToBeInSet):
    value_set: list = [0, 2, 4]
    description: str = "every value is even"


SUITES = [gx.ExpectationSuite(name="shop.rows.even", expectations=[ExpectColumnValuesToBeEven(column="n")])]
'''


@pytest.mark.turns
def test_a_suite_and_a_class_of_ones_own_are_dropped_into_a_folder(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    quality = Settings(home=tmp_path / "home", expectations=own)
    (own / "shop.json").write_text(json.dumps(SUITE))
    (own / "even.py").write_text(OWN)
    (own / "weather.json").write_text(json.dumps({**SUITE, "name": "weather.rows"}))
    named = {"mine": {"kind": "expectation", "type": "ExpectColumnValuesToBeEven", "arguments": {"column": "amount"}}}
    told = {verdict.name: verdict for verdict in verdicts(quality, table(rows()), named)}
    assert [v.kind for v in told.values()] == ["check", "suite", "suite", "suite"]
    assert {name: v.verdict for name, v in told.items()} == {
        "mine": "failed",
        "shop.rows.even.1.expect_column_values_to_be_even": "failed",
        "shop.rows.1.expect_column_values_to_be_between": "failed",
        "noted": "warned",
    }
    assert told["noted"].failing == 2
    # what was read once is held again by the next run of the process
    assert [v.verdict for v in verdicts(quality, table(rows()), named)] == [v.verdict for v in told.values()]
    (own / "broken.json").write_text("{")
    with pytest.raises(SourceFileError, match=r"broken\.json"):
        verdicts(quality, table(rows()), named)


def test_a_condition_on_rows_may_name_any_column(tmp_path: Path) -> None:
    folder = tmp_path / "suites"
    folder.mkdir()
    quality = Settings(home=tmp_path / "home", expectations=folder)
    limited = {"column": "amount", "max_value": 10, "row_condition": "n >= 3", "condition_parser": "pandas"}
    check = {"type": "expect_column_values_to_be_between", "kwargs": limited}
    (folder / "shop.json").write_text(json.dumps({"name": "shop.rows", "expectations": [check]}))
    mine = {"mine": {"kind": "expectation", "type": "ExpectColumnValuesToBeBetween", "arguments": limited}}
    answers = verdicts(quality, table(rows()), mine)
    assert [(v.verdict, v.observed) for v in answers] == [("failed", "1 of 1 rows that break it")] * 2
    assertions = assertions_about(quality, source(mine), "rows", 0)
    assert [assertion.reads for assertion in assertions] == [(), ()]


def test_a_suite_of_a_table_that_the_source_has_not_is_refused_before_a_run(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    quality = Settings(home=tmp_path / "home", expectations=own)
    for name in ("shop.rows", "shop.daily.strict", "shop_2.dialy", "weather"):
        (own / f"{name}.json").write_text(json.dumps({**SUITE, "name": name}))
    verify(quality, source({}, windows=DAILY))  # of other sources it is not said what tables they have
    for name in ("shop.dialy", "shop.state", "shop"):
        (own / "wrong.json").write_text(json.dumps({**SUITE, "name": name}))
        with pytest.raises(SourceFileError) as refused:
            verify(quality, source({}, windows=DAILY))
        (problem,) = refused.value.problems
        assert problem["path"] == name
        assert "(daily, rows)" in problem["expected"]
        assert ("did you mean `daily`?" in problem["found"]) == (name == "shop.dialy")


def test_every_kind_is_one_of_great_expectations_own(quality: Settings) -> None:
    held: list[Assertion] = assertions_about(quality, source(CHECKS), "rows", 0)
    kinds = {check.name: type(check.expectation).__module__.split(".")[0] for check in held}
    assert set(kinds.values()) == {"great_expectations"}
    assert set(kinds) == set(CHECKS)
