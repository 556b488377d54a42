"""A condition put to each distinct value once answers as Great Expectations' own does, put to every value."""

from __future__ import annotations

import datetime as dt
import inspect
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spark_jobs.gates.frames import as_pandas

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


def test_great_expectations_uses_them_and_warns_of_nothing(caplog: pytest.LogCaptureFixture) -> None:
    from great_expectations.execution_engine import PandasExecutionEngine
    from great_expectations.expectations.registry import get_metric_provider

    import expectations.distinct_values  # noqa: F401

    engine = PandasExecutionEngine()
    for metric in ("between", "in_set", "not_in_set", "match_regex", "not_match_regex"):
        _, provider = get_metric_provider(f"column_values.{metric}.condition", engine)
        assert inspect.unwrap(provider).__module__ == "expectations.distinct_values", metric
    assert "registered" not in caplog.text


def test_a_condition_is_put_to_equal_texts_once() -> None:
    from expectations.distinct_values import put_once

    heard = []

    def condition(_: type, column: Any) -> Any:
        heard.extend(column)
        return column == "a"

    column = as_pandas(pa.table({"value": ["a", "b", "a", "a"]}))["value"]
    assert put_once(condition, object, column).tolist() == [True, False, True, True]
    assert heard == ["a", "b"]
