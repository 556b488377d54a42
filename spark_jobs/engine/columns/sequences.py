"""The order of rows of one time in a source that declares a `sequence`: texts that sort as tuples of values do.

A text is made of a row's values in the declared columns, one after the other. A null is `0`, which sorts before every
value; a value is `1` and its hexadecimal digits. So texts compare byte by byte as the tuples do, in this process, in
files and in SQL.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Ints = npt.NDArray[np.int64]
Columns = Sequence[pa.Array | pa.ChunkedArray]

_NULL, _VALUE, _END = "0", "1", " "
"""`_END` follows the digits of a text value and sorts before every digit, so a text sorts before its extensions."""
_SIGN = np.uint64(1 << 63)


def sequence_texts(columns: Columns) -> pa.Array:
    """One text per row of these columns. There is at least one column, and all have one length; they are whole numbers,
    decimals, times, dates or texts.

    Raises:
        TypeError: a column of another type.
    """
    parts = [_texts(_flat(column)) for column in columns]
    return pc.binary_join_element_wise(*parts, "") if len(parts) > 1 else parts[0]


def tie_places(sequences: pa.Array, row_ids: Ints) -> Ints:
    """Per row, a number that orders rows by (sequence, row id); rows with both in common have the same number."""
    if not len(row_ids):
        return row_ids
    codes = pc.rank(sequences, sort_keys="ascending", tiebreaker="dense").to_numpy()
    order = np.lexsort((row_ids, codes))
    differs = (np.diff(codes[order].astype(np.int64)) != 0) | (np.diff(row_ids[order]) != 0)
    places = np.empty(len(order), np.int64)
    places[order] = np.append(0, np.cumsum(differs))
    return places


def _flat(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _texts(column: pa.Array) -> pa.Array:
    digits = _digits(pc.drop_null(column))
    if not column.null_count:
        return pc.binary_join_element_wise(_VALUE, digits, "")
    given = column.is_valid().to_numpy(zero_copy_only=False)
    place = np.where(given, np.cumsum(given) - 1, 0)
    texts = pc.binary_join_element_wise(_VALUE, digits, "").take(pa.array(place, mask=~given))
    return pc.fill_null(texts, _NULL)


def _digits(values: pa.Array) -> pa.Array:
    """Texts that sort as the values, which have no nulls; no text is the beginning of another."""
    kind = values.type
    if pa.types.is_decimal(kind):
        # the number of units of the last decimal place, 128 bits, shifted so that it is not negative
        shifted = [int(v.scaleb(kind.scale)) + (1 << 127) for v in values.to_pylist()]
        return pa.array([f"{number:032x}" for number in shifted], pa.string())
    if pa.types.is_string(kind):
        return pa.array([text.encode().hex() + _END for text in values.to_pylist()], pa.string())
    if pa.types.is_timestamp(kind) or pa.types.is_integer(kind):
        return _of_numbers(values.cast(pa.int64()))
    if pa.types.is_date32(kind):
        return _of_numbers(values.cast(pa.int32()).cast(pa.int64()))
    raise TypeError(f"expected whole numbers, decimals, times, dates or texts as a sequence, found {kind}")


def _of_numbers(values: pa.Array) -> pa.Array:
    numbers: npt.NDArray[Any] = values.to_numpy(zero_copy_only=False).view(np.uint64) ^ _SIGN
    digits = numbers.astype(">u8").tobytes().hex().encode()
    offsets = np.arange(len(numbers) + 1, dtype=np.int32) * 16
    return pa.StringArray.from_buffers(len(numbers), pa.py_buffer(offsets), pa.py_buffer(digits))
