"""An execution engine of Great Expectations that evaluates conditions once for each distinct value (decision 0215).

Great Expectations' metrics of pandas columns loop over the values in Python: a tenth of a second for 400,000. A
condition has the same answer for equal values, so this engine evaluates it only for distinct ones. Whole numbers are
converted to numpy's, for which Great Expectations has vectorised code. Frames get no fingerprint either, for which each
was hashed twice.

The conditions are Great Expectations' own, and its pandas engine keeps its own metrics: other users of Great
Expectations in the same process see no difference.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, ClassVar, Literal

import numpy as np
import pandas as pd
from great_expectations.core.batch import BatchMarkers
from great_expectations.core.batch_spec import RuntimeDataBatchSpec
from great_expectations.datasource.fluent import PandasDatasource
from great_expectations.execution_engine import PandasExecutionEngine
from great_expectations.execution_engine.pandas_batch_data import PandasBatchData
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
from great_expectations.expectations.registry import _registered_metrics

Condition = Callable[..., Any]
"""A function of a class of metrics, a column and the metric's arguments. It returns for each value True if it meets the
condition."""


class DistinctValuesEngine(PandasExecutionEngine):
    """Great Expectations' pandas engine, with the metrics of this module, for frames in memory."""

    def get_batch_data_and_markers(self, batch_spec: Any) -> tuple[PandasBatchData, BatchMarkers]:
        """The frame of a `RuntimeDataBatchSpec`, without a fingerprint."""
        assert isinstance(batch_spec, RuntimeDataBatchSpec), "the gates judge frames in memory"
        frame = batch_spec.batch_data
        # as the base class does: Great Expectations writes the batch's description, with its data, into each result
        batch_spec.batch_data = "PandasDataFrame"
        # it takes no batch without its time
        markers = BatchMarkers({"ge_load_time": f"{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}"})
        return PandasBatchData(execution_engine=self, dataframe=frame), markers


class FramesSource(PandasDatasource):
    """A source of frames that `DistinctValuesEngine` judges."""

    execution_engine_override: ClassVar[Any] = DistinctValuesEngine
    type: Literal["tidemark_frames"] = "tidemark_frames"  # type: ignore[assignment]


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


def _register(metric: Any) -> None:
    """Give the engine a metric of pandas columns, with the same condition evaluated by `put_once`.

    `metric` is a class of Great Expectations (`ColumnMapMetricProvider`).
    """
    condition = inspect.unwrap(metric._pandas)

    class PutOnce(ColumnMapMetricProvider):
        condition_metric_name = metric.condition_metric_name
        condition_domain_keys = metric.condition_domain_keys
        condition_value_keys = metric.condition_value_keys

        @column_condition_partial(engine=DistinctValuesEngine)
        def _distinct(cls, column: pd.Series[Any], **arguments: Any) -> pd.Series[Any]:  # noqa: N805
            return put_once(condition, metric, column, **arguments)


def forget_lookups() -> None:
    """Forget which metrics of the pandas engine were found for this one: Great Expectations keeps each it looks up.

    Call it before a file that may define such a metric again.
    """
    ours = DistinctValuesEngine.__name__
    for definition in _registered_metrics.values():
        providers = definition["providers"]
        if providers.get(ours) is not None and providers[ours] == providers.get(PandasExecutionEngine.__name__):
            del providers[ours]


for each in (
    *(ColumnValuesBetween, ColumnValuesInSet, ColumnValuesNotInSet),
    *(ColumnValuesMatchRegex, ColumnValuesNotMatchRegex),
):
    _register(each)
