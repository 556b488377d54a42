"""A condition put to each distinct value once answers as Great Expectations' own does, put to every value."""

from __future__ import annotations

import datetime as dt
import inspect
import os
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spark_jobs.config import Settings
from spark_jobs.gates.frames import as_pandas
from spark_jobs.gates.project import Batch, quality_dir, validate

pytestmark = pytest.mark.slow

AT = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
COLUMNS: dict[str, pa.Array] = {
    "whole": pa.array([3, None, -7, 3, 2**53 + 1, 0]),
    "full": pa.array([3, 1, -7, 3, 2**53 + 1, 0]),
    "broken": pa.array([0.5, None, float("inf"), 0.5, -0.0, 0.0]),
    "text": pa.array(["AB1", None, "", "AB1", "ä\n", "ab1"]),
    "exact": pa.array([Decimal("0.10"), None, Decimal("9.99"), Decimal("0.10"), Decimal("-1.00"), Decimal(0)]),
    "day": pa.array([dt.date(2024, 1, n) if n != 2 else None for n in (1, 2, 3, 1, 4, 5)]),
    "at": pa.array([AT, None, AT + dt.timedelta(days=1), AT, AT, AT], pa.timestamp("us", "UTC")),
    "flag": pa.array([True, None, False, True, True, False]),
    "none": pa.array([None, None], pa.string()),
}
CONDITIONS: list[tuple[str, str, dict[str, Any]]] = [
    ("Between", "whole", {"min_value": 0.0, "max_value": 3.0}),
    ("Between", "full", {"min_value": 2**53 + 1}),
    ("Between", "full", {"min_value": -7.0, "max_value": 3.0, "strict_min": True, "strict_max": True}),
    ("Between", "broken", {"min_value": 0.0, "max_value": 1.0}),
    ("Between", "text", {"min_value": "AB", "max_value": "b"}),
    ("Between", "exact", {"min_value": Decimal("0.1")}),
    ("Between", "day", {"max_value": dt.date(2024, 1, 3)}),
    ("Between", "at", {"max_value": AT}),
    ("InSet", "whole", {"value_set": [3, 0]}),
    ("InSet", "broken", {"value_set": [0.0]}),
    ("InSet", "text", {"value_set": ["AB1", ""]}),
    ("InSet", "text", {"value_set": None}),
    ("InSet", "exact", {"value_set": [Decimal("0.1")]}),
    ("InSet", "day", {"value_set": [dt.date(2024, 1, 1)]}),
    ("InSet", "flag", {"value_set": [True]}),
    ("InSet", "none", {"value_set": ["x"]}),
    ("NotInSet", "text", {"value_set": ["AB1"]}),
    ("NotInSet", "whole", {"value_set": [3]}),
    ("MatchRegex", "text", {"regex": r"\A(?a:[A-Z]+\d)\Z"}),
    ("MatchRegex", "whole", {"regex": "3"}),
    ("MatchRegex", "none", {"regex": "x"}),
    ("NotMatchRegex", "text", {"regex": "B"}),
]


@pytest.mark.parametrize(("name", "column", "arguments"), CONDITIONS, ids=lambda part: str(part)[:40])
def test_every_value_gets_the_answer_of_the_condition_itself(name: str, column: str, arguments: Any) -> None:
    from great_expectations.expectations.metrics import column_map_metrics

    from expectations.distinct_values import put_once

    values = as_pandas(pa.table({"value": COLUMNS[column]}))["value"]
    values = values[values.notnull()]
    metric = getattr(column_map_metrics, f"ColumnValues{name}")
    condition = inspect.unwrap(metric._pandas)
    wanted = np.asarray(condition(metric, values, **arguments), bool).tolist()
    answers = put_once(condition, metric, values, **arguments)
    assert answers.dtype == bool and answers.index.equals(values.index)
    assert answers.tolist() == wanted


def test_only_our_engine_uses_them_and_nothing_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    from great_expectations.execution_engine import PandasExecutionEngine
    from great_expectations.expectations.registry import get_metric_provider

    from expectations.distinct_values import DistinctValuesEngine

    ours, theirs = DistinctValuesEngine(), PandasExecutionEngine()
    for metric in ("between", "in_set", "not_in_set", "match_regex", "not_match_regex"):
        name = f"column_values.{metric}.condition"
        assert inspect.unwrap(get_metric_provider(name, ours)[1]).__module__ == "expectations.distinct_values", name
        assert get_metric_provider(name, theirs)[0].__module__.startswith("great_expectations."), name
    assert "registered" not in caplog.text


OWN = """
from great_expectations.execution_engine import PandasExecutionEngine
from great_expectations.expectations.expectation import ColumnMapExpectation
from great_expectations.expectations.metrics import ColumnMapMetricProvider, column_condition_partial


class Even(ColumnMapMetricProvider):
    condition_metric_name = "column_values.tidemark_even"

    @column_condition_partial(engine=PandasExecutionEngine)
    def _pandas(cls, column, **_):
        return column % 2 == {rest}


class ExpectColumnValuesToBeTidemarkEven(ColumnMapExpectation):
    map_metric = "column_values.tidemark_even"
"""


def test_a_metric_that_a_file_defines_again_replaces_the_one_that_was_used(tmp_path: Path, settings: Settings) -> None:
    from expectations.own import expectation_of, read_suites

    answers = []
    for nanoseconds, rest in ((1, 0), (2, 1)):
        (tmp_path / "even.py").write_text(OWN.format(rest=rest))
        os.utime(tmp_path / "even.py", ns=(nanoseconds, nanoseconds))
        read_suites(tmp_path)
        rows = pa.table({"n": pa.array([2, 4])})
        judged = Batch("even", "numbers", frame=as_pandas(rows), result_format="BASIC")
        [result] = validate(settings, judged, even_suite(expectation_of), run_id=f"r{rest}")
        answers.append(result.success)
    assert answers == [True, False]


def test_a_stored_result_has_no_values_of_the_judged_rows(settings: Settings) -> None:
    from great_expectations import ExpectationSuite
    from great_expectations import expectations as gxe

    expected = gxe.ExpectColumnValuesToNotBeNull(column="name")
    rows = as_pandas(pa.table({"name": ["a-customers-name"], "price": [Decimal("0.10")]}))
    judged = Batch("full", "names", frame=rows, result_format="BASIC")
    [result] = validate(settings, judged, lambda: ExpectationSuite(name="full", expectations=[expected]), run_id="r")
    assert result.success
    stored = [path.read_text() for path in quality_dir(settings).rglob("*.json")]
    assert stored and not any("a-customers-name" in text for text in stored)


def even_suite(expectation_of: Callable[..., Any]) -> Callable[[], Any]:
    from great_expectations import ExpectationSuite

    name = "ExpectColumnValuesToBeTidemarkEven"
    return lambda: ExpectationSuite(name="even", expectations=[expectation_of(name, {"column": "n"})])


def test_a_condition_is_put_to_equal_texts_once() -> None:
    from expectations.distinct_values import put_once

    heard = []

    def condition(_: type, column: Any) -> Any:
        heard.extend(column)
        return column == "a"

    column = as_pandas(pa.table({"value": ["a", "b", "a", "a"]}))["value"]
    assert put_once(condition, object, column).tolist() == [True, False, True, True]
    assert heard == ["a", "b"]
