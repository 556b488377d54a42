"""From the aggregates of a source file to those of the kernels: what they read, what they give, and their SQL types.

Columns in a worker's table are prefixed, so that no name of a source meets one of ours: `k_<column>` keys,
`v_<column>` values, `w_<output>` vectors made of several columns, `a_<output>` results.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from spark_jobs.kernels import windows as kernels
from spark_jobs.sources.calls import Aggregate as Call

VECTORS = ("vector_sum", "vector_mean")
_SQL_OF_ARROW = {
    pa.int64(): "BIGINT",
    pa.float64(): "DOUBLE",
    pa.string(): "STRING",
    pa.bool_(): "BOOLEAN",
    pa.timestamp("us", "UTC"): "TIMESTAMP",
    pa.date32(): "DATE",
}
_FUNCTIONS: dict[str, Any] = {
    "count": kernels.count,
    "sum": kernels.sum_,
    "avg": kernels.avg,
    "min": kernels.min_,
    "max": kernels.max_,
    "first": kernels.first,
    "last": kernels.last,
    "variance": kernels.variance,
    "stddev": kernels.stddev,
    "count_distinct": kernels.count_distinct,
    "approx_quantile": kernels.approx_quantile,
    "vector_sum": kernels.vector_sum,
    "vector_mean": kernels.vector_mean,
}


def kernel_aggregate(output: str, call: Call) -> kernels.Aggregate:
    """The kernel's aggregate for one output column of a source file."""
    if call.function == "collect":
        return kernels.collect(f"v_{call.columns[0]}", int(call.numbers[0]))
    if call.function in VECTORS:
        return _FUNCTIONS[call.function](f"w_{output}")
    return _FUNCTIONS[call.function](*[f"v_{column}" for column in call.columns], *call.numbers)


def columns_read(calls: Mapping[str, Call]) -> list[str]:
    """Columns of the file that aggregates read, each once."""
    return list(dict.fromkeys(column for call in calls.values() for column in call.columns))


def with_vectors(rows: pa.Table, calls: Mapping[str, Call]) -> pa.Table:
    """The rows with a column `w_<output>` per vector aggregate: null where any of its components is."""
    for output, call in calls.items():
        if call.function not in VECTORS:
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


def sql_type(arrow: pa.DataType) -> str:
    """The SQL type of a kernel's result."""
    if pa.types.is_list(arrow):
        return f"ARRAY<{sql_type(arrow.value_type)}>"
    if pa.types.is_struct(arrow):
        return f"STRUCT<{', '.join(f'{field.name}: {sql_type(field.type)}' for field in arrow)}>"
    if pa.types.is_decimal128(arrow):
        return f"DECIMAL({arrow.precision}, {arrow.scale})"
    return _SQL_OF_ARROW[arrow]


def described(call: Call) -> str:
    """The call as a source file writes it."""
    numbers = [f"{number:g}" for number in call.numbers]
    return f"{call.function}({', '.join([*call.columns, *numbers])})"
