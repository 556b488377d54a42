"""Tests in source files: what passes, what fails and how it is shown, in every order."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.cli.app import run
from spark_jobs.config import Settings
from spark_jobs.errors import ParameterError
from spark_jobs.gates.gate import judge_gate, judge_plainly
from spark_jobs.sources import parse_source
from spark_jobs.sources.problems import SourceFileError
from spark_jobs.trials.source_tests import run_tests

SOURCE = """
source: readings
start: 2024-03-01
every: 1 day
landing: {path: "readings/{date}/*", format: FORMAT}
columns: {id: string, device: string, at: timestamp, heat: {type: float, from: Heat}, price: "decimal(9, 2)"}
timelines: [at]
event_time: at
entity: device
delta_id: id
windows:
  hourly:
    kind: tumbling
    size: 1 hour
    key: device
    aggregates: {n: count(), mean: avg(heat), paid: sum(price)}
    late: reemit
state: {mode: upsert, components: {heat: heat}}
checks:
  not_cold: {kind: between, column: heat, min: 0, treatment: TREATMENT}
tests:
  a_late_row_restates_its_hour:
    - drop: 2024-03-01
      rows:
        - {id: 1, device: a, at: "2024-03-01T10:10:00Z", heat: 1.5, price: "0.10"}
        - {id: 2, device: b, at: "2024-03-01T10:10:00Z", heat: 7.0}
      windows:
        hourly:
          - {device: a, window_start: 2024-03-01T10:00:00Z, n: 1, mean: 1.5, paid: 0.1}
          - {device: b, window_start: 2024-03-01T10:00:00Z, n: 1, mean: 7.0, paid: null}
      late: []
      quarantine: []
      checks: {not_cold: passed}
    - drop: 2024-03-02
      rows:
        - {id: 3, device: a, at: "2024-03-01T10:20:00Z", heat: 2.5, price: "0.20"}
      windows:
        hourly:
          - {device: a, n: 2, mean: 2.0, paid: "0.30"}
          - {device: b, n: 1, mean: 7.0, paid: null}
      states:
        - {device: a, heat: 2.5}
        - {device: b, heat: 7}
      late:
        - {definition: hourly, action: reemit, entity: a}
"""


def source_text(form: str = "ndjson", treatment: str = "warn") -> str:
    return SOURCE.replace("FORMAT", form).replace("TREATMENT", treatment)


def results(text: str, **options: Any) -> list[Any]:
    return [*run_tests(parse_source(text, file="readings.yml"), text, **options)]


@pytest.mark.parametrize("form", ["csv", "ndjson", "parquet"])
def test_rows_are_written_in_the_format_of_the_source(form: str) -> None:
    [result] = results(source_text(form))
    assert (result.refused, result.differences) == (None, [])


@pytest.mark.turns
def test_other_orders_give_the_same() -> None:
    found = results(source_text(), orders=5, seed=3)
    assert [result.order for result in found] == [0, 1, 2, 3, 4, 5]
    assert [result.differences for result in found if not result.passed] == []


def test_rows_that_differ_are_shown_on_both_sides() -> None:
    [result] = results(source_text().replace("mean: 2.0", "mean: 3.0"))
    [difference] = result.differences
    assert (difference.drop, difference.table) == ("2024-03-02", "silver.hourly")
    assert [row["mean"] for row in difference.expected] == [3.0]
    assert [row["mean"] for row in difference.found] == [2.0]


@pytest.mark.turns
@pytest.mark.parametrize(
    ("old", "new", "table"),
    [
        ("late: []", "late: [{action: reemit}]", "late"),
        ("quarantine: []", 'quarantine: [{reason: "none"}]', "quarantine"),
        ("not_cold: passed", "not_cold: warned", "checks"),
        ("{device: b, heat: 7}", "{device: c, heat: 7}", "states"),
        ("action: reemit, entity: a", "action: reemit, entity: b", "late"),
        ("paid: 0.1}", "paid: 0.11}", "silver.hourly"),
        ("window_start: 2024-03-01T10:00:00Z, n: 1, mean: 1.5", "window_start: noon, n: 1, mean: 1.5", "silver.hourly"),
    ],
)
def test_each_expectation_can_fail(old: str, new: str, table: str) -> None:
    assert old in source_text()
    [result] = results(source_text().replace(old, new, 1))
    assert [difference.table for difference in result.differences] == [table]


def test_a_line_is_taken_as_it_is_and_a_check_that_stops_the_run_is_expected() -> None:
    cold = """
  a_cold_row_stops_the_run:
    - drop: 2024-03-01
      rows:
        - '{"id": "9", "device": "a", "at": "never"}'
        - {id: 1, device: a, at: "2024-03-01T10:10:00Z", heat: -1.0}
      checks: {not_cold: failed}
