"""From an Arrow table in any order to rows sorted by key and time; counts the rows that can't be in a window."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, fields
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit

from spark_jobs.errors import ParameterError

Ints = npt.NDArray[np.int64]
_DENSE = 8
"""Integers with a range of at most this many numbers per row get their codes from an array, not by hashing."""
NullValues = Literal["skip_row", "skip_value"]
"""Treatment of a null in a column that an aggregate reads: the row counts nowhere, or only this aggregate passes over
it (as in SQL)."""


@dataclass(frozen=True)
class SkippedRows:
    """Numbers of rows that count in no window, each under the first reason that applies; `late_rows` are late for all
    their windows."""

    null_key: int = 0
    null_time: int = 0
    null_value: int = 0
    negative_time: int = 0
    late_rows: int = 0

    def __add__(self, other: SkippedRows) -> SkippedRows:
        return SkippedRows(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))


@dataclass(frozen=True)
class SortedRows:
    """The rows of `table` that can count: row `i` is the table's row `order[i]`, at `times[i]`, of key `group[i]`.

    `keys` has one row per key, ascending; key k has the rows `offsets[k] .. offsets[k+1]-1`. Times are in ticks.
    """

    table: pa.Table
    order: Ints
    keys: pa.Table
    offsets: Ints
    times: Ints
    time_type: pa.DataType
    skipped: SkippedRows
    left_out: dict[str, pa.Table] = field(default_factory=dict)
    """The rows that can't count, by reason."""
    in_place: bool = False
    """True if `order` is 0, 1, 2, …: the table was sorted already."""

    @property
    def group(self) -> Ints:
        """Per row, the number of its key."""
        return np.repeat(np.arange(self.offsets.size - 1, dtype=np.int64), np.diff(self.offsets))

    def ticks(self, column: str | None) -> Ints | None:
        """An integer or timestamp column as int64, in row order; None for no column."""
        return None if column is None else as_ticks(pa.chunked_array([self.column(column)]))

    def places(self, *columns: str | None) -> Ints | None:
        """int64 numbers, in row order, that sort as the values of these columns: by the first column first, nulls
        first. None without a column."""
        keys = [order_keys(self.column(column)) for column in columns if column is not None]
        if len(keys) < 2:
            return keys[0] if keys else None
        order = np.lexsort(keys[::-1])
        places = np.empty(order.size, np.int64)
        places[order] = np.cumsum(np.logical_or.reduce([_changes(key[order]) for key in keys]))
        return places

    def column(self, name: str, taken: Ints | None = None) -> pa.Array:
        """The values of a column in row order, for all rows or for those with the numbers `taken`."""
        values = _flat(self.table.column(name))
        if taken is not None:
            return values.take(pa.array(taken if self.in_place else self.order[taken]))
        return values if self.in_place else values.take(pa.array(self.order))

    def rows_from(self, first: int) -> pa.Table:
        """The rows from number `first` on, as a table in row order."""
        return self.table.slice(first) if self.in_place else self.table.take(pa.array(self.order[first:]))


def writable(values: pa.Array | pa.ChunkedArray) -> npt.NDArray[Any]:
    """Numbers without nulls as a writable array. For Arrow's read-only arrays numba would compile each kernel anew."""
    return np.require(values.to_numpy(zero_copy_only=False), requirements=["C", "W"])


