"""Great Expectations judges invariants itself, and returns the rows that break them: in its result, in what it stores
and in the Data Docs."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from expectations import GATES
from expectations.invariant import holds
from spark_jobs.config import Settings
from spark_jobs.gates import GateFailed, Verdict, data_docs_index, judge_gate, quality_dir, run_gate

pytestmark = pytest.mark.slow

EVIL = "<script>alert('x')</script> $100 ${text} Müller's \"N1\""
SOUND = {m: 0 if i.bound == "none" else 7 for i in GATES["bronze"] for m in i.measures}
BROKEN = SOUND | {"repeated_row_ids": 2, "chunk_rows": 6}
ROWS: dict[str, list[dict[str, Any]]] = {
    "repeated_row_ids": [
        {"entity": EVIL, "row_id": (1 << 62) + 1, "at": datetime(2024, 1, 1, 0, 0, 0, 5, tzinfo=UTC), "none": None},
        {"entity": "b", "row_id": 2, "load": Decimal("1.10"), "raw": b"\xff", "cells": [1, 2]},
    ],
    "ledger_rows": [{"drop": "2024-01-01", "ledger_rows": 7, "chunk_rows": 6}],
}


class Finder:
    """Gives `ROWS`, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[list[tuple[str, ...]]] = []

    def __call__(self, broken: Sequence[tuple[str, ...]]) -> dict[str, list[dict[str, Any]]]:
        self.asked.append(list(broken))
        return {measures[0]: ROWS[measures[0]] for measures in broken}


def judged(settings: Settings, measures: dict[str, int], find: Any) -> dict[str, Verdict]:
    """The verdicts of a gate by name."""
    verdicts = judge_gate("bronze", measures, settings=settings, source="flights", run_id="r", find_examples=find)
    return {verdict.name: verdict for verdict in verdicts}


def stored_results(settings: Settings) -> dict[str, dict[str, Any]]:
    """What Great Expectations stored, by measure."""
    (file,) = quality_dir(settings).rglob("validations/**/*.json")
    results = json.loads(file.read_text())["results"]
    return {each["expectation_config"]["meta"]["measure"]: each for each in results}


def test_a_sound_gate_asks_for_no_rows(settings: Settings) -> None:
    find = Finder()
    assert all(verdict.verdict == "passed" for verdict in judged(settings, SOUND, find).values())
    assert find.asked == []


def test_rows_that_break_invariants_are_asked_for_once_and_are_in_the_result(settings: Settings) -> None:
    find = Finder()
    verdicts = judged(settings, BROKEN, find)
    assert find.asked == [[("ledger_rows", "chunk_rows"), ("repeated_row_ids",)]]
    assert {name for name, verdict in verdicts.items() if verdict.stops} == {"ledger_rows", "repeated_row_ids"}
    assert (verdicts["repeated_row_ids"].failing, verdicts["ledger_rows"].failing) == (2, None)
    stored = stored_results(settings)
    assert stored["repeated_row_ids"]["expectation_config"]["type"] == "expect_invariant_to_hold"
    assert stored["repeated_row_ids"]["result"]["unexpected_count"] == 2
    first, second = stored["repeated_row_ids"]["result"]["partial_unexpected_list"]
    assert (first["entity"], first["row_id"], first["none"]) == (EVIL, (1 << 62) + 1, None)
    assert first["at"].startswith("2024-01-01") and "000005" in first["at"]
    # a number of another kind would be another number
    assert (second["load"], second["cells"]) == ("1.10", [1, 2])
    assert stored["ledger_rows"]["result"]["observed_value"] == "ledger_rows=7, chunk_rows=6"
    assert stored["ledger_rows"]["result"]["partial_unexpected_list"] == ROWS["ledger_rows"]
    assert "partial_unexpected_list" not in stored["chunks_falsely_sorted"]["result"]
    # what people read is what Great Expectations returned
    for name, verdict in verdicts.items():
        rows = [dict(row) for row in verdict.sample]
        assert rows == (stored[name]["result"].get("partial_unexpected_list") or [])


def test_the_data_docs_show_the_rows_as_a_table_and_nothing_in_them_is_markup(settings: Settings) -> None:
    with pytest.raises(GateFailed):
        run_gate("bronze", BROKEN, settings=settings, source="flights", run_id="r", find_examples=Finder())
    (page,) = data_docs_index(settings).parent.rglob("validations/**/*.html")
    text = page.read_text()
    assert "<script" not in text
    assert "&lt;script&gt;alert('x')&lt;/script&gt; $100 ${text} Müller's" in text
    assert str((1 << 62) + 1) in text and "2024-01-01" in text
    assert len(re.findall(r"<th[^>]*>\s*row_id\s*</th>", text)) == 1


def test_rows_that_can_not_be_read_leave_the_gate_shut(settings: Settings) -> None:
    def find(_: Sequence[tuple[str, ...]]) -> dict[str, list[dict[str, Any]]]:
        raise FileNotFoundError("part-1.parquet")

    verdicts = judged(settings, SOUND | {"repeated_row_ids": 3}, find)
    broken = verdicts.pop("repeated_row_ids")
    assert (broken.verdict, broken.sample) == ("failed", ())
    assert broken.observed.startswith("3 (") and "part-1.parquet" in broken.observed
    assert all(verdict.verdict == "passed" for verdict in verdicts.values())


@pytest.mark.parametrize(
    ("bound", "measures", "expected"),
    [
        ("none", (0,), True),
        ("none", (-1,), False),
        ("none", (None,), False),
        ("none", (1 << 70,), False),
        ("equal", (1 << 70, 1 << 70), True),
        ("equal", ((1 << 53) + 1, 1 << 53), False),
        ("equal", (None, None), False),
        ("at_most", (3, 3), True),
        ("at_most", (4, 3), False),
        ("at_most", (None, 3), False),
        ("at_most", (3, None), False),
    ],
)
def test_a_bound_holds_only_for_what_was_measured(bound: Any, measures: tuple[int | None, ...], expected: bool) -> None:
    assert holds(bound, *measures) is expected
