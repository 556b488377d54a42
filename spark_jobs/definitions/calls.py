"""From the aggregates of a source file to those of the kernels: the columns that they read, and the types of their
results.

Columns in a worker's table have prefixes, so that no name of a source is equal to one of ours: `k_<column>` keys,
`v_<column>` values, `w_<output>` vectors made of several columns, `a_<output>` results.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from spark_jobs.engine import windows
from spark_jobs.engine.windows import Aggregate, WindowRows
from spark_jobs.errors import TidemarkError
from spark_jobs.sources.calls import AggregateCall as Call
from spark_jobs.sources.emissions import EarlyTriggerCall

_VECTOR = pa.list_(pa.float64())


def kernel_aggregate(output: str, call: Call) -> Aggregate:
    """The kernel's aggregate for one output column of a source file."""
    signature = call.signature
    if call.plugin is None:
        construct = getattr(windows, signature.constructor)
    else:
        construct = call.plugin.constructor(call.function)
    columns = [f"w_{output}"] if signature.as_vector else [f"v_{column}" for column in call.columns]
    numbers = plain_numbers(call.numbers, [number.whole for number in signature.numbers])
    if call.plugin is None:
        aggregate: Aggregate = construct(*columns, *numbers)
        return aggregate
    with attributing_to_plugin(call):
        return _PluginAggregate(call, construct(*columns, *numbers))


def plain_numbers(numbers: Sequence[float], whole: Sequence[bool]) -> list[float]:
    """The numbers of a call; those that its signature declares as `whole` are integers."""
    return [int(value) if is_whole else value for value, is_whole in zip(numbers, whole, strict=False)]


class PluginFailed(TidemarkError):
    """A team's own aggregate, or trigger, raised. Facts: `file`, and `aggregate` or `trigger`."""

    code = "plugin_failed"


@contextmanager
def attributing_to_plugin(call: Call | EarlyTriggerCall) -> Iterator[None]:
    """Turn an exception of the plugin's own code into PluginFailed, which names its file."""
    try:
        yield
    except TidemarkError:
        raise
    except Exception as error:
        assert call.plugin is not None, "it is a plugin's"
        raise PluginFailed(
            expected=f"a result of {describe(call)}",
            found=f"{type(error).__name__}: {error}, raised by {call.plugin.file}",
            consequence="nothing was published",
            next_step="mend the file and run again; with --accept-definition where the source has published before",
            file=call.plugin.file,
            **{"aggregate" if isinstance(call, Call) else "trigger": call.function},
        ) from error


@dataclass(frozen=True)
class _PluginAggregate(Aggregate):
    """A team's own aggregate, whose errors name its file."""

    call: Call
    aggregate: Aggregate

    @property
    def column(self) -> str | None:  # type: ignore[override]
        """The column that the aggregate reads; None if it reads none."""
        return self.aggregate.column

    def output_type(self, values: pa.DataType) -> pa.DataType:
        """The type of the aggregate's result for a column of the type `values`."""
        with attributing_to_plugin(self.call):
            return self.aggregate.output_type(values)

    def evaluate(self, rows: WindowRows) -> pa.Array:
        """The value of the aggregate in each window."""
        with attributing_to_plugin(self.call):
            return self.aggregate.evaluate(rows)


def result_type(output: str, call: Call, columns: Mapping[str, pa.DataType]) -> pa.DataType:
    """The type of an aggregate's result, by the types of the file's columns, without evaluating the aggregate."""
    aggregate = kernel_aggregate(output, call)
    if call.signature.as_vector:
        return aggregate.output_type(_VECTOR)
    return aggregate.output_type(columns[call.columns[0]] if call.columns else pa.null())


def columns_read(calls: Mapping[str, Call]) -> list[str]:
    """The columns of the file that the aggregates read, each once."""
    return list(dict.fromkeys(column for call in calls.values() for column in call.columns))


def with_vectors(rows: pa.Table, calls: Mapping[str, Call]) -> pa.Table:
    """The rows with a column `w_<output>` per vector aggregate: null where any of its components is null."""
    for output, call in calls.items():
        if not call.signature.as_vector:
            continue
        parts = [rows.column(f"v_{column}").cast(pa.float64(), safe=False).combine_chunks() for column in call.columns]
        missing = np.zeros(rows.num_rows, np.bool_)
        for part in parts:
            missing |= part.is_null().to_numpy(zero_copy_only=False)
        flat = np.column_stack([part.fill_null(0.0).to_numpy(zero_copy_only=False) for part in parts]).reshape(-1)
        offsets = pa.array(np.arange(rows.num_rows + 1) * len(parts), pa.int32())
        rows = rows.append_column(
            f"w_{output}", pa.ListArray.from_arrays(offsets, pa.array(flat), mask=pa.array(missing))
        )
    return rows


def describe(call: Call | EarlyTriggerCall) -> str:
    """The call as text, in the form in which a source file has it."""
    numbers = [f"{number:g}" for number in call.numbers]
    return f"{call.function}({', '.join([*call.columns, *numbers])})"
