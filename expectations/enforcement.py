"""The expectation of an invariant, and its metrics: Great Expectations judges the measures of a gate. If an invariant
is broken, it also asks for the rows that break it, and returns them.

Importing this module registers the class and the metrics with Great Expectations. Stored suites of the project name the
class, so code that opens the project must import this module first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from great_expectations.core.metric_domain_types import MetricDomainTypes
from great_expectations.execution_engine import PandasExecutionEngine
from great_expectations.expectations.expectation import BatchExpectation
from great_expectations.expectations.metrics.metric_provider import metric_value
from great_expectations.expectations.metrics.table_metric_provider import TableMetricProvider
from great_expectations.render import LegacyDiagnosticRendererType, LegacyRendererType
from great_expectations.render.components import RenderedStringTemplateContent, RenderedTableContent
from great_expectations.render.renderer.renderer import renderer

from expectations.invariant import BREAKING_ROWS, Bound, bounds, describe_measures, exception_message, holds

_MEASURED, _ROWS = "table.measured", "table.breaking_rows"


class MeasuredSums(TableMetricProvider):
    """The measures that an invariant reads, by name, from the one row that a gate measured; None if not measured."""

    metric_name = _MEASURED
    value_keys = ("measure", "other")

    @metric_value(engine=PandasExecutionEngine)
    def _pandas(
        cls,  # noqa: N805 - Great Expectations calls it so
        execution_engine: PandasExecutionEngine,
        metric_domain_kwargs: dict[str, Any],
        metric_value_kwargs: dict[str, Any],
        **_: Any,
    ) -> dict[str, Any]:
        return _measures_of(_frame(execution_engine, metric_domain_kwargs), metric_value_kwargs)


class BreakingRows(TableMetricProvider):
    """Some of the rows that break an invariant. No file is read for an invariant without such rows."""

    metric_name = _ROWS
    value_keys = ("measure", "bound", "other")

    @metric_value(engine=PandasExecutionEngine)
    def _pandas(
        cls,  # noqa: N805
        execution_engine: PandasExecutionEngine,
        metric_domain_kwargs: dict[str, Any],
        metric_value_kwargs: dict[str, Any],
        **_: Any,
    ) -> list[dict[str, Any]]:
        frame = _frame(execution_engine, metric_domain_kwargs)
        measures = _measures_of(frame, metric_value_kwargs)
        find = frame.attrs.get(BREAKING_ROWS)
        if find is None or holds(metric_value_kwargs["bound"], *measures.values()):
            return []
        return [{name: _plain(value) for name, value in row.items()} for row in find(tuple(measures))]


def _plain(value: Any) -> Any:
    """A value as JSON has it. A value without a type in JSON becomes text, since Great Expectations would make a float
    of it."""
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {str(name): _plain(each) for name, each in value.items()}
    return value if value is None or isinstance(value, str | int | float) else str(value)


def _frame(engine: PandasExecutionEngine, domain: dict[str, Any]) -> Any:
    frame, _, _ = engine.get_compute_domain(domain_kwargs=domain, domain_type=MetricDomainTypes.TABLE)
    return frame


def _measures_of(frame: Any, keys: Mapping[str, Any]) -> dict[str, Any]:
    names = [name for name in (keys["measure"], keys["other"]) if name is not None]
    return {name: _value(frame[name].iloc[0]) if name in frame.columns else None for name in names}


def _value(value: Any) -> Any:
    """A measure as a Python number; None if it is missing, for which a frame of numbers has NaN."""
    # numpy's numbers convert themselves to Python's
    plain = value.item() if hasattr(value, "item") else value
    return None if isinstance(plain, float) and math.isnan(plain) else plain


class ExpectInvariantToHold(BatchExpectation):
    """Expect a measure of a gate to keep a bound.

    Args:
        measure: the name of the sum that is bounded.
        bound: `none`: the sum is 0; `equal`: it equals `other`; `at_most`: it is not greater than `other`.
        other: the name of the sum that it is compared with.

    The result has `observed_value` (the measures). If the bound is broken, it also has `unexpected_count` (the number
    of rows that break it, if the measure counts them) and `partial_unexpected_list`. The latter has some of these rows,
    or for two sums the places where they differ.
    """

    measure: str
    bound: Bound = "none"
    other: str | None = None

    metric_dependencies = (_MEASURED, _ROWS)
    domain_keys = ("batch_id",)
    success_keys = ("measure", "bound", "other")

    def _validate(
        self, metrics: dict[str, Any], runtime_configuration: Any = None, execution_engine: Any = None
    ) -> dict[str, Any]:
        measures, rows = metrics[_MEASURED], metrics[_ROWS]
        success = holds(self.bound, *measures.values())
        counted = measures[self.measure] if self.bound == "none" else None
        result: dict[str, Any] = {"observed_value": describe_measures(measures), "details": {"measures": measures}}
        if not success:
            result |= {"unexpected_count": counted, "partial_unexpected_list": rows}
        return {"success": success, "result": result}

    @classmethod
    @renderer(renderer_type=LegacyRendererType.PRESCRIPTIVE)
    def _prescriptive_renderer(
        cls, configuration: Any = None, result: Any = None, runtime_configuration: Any = None, **_: Any
    ) -> list[Any]:
        kwargs = configuration.kwargs
        words = bounds(kwargs["measure"], kwargs.get("bound", "none"), kwargs.get("other"))
        return [_text(words)]

    @classmethod
    @renderer(renderer_type=LegacyDiagnosticRendererType.UNEXPECTED_STATEMENT)
    def _diagnostic_unexpected_statement_renderer(
        cls, configuration: Any = None, result: Any = None, runtime_configuration: Any = None
    ) -> list[Any]:
        """The heading of the rows that break it, with their number; or the error that kept them from being read."""
        if exception_message(result) is not None:
            return list(super()._diagnostic_unexpected_statement_renderer(result=result))
        n_examples, count = (
            len(result.result.get("partial_unexpected_list") or []),
            result.result.get("unexpected_count"),
        )
        if result.success or not n_examples:
            return []
        of_all = f", {n_examples} of {count}" if count is not None and count > n_examples else ""
        return [_text(f"\n\nwhat breaks it{of_all}:")]

    @classmethod
    @renderer(renderer_type=LegacyDiagnosticRendererType.UNEXPECTED_TABLE)
    def _diagnostic_unexpected_table_renderer(
        cls, configuration: Any = None, result: Any = None, runtime_configuration: Any = None
    ) -> list[Any] | None:
        """The rows that break it as a table, with a column for each of their values; None if there are none."""
        rows = result.result.get("partial_unexpected_list") if result is not None else None
        if not rows:
            return None
        columns = list(dict.fromkeys(name for row in rows for name in row))
        table = [[_text("" if row.get(name) is None else str(row[name])) for name in columns] for row in rows]
        styling = {"body": {"classes": ["table-bordered", "table-sm", "mt-3"]}}
        return [
            RenderedTableContent(content_block_type="table", header_row=columns, table=table, styling=styling),
        ]


def _text(text: str) -> Any:
    """The text as content for the Data Docs: it is escaped, and no part of it is taken for a placeholder."""
    template = {"template": "$text", "params": {"text": text}}
    return RenderedStringTemplateContent(content_block_type="string_template", string_template=template)