def as_ticks(column: pa.ChunkedArray) -> Ints:
    """An integer or timestamp column as int64 in units of its own resolution; nulls become arbitrary values."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    elif not pa.types.is_integer(column.type):
        raise ParameterError(
            expected="an integer or timestamp column", found=str(column.type), parameter="time", type=str(column.type)
        )
    flat = column.cast(pa.int64()).combine_chunks()
    if flat.null_count:
        flat = flat.fill_null(0)
    return writable(flat)


def order_keys(values: pa.Array) -> Ints:
    """int64 numbers that sort as the values: nulls first, NaN after every number, -0.0 before 0.0, strings by code
    point."""
    if values.null_count:
        places = np.zeros(len(values), np.int64)
        present = values.is_valid().to_numpy(zero_copy_only=False)
        places[present] = np.unique(order_keys(values.drop_null()), return_inverse=True)[1] + 1
        return places
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.int8())
    if pa.types.is_floating(values.type):
        numbers = values.cast(pa.float64()).to_numpy(zero_copy_only=False)
        bits = np.where(np.isnan(numbers), np.nan, numbers).view(np.int64)
        return bits ^ ((bits >> 63) & np.int64(0x7FFFFFFFFFFFFFFF))
    if pa.types.is_timestamp(values.type) or pa.types.is_date64(values.type) or pa.types.is_time64(values.type):
        values = values.cast(pa.int64())
    if pa.types.is_integer(values.type) and not pa.types.is_uint64(values.type):
        return writable(values.cast(pa.int64()))
    if pa.types.is_nested(values.type):
        return _number(values.to_pylist())[0]
    return encode(values)[0]


def encode(values: pa.Array) -> tuple[Ints, pa.Array]:
    """Values as codes into their distinct values in ascending order. No nulls; -0.0 is 0.0, and NaN is one value."""
    if pa.types.is_floating(values.type):
        values = pc.add(values, pa.scalar(0.0, values.type))
        values = pc.if_else(pc.is_nan(values), pa.scalar(math.nan, values.type), values)
    if pa.types.is_nested(values.type):
        plain = [_with_one_zero(value) for value in values.to_pylist()]
        codes, rows = _number(plain)
        return codes, pa.array([plain[row] for row in rows], values.type)
    if pa.types.is_integer(values.type) and not pa.types.is_uint64(values.type) and len(values):
        numbers = writable(values.cast(pa.int64()))
        least = int(numbers.min())
        width = int(numbers.max()) - least + 1
        if width <= _DENSE * len(values):
            codes, distinct = _dense_codes(numbers, least, width)
            return codes, pa.array(distinct).cast(values.type)
    encoded = values.dictionary_encode()
    ascending = pc.sort_indices(encoded.dictionary)
    rank = np.empty(len(ascending), np.int64)
    rank[ascending.to_numpy()] = np.arange(len(ascending))
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    return rank[codes] if rank.size else np.empty(0, np.int64), encoded.dictionary.take(ascending)


@njit(cache=True, nogil=True)
def _dense_codes(numbers: Ints, least: int, width: int) -> tuple[Ints, Ints]:
    """Codes of numbers from `least` to `least + width - 1`, and the distinct numbers in ascending order."""
    code = np.full(width, -1, np.int64)
    for row in range(numbers.size):
        code[numbers[row] - least] = 0
    distinct = np.empty(min(width, numbers.size), np.int64)
    n = 0
    for place in range(width):
        if code[place] == 0:
            code[place] = n
            distinct[n] = place + least
            n += 1
    codes = np.empty(numbers.size, np.int64)
    for row in range(numbers.size):
        codes[row] = code[numbers[row] - least]
    return codes, distinct[:n]


def _number(values: list[Any]) -> tuple[Ints, list[int]]:
    """The number of each nested value, in the order of the values' texts, and for each number a row that has it."""
    texts = [repr(value) for value in values]
    seen = {text: row for row, text in enumerate(texts)}
    number = {text: place for place, text in enumerate(sorted(seen))}
    return np.array([number[text] for text in texts], np.int64), [seen[text] for text in number]


