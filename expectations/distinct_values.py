"""Great Expectations' own conditions on values, evaluated once for each distinct value (decision 0215).

Its metrics of pandas columns loop over the values in Python: a tenth of a second for 400,000. A condition has the same
answer for equal values, so it is evaluated only for distinct ones. Whole numbers are converted to numpy's, for which
Great Expectations has vectorised code. Frames get no fingerprint either, for which each was hashed twice.

Importing this module replaces these metrics for pandas frames. Expectations, suites and results stay Great
Expectations' own.
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
"""A function of a class of metrics, a column and the metric's arguments. It returns for each value True if it meets the
condition."""


def put_once(condition: Condition, metric: type, column: pd.Series[Any], **arguments: Any) -> pd.Series[Any]:
    """The answers of `condition(metric, column, **arguments)`, with the column's index, for a column without nulls.

    For texts and objects it is evaluated once for each distinct value; other columns are compared as a whole."""
    if isinstance(column.dtype, pd.Int64Dtype):
        column = column.astype(np.int64)
    if column.dtype != object and not isinstance(column.dtype, pd.StringDtype):
        # such columns are already compared as a whole
        return pd.Series(np.asarray(condition(metric, column, **arguments), np.bool_), column.index)
    places, values = pd.factorize(column)
    answers = condition(metric, pd.Series(values, dtype=column.dtype), **arguments)
    return pd.Series(np.asarray(answers, np.bool_)[places], column.index)


def _replace(metric: type[ColumnMapMetricProvider]) -> None:
    """Register a metric of pandas columns again, with the same condition evaluated by `put_once`."""
    condition = inspect.unwrap(metric._pandas)  # type: ignore[attr-defined]

    class PutOnce(metric):  # type: ignore[misc, valid-type]
        @column_condition_partial(engine=PandasExecutionEngine)
        def _pandas(cls, column: pd.Series[Any], **arguments: Any) -> pd.Series[Any]:  # noqa: N805
            return put_once(condition, cls, column, **arguments)


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Silence Great Expectations' warnings of metrics that are registered twice, which is intended here."""
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
# a frame of this many bytes or more gets no fingerprint
pandas_execution_engine.HASH_THRESHOLD = 0
