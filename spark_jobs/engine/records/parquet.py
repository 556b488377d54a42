"""Parquet files as rows and rejects: columns of a fitting type are taken as they are, all others are read as text.

A Parquet value is refused for the same reasons as a text in CSV or JSON: a float in an int or a decimal column, NaN, an
instant beyond year 9999, a time of day in a date column. Instants are cut off to microseconds, as those in text.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import IO, Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spark_jobs.engine.records import decimals, times, tokens
from spark_jobs.engine.records.erased import ERASED
from spark_jobs.engine.records.headers import FileRejectedError, check_lines, check_present, empty_file
from spark_jobs.engine.records.rejects import Reject, RejectCounter
from spark_jobs.engine.records.rows import add_notes, assemble, mark, mark_mentions, reason_of, row_parts
from spark_jobs.engine.records.rules import BAD_VALUE, NUMBER, rule_name
from spark_jobs.engine.records.spec import EXTRA, ColumnSpec, RecordSpec
from spark_jobs.engine.records.values import Values, read_column, settle_decimals, settle_times

_MAX_RECORDS, _MAX_CELLS = 1 << 16, 1 << 22
_TICKS_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def read_parquet(file: IO[bytes], spec: RecordSpec) -> Iterator[pa.RecordBatch]:
    """The rows of a Parquet file (seekable) as batches of `spec.schema()`, each of a bounded number of rows.

    `line` is the number of the row, from 1. Raises FileRejectedError (`empty_file`, `unreadable_file`,
    `duplicate_header`, `columns_missing`, `too_many_lines`), also after some batches: then no row of the file counts.
    """
    line, counter = 1, RejectCounter(spec)
    for batch in _file_batches(file, spec):
        yield _rows_of_batch(batch, spec, line, counter)
        line += batch.num_rows
        check_lines(line - 1, spec)
    yield from counter.ranges()


def _file_batches(file: IO[bytes], spec: RecordSpec) -> Iterator[pa.RecordBatch]:
    try:
        if not file.read(1):
            raise empty_file()
        file.seek(0)
        # Arrow reads INT96 as nanoseconds by default, in which times outside the years 1677 to 2262 wrap
        opened = pq.ParquetFile(pa.PythonFile(file, mode="r"), coerce_int96_timestamp_unit="us")
        nothing = pa.RecordBatch.from_pylist([], opened.schema_arrow)
        names = [name for name, _ in _open_structures(nothing, spec.opened)]
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            found = f"{', '.join(map(repr, repeated))} again"
            raise FileRejectedError("duplicate_header", expected="each column once in the schema", found=found)
        check_present(names, spec)
        yield from opened.iter_batches(batch_size=max(1, min(_MAX_RECORDS, _MAX_CELLS // max(len(names), 1))))
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        found = f"one that does not read: {' '.join(str(error).split())[:200]}"
        raise FileRejectedError("unreadable_file", expected="a whole Parquet file", found=found) from None


def _rows_of_batch(batch: pa.RecordBatch, spec: RecordSpec, first_line: int, counter: RejectCounter) -> pa.RecordBatch:
    count = batch.num_rows
    rules, arguments = np.zeros(count, np.int16), np.zeros(count, np.int32)
    arrays = {}
    declared = {column.header for column in spec.columns}
    for name, array in _open_structures(batch, spec.opened):
        arrays[name], no_text = _plain(array, as_text=name in declared)
        mark(rules, arguments, no_text * NUMBER["bad_utf8"], 0)
    unknown = [name for name in arrays if name not in declared]
    if spec.unknown_columns != "keep":
        mark(rules, arguments, np.full(count, NUMBER["unknown_column"] if unknown else 0), 0)
    columns: list[Values] = []
    for place, column in enumerate(spec.columns):
        array = arrays.get(column.header, pa.nulls(count))
        columns.append(_read_array(column, array, rules == 0))
        mark(rules, arguments, columns[-1].rules, place)
    parts = row_parts(columns, spec, rules, arguments)
    extra = _extra(arrays, unknown, columns, rules == 0)
    lines = np.arange(first_line, first_line + count)
    mark_mentions(spec, rules, lambda index: json.dumps(_record(arrays, index), ensure_ascii=False))
    rejects = counter.keep(rules, lines, lambda index: _reject(arrays, spec, rules, arguments, index))
    return assemble(spec, lines, rules == 0, parts, columns, extra, rejects)


def _open_structures(batch: pa.RecordBatch, opened: frozenset[str]) -> Iterator[tuple[str, pa.Array]]:
    """The columns of a batch with their names. A structure that contains a declared column is replaced by its fields,
    named `structure.field`."""
    for name, array in zip(batch.schema.names, batch.columns, strict=True):
        if name not in opened or not pa.types.is_struct(array.type):
            yield name, array
            continue
        fields = pa.RecordBatch.from_arrays(array.flatten(), [f"{name}.{field.name}" for field in array.type])
        yield from _open_structures(fields, opened)


def _plain(array: pa.Array, *, as_text: bool) -> tuple[pa.Array, np.ndarray]:
    """The array without a dictionary or an extension, and flags of its texts that are not UTF-8, which are escaped:
    writers need not check that. `as_text`: bytes are taken as text, as writers may not mark it."""
    if isinstance(array, pa.ExtensionArray):
        is_uuid = array.type.extension_name == "arrow.uuid"
        array = array.storage
        if is_uuid:
            ids = [None if value is None else str(UUID(bytes=value)) for value in array.to_pylist()]
            array = pa.array(ids, pa.string())
    array = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
    array = array.cast(pa.large_string()) if pa.types.is_string_view(array.type) else array
    no_text = np.zeros(len(array), bool)
    if as_text and (pa.types.is_binary(array.type) or pa.types.is_large_binary(array.type) or _is_fixed(array.type)):
        array = pa.Array.from_buffers(pa.large_string(), len(array), array.cast(pa.large_binary()).buffers())
    if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
        try:
            array.validate(full=True)
        except pa.ArrowInvalid:
            values = array.cast(pa.large_binary()).to_pylist()
            texts = [None if value is None else value.decode("utf-8", "backslashreplace") for value in values]
            no_text[:] = [
                text is not None and text.encode() != value for text, value in zip(texts, values, strict=True)
            ]
            array = pa.array(texts, pa.string())
    return array, no_text


def _is_fixed(kind: pa.DataType) -> bool:
    return bool(pa.types.is_fixed_size_binary(kind) and not pa.types.is_decimal(kind))


def _read_array(column: ColumnSpec, array: pa.Array, good: np.ndarray) -> Values:
    """The values of a column of the file, in the type that the source declares."""
    kind = array.type
    present = good & array.is_valid().to_numpy(zero_copy_only=False)
    values = Values(column, present, np.zeros(len(array), np.int16), np.zeros(0))
    if column.type == "int" and pa.types.is_signed_integer(kind):
        values.numbers = _numpy(array, pa.int64())
    elif column.type == "float" and (pa.types.is_floating(kind) or pa.types.is_integer(kind)):
        values.numbers = _numpy(array, pa.float64())
        values.rules[present & ~np.isfinite(values.numbers)] = BAD_VALUE["float"]
    elif column.type == "bool" and pa.types.is_boolean(kind):
        values.numbers = _numpy(array, pa.bool_())
    elif column.digits is not None and pa.types.is_decimal128(kind):
        values.numbers, how = np.zeros((len(array), 2), np.int64), np.zeros(len(array), np.uint8)
        words = np.frombuffer(array.buffers()[1], np.int64).reshape(-1, 2)[array.offset :][: len(array)].copy()
        decimals.rescale(words, kind.scale, present, *column.digits, values.numbers, how)
        settle_decimals(values, how)
    elif column.digits is not None and pa.types.is_floating(kind):
        # a float is not an exact decimal, even if it prints with few digits
        values.numbers = np.zeros((len(array), 2), np.int64)
        values.rules[present] = BAD_VALUE["decimal"]
    elif column.type in ("timestamp", "date") and (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
        _read_times(values, array)
    elif column.type == "string" and (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        _take_strings(values, array.cast(pa.string()))
    else:
        return _read_as_text(column, array, good)
    return values


def _take_strings(values: Values, texts: pa.Array) -> None:
    """Set `values` to the texts as they are, with null for null values and for rows that are not `present`."""
    if values.column.null_values:
        is_null = pc.is_in(texts, value_set=pa.array(values.column.null_values, pa.string()))
        values.present &= ~is_null.to_numpy(zero_copy_only=False)
    absent = not values.present.all()
    values.strings = pc.if_else(pa.array(values.present), texts, pa.scalar(None, pa.string())) if absent else texts


def _numpy(array: pa.Array, kind: pa.DataType) -> np.ndarray:
    filled = pc.fill_null(array, pa.scalar(0).cast(array.type)) if array.null_count else array
    return filled.cast(kind, safe=False).to_numpy(zero_copy_only=False)


def _read_times(values: Values, array: pa.Array) -> None:
    kind = array.type
    if pa.types.is_date(kind):
        days = _numpy(array.cast(pa.date32()).cast(pa.int32()), pa.int64())
        ticks, per_second, how = days * 86_400, 1, times.LOCAL
    else:
        ticks, per_second = _numpy(array.cast(pa.int64()), pa.int64()), _TICKS_PER_SECOND[kind.unit]
        how = times.LOCAL if kind.tz is None else times.READ
    seconds, remainder = ticks // per_second, ticks % per_second
    inside = (seconds >= times.LEAST_US // 1_000_000) & (seconds <= times.GREATEST_US // 1_000_000)
    if values.column.type == "date":
        inside &= (seconds % 86_400 == 0) & (remainder == 0)
    micros = remainder // 1_000 if per_second == 10**9 else remainder * (1_000_000 // per_second)
    instants = np.where(inside, seconds * 1_000_000 * inside + micros, 0)
    settle_times(values, instants, np.where(values.present & ~inside, times.BAD, how).astype(np.uint8))


def _read_as_text(column: ColumnSpec, array: pa.Array, good: np.ndarray) -> Values:
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    is_text = pa.types.is_string(array.type) or pa.types.is_large_string(array.type)
    kind = tokens.NESTED if pa.types.is_nested(array.type) else tokens.TEXT if is_text else tokens.LITERAL
    kinds = np.where(valid, kind, tokens.NULL).astype(np.uint8)
    texts = array.cast(pa.string()) if is_text else pa.array(_texts(array), pa.string())
    _, offsets, data = texts.buffers()
    bounds = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    bytes_ = np.frombuffer(data, np.uint8) if data else np.empty(0, np.uint8)
    bytes_.setflags(write=False)  # read-only as batches of the scanners: a writable array would be compiled for anew
    return read_column(column, bytes_, bounds[:-1].copy(), bounds[1:].copy(), kinds, good)


def column_texts(array: pa.Array) -> list[str | None]:
    """Each value of a declared column as the text that the column's readers take; None for a null."""
    return _texts(_plain(array, as_text=True)[0])