"""
    [result] = results(source_text(treatment="fail") + cold, names=["a_cold_row_stops_the_run"])
    assert (result.refused, result.differences) == (None, [])
    unexpected = cold.replace("      checks: {not_cold: failed}\n", "")
    [refused] = results(source_text(treatment="fail") + unexpected, names=["a_cold_row_stops_the_run"])
    assert "gate_failed" in refused.refused


@pytest.mark.turns
def test_the_command_says_which_tests_failed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "readings.yml"
    path.write_text(source_text())
    assert run(["test", str(path)]) == 0
    assert "passed  readings: a late row restates its hour" in capsys.readouterr().out
    path.write_text(source_text().replace("mean: 2.0", "mean: 3.0"))
    assert run(["test", str(path)]) == 1
    out = capsys.readouterr().out
    assert "expected" in out
    assert "found" in out
    assert run(["test", str(path), "--json"]) == 1
    [shown] = json.loads(capsys.readouterr().out)["tests"]
    assert (shown["passed"], shown["differences"][0]["expected"][0]["mean"]) == (False, 3.0)
    assert run(["test", str(path), "--case", "nothing"]) == 2
    assert "a_late_row_restates_its_hour" in capsys.readouterr().err


def test_tests_change_no_definition() -> None:
    text = source_text()
    without = text[: text.index("tests:")]
    parts = [parse_source(t, file="readings.yml").definition_parts() for t in (text, without)]
    assert parts[0] == parts[1]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("drop: 2024-03-02", "drop: soon", "date or time of a drop"),
        ("FORMAT", "json", "one of the formats"),
    ],
)
def test_what_no_test_can_do_is_refused(old: str, new: str, expected: str) -> None:
    text = SOURCE.replace(old, new).replace("FORMAT", "ndjson").replace("TREATMENT", "warn")
    try:
        [result] = results(text)
    except ParameterError as error:
        assert expected in str(error)
    else:
        assert expected in result.refused


def test_a_wrong_key_is_named() -> None:
    with pytest.raises(SourceFileError, match=r"tests\.a_late_row_restates_its_hour\.0.*did you mean"):
        parse_source(source_text().replace("quarantine: []", "quarantined: []"), file="readings.yml")


def test_check_names_every_problem_of_every_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "readings.yml"
    path.write_text(source_text())
    assert run(["check", str(path)]) == 0
    assert "right: readings" in capsys.readouterr().out
    path.write_text(source_text().replace("every: 1 day", "every: sometimes").replace("key: device", "key: nobody"))
    assert run(["check", str(path), "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert {problem["path"] for problem in document["problems"]} >= {"every", "windows.hourly.key"}


Examples = dict[str, list[dict[str, Any]]]


def _same(rows: Examples, _: Sequence[tuple[str, ...]]) -> Examples:
    return rows


@pytest.mark.parametrize("broken", [False, True])
def test_gates_are_judged_alike_with_and_without_great_expectations(settings: Settings, broken: bool) -> None:
    import expectations

    for gate in expectations.GATES:
        measures = {m: int(broken) for invariant in expectations.SUITES[gate] for m in invariant.measures[:1]}
        measures |= {m: 0 for invariant in expectations.SUITES[gate] for m in invariant.measures[1:]}
        rows: Examples = {invariant.measure: [{"row": 1}] for invariant in expectations.SUITES[gate]}
        plain = judge_plainly(gate, measures, source="s", find_examples=partial(_same, rows))
        judged = judge_gate(
            gate, measures, settings=settings, source="s", run_id="r", find_examples=partial(_same, rows)
        )
        assert plain == judged
        assert broken == any(verdict.verdict == "failed" for verdict in plain)
