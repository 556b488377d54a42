"""Conversion of the callers' data (lists, numpy, Arrow) into columns: exact, or refused."""

from __future__ import annotations

from collections.abc import Iterable
from operator import index
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_jobs.engine.corrections.columns import TIME_LIMIT, Times, Updates
from spark_jobs.engine.updates.refusals import MalformedUpdates, TimeOutOfRange
from spark_jobs.model import Frontier

_TIME, _INTEGER = np.dtype(np.uint64), np.dtype(np.int64)


def as_updates(data: Any, times: Any, diffs: Any) -> Updates:
    """Columns of int64 codes, uint64 times and int64 diffs from any integer columns of one length.

    Raises MalformedUpdates (lengths, types, nulls, diffs or codes beyond 64 bits) and TimeOutOfRange.
    """
    updates = Updates(as_times(times), as_integers(data, "data"), as_integers(diffs, "diffs"))
    require_equal_lengths(updates.data.shape[0], updates)
    return updates


def as_times(times: Any) -> Times:
    """`times` as uint64, without ever passing through a float."""
    column = _array(times, "times")
    if isinstance(column, np.ndarray):
        if column.dtype != np.uint64 and column.size and column.min() < 0:
            raise TimeOutOfRange(int(column.min()), TIME_LIMIT - 1)
        return _copy(column, np.uint64)
    numbers = _integers(column, "times")
    for time in numbers:
        if not 0 <= time < TIME_LIMIT:
            raise TimeOutOfRange(time, TIME_LIMIT - 1)
    return np.array(numbers, np.uint64)


def as_integers(values: Any, name: str) -> NDArray[np.int64]:
    """`values` as int64; raises MalformedUpdates for one that does not fit."""
    column = _array(values, name)
    try:
        if isinstance(column, np.ndarray):
            if column.dtype == np.uint64 and column.size and int(column.max()) >= 1 << 63:
                raise OverflowError
            return _copy(column, np.int64)
        return np.array(_integers(column, name), np.int64)
    except OverflowError:
        raise MalformedUpdates(
            expected=f"{name} within int64", found="a greater magnitude", next_step=f"give {name} that fit 64 bits"
        ) from None


def as_frontier(frontier: Frontier) -> Frontier:
    """`frontier` with a time of 0 .. 2^64 - 1 as a Python integer, or `[]`. Raises TimeOutOfRange."""
    time = frontier.time if isinstance(frontier, Frontier) else frontier
    if isinstance(frontier, Frontier) and (time is None or (type(time) is int and 0 <= time < TIME_LIMIT)):
        return frontier
    if isinstance(frontier, Frontier) and isinstance(time, np.integer) and time >= 0:
        return Frontier(int(time))
    raise TimeOutOfRange(time, TIME_LIMIT - 1)


def require_columns(updates: Updates) -> None:
    """Raise MalformedUpdates unless these are columns of one length, of the types that `as_updates` returns."""
    columns = updates if isinstance(updates, tuple) else ()
    if len(columns) == 3:
        times, data, diffs = columns
        typed = all(type(column) is np.ndarray for column in columns) and times.ndim == 1
        typed = typed and times.dtype == _TIME and data.dtype == _INTEGER and diffs.dtype == _INTEGER
        if typed and times.shape == data.shape == diffs.shape:
            return
    raise MalformedUpdates(
        expected="columns of one length: times as uint64, data and diffs as int64",
        found=", ".join(f"{getattr(c, 'dtype', type(c).__name__)} {getattr(c, 'shape', '')}" for c in columns)
        or type(updates).__name__,
        next_step="make them with as_updates",
    )


def require_equal_lengths(rows: int, updates: Updates) -> None:
    """Raise MalformedUpdates unless all columns have `rows` rows."""
    lengths = (rows, updates.times.shape[0], updates.diffs.shape[0])
    if len(set(lengths)) > 1:
        found = "data, times and diffs of {}, {} and {} rows".format(*lengths)
        raise MalformedUpdates(expected="columns of one length", found=found, next_step="give each update all three")


def _array(values: Any, name: str) -> NDArray[Any] | Iterable[Any]:
    """Arrow and numpy columns as a one-dimensional integer array; other values unchanged."""
    if isinstance(values, pa.Array | pa.ChunkedArray):
        if values.null_count:
            raise MalformedUpdates(
                expected=f"{name} without nulls", found=f"{values.null_count} nulls", next_step="leave these rows out"
            )
        values = values.to_numpy() if isinstance(values, pa.ChunkedArray) else values.to_numpy(zero_copy_only=False)
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise MalformedUpdates(
            expected=f"{name} without nulls", found="masked values", next_step="leave these rows out"
        )
    if isinstance(values, np.ndarray) and (values.ndim != 1 or values.dtype.kind not in "iu"):
        raise MalformedUpdates(
            expected=f"{name} as one column of integers",
            found=f"{values.ndim} × {values.dtype}",
            next_step=f"cast {name} to a column of integers",
        )
    return values


def _integers(values: Iterable[Any], name: str) -> list[int]:
    try:
        column = values if isinstance(values, list) else list(values)
        if bool in set(map(type, column)):
            raise TypeError("a bool")
        return [index(value) for value in column]
    except TypeError as error:
        raise MalformedUpdates(
            expected=f"{name} as integers", found=str(error), next_step=f"cast {name} to integers"
        ) from None


def _copy(column: NDArray[Any], dtype: type[Any]) -> NDArray[Any]:
    """The column in `dtype`, contiguous and writable: the compiled loops accept only such arrays."""
    column = np.ascontiguousarray(column, dtype)
    return column if column.flags.writeable else column.copy()