def _texts(array: pa.Array) -> list[str | None]:
    """Each value as text: strings as they are, numbers as they print, nested values as JSON; None for a null."""
    if pa.types.is_null(array.type):
        return [None] * len(array)
    if pa.types.is_decimal(array.type):
        # Arrow prints small ones with an exponent
        return [None if value is None else f"{value:f}" for value in array.to_pylist()]
    if pa.types.is_integer(array.type) or pa.types.is_string(array.type):
        return array.cast(pa.string()).to_pylist()
    return [_text_of(scalar) if scalar.is_valid else None for scalar in array]


def _text_of(scalar: Any) -> str:
    try:
        value = scalar.as_py()
    except (ValueError, OverflowError, LookupError, pa.ArrowException):
        # an instant without a datetime or a zone in Python, or text inside a nested value that is not UTF-8
        if pa.types.is_temporal(scalar.type):
            return f"{scalar.value} {scalar.type}"  # with its type, so that it is not read as a number
        return " ".join(pa.repeat(scalar, 1).to_string().split())
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)


def _extra(arrays: dict[str, pa.Array], unknown: list[str], columns: list[Values], good: np.ndarray) -> pa.Array:
    if not unknown and not any(values.notes for values in columns):
        nothing = pa.array([], pa.string())
        return pa.MapArray.from_arrays(
            pa.array(np.zeros(len(good) + 1, np.int32)), nothing, nothing, mask=pa.array(~good), type=EXTRA
        )
    texts = {name: _texts(arrays[name]) for name in unknown}
    maps: list[list[tuple[str, str | None]] | None] = [
        [(name, texts[name][index]) for name in unknown] if good[index] else None for index in range(len(good))
    ]
    return pa.array(add_notes(maps, columns), EXTRA)


def _record(arrays: dict[str, pa.Array], index: int) -> dict[str, str | None]:
    return {name: _texts(array.slice(index, 1))[0] for name, array in arrays.items()}


def _reject(
    arrays: dict[str, pa.Array], spec: RecordSpec, rules: np.ndarray, arguments: np.ndarray, index: int
) -> Reject:
    row = _record(arrays, index)
    number, argument = int(rules[index]), int(arguments[index])
    unknown = arrays.keys() - {column.header for column in spec.columns}
    reason = reason_of(number, argument, spec, row.get(spec.columns[argument].header) or "", len(arrays), unknown)
    return rule_name(number, spec), reason, None if number == NUMBER[ERASED] else json.dumps(row, ensure_ascii=False)
