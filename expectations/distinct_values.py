"""Great Expectations' own conditions on values, put to each distinct value once (decision 0215).

Its metrics of pandas columns go through the values in Python, one by one: a tenth of a second for 400,000. A condition
answers the same for equal values, so it is put to the distinct ones; and to whole numbers as numpy's, for which Great
Expectations has a vectorised way. No fingerprint is taken of frames either: each was hashed twice for one.

Importing this replaces those metrics for frames of pandas; expectations, suites and results stay Great Expectations'.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd
from great_expectations.execution_engine import PandasExecutionEngine, pandas_execution_engine
from great_expectations.expectations.metrics.column_map_metrics import (
    ColumnValuesBetween,
    ColumnValuesInSet,
    ColumnValuesMatchRegex,
    ColumnValuesNotInSet,
    ColumnValuesNotMatchRegex,
)
from great_expectations.expectations.metrics.map_metric_provider import (
    ColumnMapMetricProvider,
    column_condition_partial,
)

Condition = Callable[..., Any]
"""Of a class of metrics, a column and the metric's arguments: whether each value keeps it."""


def put_once(condition: Condition, metric: type, column: pd.Series[Any], **arguments: Any) -> pd.Series[Any]:
    """What `condition(metric, column, **arguments)` answers, for a column without nulls, at the column's index."""
    if isinstance(column.dtype, pd.Int64Dtype):
        column = column.astype(np.int64)
    if column.dtype != object and not isinstance(column.dtype, pd.StringDtype):
        # compared as whole columns already
        return pd.Series(np.asarray(condition(metric, column, **arguments), np.bool_), column.index)
    places, values = pd.factorize(column)
    answers = condition(metric, pd.Series(values, dtype=column.dtype), **arguments)
    return pd.Series(np.asarray(answers, np.bool_)[places], column.index)


def _replace(metric: type[ColumnMapMetricProvider]) -> None:
    """Register the metric of pandas columns anew, with the condition that it has."""
    condition = inspect.unwrap(metric._pandas)  # type: ignore[attr-defined]

    class PutOnce(metric):  # type: ignore[misc, valid-type]
        @column_condition_partial(engine=PandasExecutionEngine)
        def _pandas(cls, column: pd.Series[Any], **arguments: Any) -> pd.Series[Any]:  # noqa: N805
            return put_once(condition, cls, column, **arguments)


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Great Expectations warns of metrics that are registered twice, which is meant here."""
    log = logging.getLogger("great_expectations.expectations.registry")
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before


with _without_warnings():
    for each in (
        *(ColumnValuesBetween, ColumnValuesInSet, ColumnValuesNotInSet),
        *(ColumnValuesMatchRegex, ColumnValuesNotMatchRegex),
    ):
        _replace(each)
# a frame of so many bytes or more gets no fingerprint
pandas_execution_engine.HASH_THRESHOLD = 0