def _with_one_zero(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _with_one_zero(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_with_one_zero(part) for part in value]
    return value + 0.0 if isinstance(value, float) else value


def _flat(column: pa.ChunkedArray) -> pa.Array:
    flat = column.combine_chunks()
    return flat.combine_chunks() if isinstance(flat, pa.ChunkedArray) else flat


def group_rows(table: pa.Table, key: list[str]) -> tuple[Ints, pa.Table]:
    """The number of each row's key, and the distinct keys in ascending order (first column first). No nulls."""
    codes: Ints = np.zeros(table.num_rows, np.int64)
    parts: list[Ints] = []
    uniques: list[pa.Array] = []
    for name in key:
        column_codes, values = encode(_flat(table.column(name)))
        # codes of whole keys stay below the number of rows, so the product stays below 2**63
        codes, pairs = encode(pa.array(codes * max(len(values), 1) + column_codes))
        pair = pairs.to_numpy(zero_copy_only=False)
        previous, code = pair // max(len(values), 1), pair % max(len(values), 1)
        parts = [part[previous] for part in parts] + [code]
        uniques.append(values)
    columns = [values.take(pa.array(part)) for values, part in zip(uniques, parts, strict=True)]
    return codes, pa.table(columns, names=key)


def sorted_order(codes: Ints, times: Ints) -> Ints | None:
    """The permutation that sorts by (code, time); None if the rows are sorted already."""
    if times.size < 2:
        return None
    ascending = (codes[1:] > codes[:-1]) | ((codes[1:] == codes[:-1]) & (times[1:] >= times[:-1]))
    if ascending.all():
        return None
    least, greatest = int(times.min()), int(times.max())
    places = (int(codes.max()) + 1) * (greatest - least + 1)
    if places >= 2**63:
        return np.lexsort((times, codes))
    place = codes * np.int64(greatest - least + 1) + (times - least)
    bits = int(times.size - 1).bit_length()
    if places >> (63 - bits):
        return np.argsort(place)
    # numbers sort several times faster than their permutation, so the row's number is put in the low bits
    packed = (place << bits) | np.arange(times.size, dtype=np.int64)
    packed.sort()
    return packed & ((1 << bits) - 1)


def settle_ties(group: Ints, times: Ints, columns: Iterable[pa.Array | Ints | None]) -> Ints:
    """The permutation that sorts rows by (group, time) and then by these columns, by the first one first.

    A column is read only for rows that are equal in all columns before it. None stands for a missing column.
    """
    order = np.arange(times.size, dtype=np.int64)
    if np.any((group[1:] == group[:-1]) & (times[1:] < times[:-1])):
        order = np.lexsort((times, group))
    places, run = _tie(np.arange(times.size), _changes(group[order]) | _changes(times[order]))
    for column in columns:
        if not places.size:
            break
        if column is None:
            continue
        rows = order[places]
        keys = column[rows] if isinstance(column, np.ndarray) else order_keys(column.take(pa.array(rows)))
        by = np.lexsort((keys, run))
        order[places] = rows[by]
        places, run = _tie(places, _changes(run) | _changes(keys[by]))
    return order


def _changes(values: Ints) -> npt.NDArray[np.bool_]:
    """True for each value that differs from the value before, and for the first."""
    return np.append([True], values[1:] != values[:-1])[: values.size]


def _tie(places: Ints, opens: npt.NDArray[np.bool_]) -> tuple[Ints, Ints]:
    """The places in runs of several rows, and the number of each place's run. Runs begin where `opens` is True."""
    alone = opens & np.append(opens[1:], True)[: opens.size]
    return places[~alone], np.cumsum(opens)[~alone]


def _mask(table: pa.Table, columns: Collection[str]) -> pa.Array | None:
    """Booleans of the rows without a null in these columns; None: all rows."""
    valid = None
    for name in columns:
        column = table.column(name)
        if column.null_count:
            valid = column.is_valid() if valid is None else pc.and_(valid, column.is_valid())
    return valid


def able_rows(
    table: pa.Table, key: list[str], time: str, required: Collection[str], drop_negative: bool
) -> tuple[pa.Table, dict[str, pa.Table]]:
    """The rows of a table that can count, and those that can't, by the first reason that applies.

    Args:
        required: columns in which a null keeps the row out of every window.
        drop_negative: leave out rows with a time before 0.
    """
    left_out: dict[str, pa.Table] = {}
    for reason, columns in (("null_key", key), ("null_time", [time]), ("null_value", required)):
        valid = _mask(table, columns)
        if valid is not None:
            left_out[reason] = table.filter(pc.invert(valid))
            table = table.filter(valid)
    if drop_negative:
        early = as_ticks(table.column(time)) < 0
        if early.any():
            left_out["negative_time"] = table.filter(pa.array(early))
            table = table.filter(pa.array(~early))
    return table, left_out


def sort_rows(
    table: pa.Table,
    *,
    key: list[str],
    time: str,
    required: Collection[str] = (),
    drop_negative: bool = False,
    placed: str | None = None,
) -> SortedRows:
    """Sort a table by key and time. Rows that can't count are left out and counted.

    Args:
        required, drop_negative: the rows that can't count, see `able_rows`.
        placed: the column of times to sort by, if that is not `time` itself.
    """
    table, left_out = able_rows(table, key, time, required, drop_negative)
    ticks = as_ticks(table.column(placed or time))
    codes, keys = group_rows(table, key)
    order = sorted_order(codes, ticks)
    in_place = order is None
    if order is None:
        order = np.arange(ticks.size, dtype=np.int64)
    else:
        codes, ticks = codes[order], ticks[order]
    offsets = np.searchsorted(codes, np.arange(keys.num_rows + 1)).astype(np.int64)
    skipped = SkippedRows(**{reason: rows.num_rows for reason, rows in left_out.items()})
    time_type = table.schema.field(time).type
    return SortedRows(table, order, keys, offsets, ticks, time_type, skipped, left_out, in_place)
