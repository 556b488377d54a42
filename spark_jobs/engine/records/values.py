"""Typed values of one column, from cells or from an Arrow column, with the rule that each unreadable value breaks."""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.engine.records import decimals, numbers, times, tokens
from spark_jobs.engine.records.numbers import Bytes, Flags, Ints
from spark_jobs.engine.records.rules import BAD_VALUE, NUMBER
from spark_jobs.engine.records.spec import ColumnSpec

NOTE_PREFIX = "@dst:"
"""Prefix of a key in a row's `extra`, `@dst:<column>`: that column's local time was resolved by the declared rule."""
_DECIMAL_RULES = {
    decimals.BAD: "bad_decimal",
    decimals.OVERFLOW: "decimal_overflow",
    decimals.INEXACT: "inexact_decimal",
}


@dataclass
class Values:
    """A column of a batch: its values, flags of the records that have one (`present`), and the rule that each value
    breaks (`rules`; 0: none).

    `numbers` are int64, float64 or bool: for a timestamp or date the instant in microseconds, for a decimal two int64
    words each, see `decimals`. Texts are in `strings`; `days` are those of a date column, since 1970. `notes` has, by
    record, how a local time was resolved that its zone has twice or not at all.
    """

    column: ColumnSpec
    present: np.ndarray
    rules: np.ndarray
    numbers: np.ndarray
    strings: pa.Array | None = None
    days: np.ndarray | None = None
    notes: dict[int, str] | None = None

    def array(self, good: np.ndarray) -> pa.Array:
        """The Arrow column; null where there is no readable value or the record is not `good`."""
        is_valid = self.present & good & (self.rules == 0)
        if self.strings is not None:
            all_shown = bool((is_valid | ~self.present).all())
            return (
                self.strings
                if all_shown
                else pc.if_else(pa.array(is_valid), self.strings, pa.scalar(None, pa.string()))
            )
        kind = self.column.arrow
        if pa.types.is_decimal(kind):
            buffers = [pa.py_buffer(np.packbits(is_valid, bitorder="little")), pa.py_buffer(self.numbers)]
            return pa.Array.from_buffers(kind, len(is_valid), buffers)
        return pa.array(self.numbers if self.days is None else self.days.astype(np.int32), kind, mask=~is_valid)


@numba.njit(cache=True, nogil=True)
def _find_nulls(
    buf: Bytes, starts: Ints, ends: Ints, kinds: Bytes, null_bytes: Bytes, null_bounds: Ints, live: Flags
) -> None:
    """Set `live` to False for the text cells that are one of the null values."""
    for i in range(len(starts)):
        if live[i] and kinds[i] == tokens.TEXT:
            for value in range(len(null_bounds) - 1):
                first, size = null_bounds[value], null_bounds[value + 1] - null_bounds[value]
                if size != ends[i] - starts[i]:
                    continue
                same = True
                for index in range(size):
                    if buf[starts[i] + index] != null_bytes[first + index]:
                        same = False
                        break
                if same:
                    live[i] = False
                    break


@numba.njit(cache=True, nogil=True)
def gather(buf: Bytes, starts: Ints, ends: Ints, live: Flags, offsets: Ints, out: Bytes) -> None:
    """Copy the bytes of the live cells into `out`, where cell `i` begins at `offsets[i]`."""
    for i in range(len(starts)):
        if live[i]:
            at = offsets[i]
            for index in range(ends[i] - starts[i]):
                out[at + index] = buf[starts[i] + index]


def gather_strings(data: np.ndarray, starts: np.ndarray, ends: np.ndarray, live: np.ndarray) -> pa.Array:
    """The cells as a string array, null where not `live`. The bytes must be UTF-8."""
    offsets = np.zeros(len(starts) + 1, np.int32)
    np.cumsum(np.where(live, ends - starts, 0), out=offsets[1:])
    out = np.empty(int(offsets[-1]), np.uint8)
    gather(data, starts, ends, live, offsets, out)
    validity = pa.py_buffer(np.packbits(live, bitorder="little"))
    return pa.StringArray.from_buffers(len(starts), pa.py_buffer(offsets), pa.py_buffer(out), validity)


def read_column(
    column: ColumnSpec, data: np.ndarray, starts: np.ndarray, ends: np.ndarray, kinds: np.ndarray, good: np.ndarray
) -> Values:
    """Read the cells of a column in the records that are `good` so far."""
    present = good & (kinds != tokens.ABSENT) & (kinds != tokens.NULL)
    if column.null_values:
        texts = [value.encode() for value in column.null_values]
        null_bytes = np.frombuffer(b"".join(texts), np.uint8)
        _find_nulls(data, starts, ends, kinds, null_bytes, np.cumsum([0, *map(len, texts)]), present)
    rules = np.where(present & (kinds == tokens.NESTED), NUMBER["nested_value"], 0).astype(np.int16)
    values = Values(column, present, rules, np.zeros(0))
    live = present & (rules == 0)
    if column.type == "string":
        rules[live & (kinds != tokens.TEXT) & ~_whole_numbers(data, starts, ends, kinds, live)] = NUMBER["bad_string"]
        values.strings = gather_strings(data, starts, ends, present & (rules == 0))
        return values
    if column.type in ("timestamp", "date"):
        _read_times(values, data, starts, ends, live)
        return values
    if (column.decimal, column.thousands) != (".", ""):
        data, starts, ends = _plain_numbers(column, data, starts, ends, live & (kinds == tokens.TEXT))
    if column.digits is not None:
        values.numbers, how = np.zeros((len(starts), 2), np.int64), np.zeros(len(starts), np.uint8)
        decimals.read_decimals(data, starts, ends, live, *column.digits, values.numbers, how)
        settle_decimals(values, how)
    else:
        _read_numbers(values, data, starts, ends, live)
    return values


def _plain_numbers(
    column: ColumnSpec, data: np.ndarray, starts: np.ndarray, ends: np.ndarray, live: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The data and the cells' bounds, with the `live` numbers rewritten for the readers: with a point and without marks
    between thousands. A cell that is not a number with the column's marks becomes one that no reader accepts."""
    if column.type == "bool":
        return data, starts, ends
    sizes = np.where(live, ends - starts, 0)
    offsets = len(data) + np.concatenate([[0], np.cumsum(sizes)])
    added = np.zeros(int(sizes.sum()), np.uint8)
    new_starts, new_ends = starts.astype(np.int64), ends.astype(np.int64)
    thousands = ord(column.thousands) if column.thousands else -1
    numbers.plain_numbers(
        data, starts, ends, live, ord(column.decimal), thousands, offsets - len(data), added, new_ends
    )
    new_starts[live] = offsets[:-1][live]
    new_ends[live] += offsets[:-1][live]
    both = np.concatenate([data, added])
    both.setflags(write=False)  # read-only as every batch: the kernels would be compiled anew for a writable array
    return both, new_starts.astype(starts.dtype), new_ends.astype(ends.dtype)


def _whole_numbers(
    data: np.ndarray, starts: np.ndarray, ends: np.ndarray, kinds: np.ndarray, live: np.ndarray
) -> np.ndarray:
    """Flags of the JSON numbers without point and exponent. A text column takes them as they are written, since each
    has one spelling."""
    literal = live & (kinds == tokens.LITERAL)
    if not literal.any():
        return literal
    how = np.full(len(starts), numbers.BAD, np.uint8)
    numbers.find_digits(data, starts, ends, literal, how)
    return literal & (how == numbers.READ)


def settle_decimals(values: Values, how: np.ndarray) -> None:
    """Set the rules that decimals break, by the outcomes `how` of reading them; see `decimals`."""
    for outcome, rule in _DECIMAL_RULES.items():
        values.rules[how == outcome] = NUMBER[rule]


def _read_numbers(values: Values, data: np.ndarray, starts: np.ndarray, ends: np.ndarray, live: np.ndarray) -> None:
    kind = values.column.type
    how = np.zeros(len(starts), np.uint8)
    if kind == "int":
        values.numbers = np.zeros(len(starts), np.int64)
        numbers.read_ints(data, starts, ends, live, values.numbers, how)
        values.rules[how == numbers.OVERFLOW] = NUMBER["int_overflow"]
    elif kind == "float":
        values.numbers = np.zeros(len(starts), np.float64)
        numbers.read_floats(data, starts, ends, live, values.numbers, how)
        for index in np.flatnonzero(how == numbers.SLOW):
            number = float(data[starts[index] : ends[index]].tobytes())
            values.numbers[index] = number
            how[index] = numbers.READ if np.isfinite(number) else numbers.BAD
    else:
        values.numbers = np.zeros(len(starts), bool)
        numbers.read_bools(data, starts, ends, live, values.numbers, how)
    values.rules[how == numbers.BAD] = BAD_VALUE[kind]


def _read_times(values: Values, data: np.ndarray, starts: np.ndarray, ends: np.ndarray, live: np.ndarray) -> None:
    column, count = values.column, len(starts)
    instants, how = np.zeros(count, np.int64), np.full(count, times.BAD, np.uint8)
    how[~live] = times.READ
    for form in column.time_formats:
        unread = live & (how == times.BAD)
        if form in times.EPOCH_POWERS:
            times.read_epochs(data, starts, ends, unread, times.EPOCH_POWERS[form], instants, how)
        elif form == "iso":
            read = times.read_dates if column.type == "date" else times.read_instants
            read(data, starts, ends, unread, instants, how)
        else:
            _read_patterns(data, starts, ends, unread, form, instants, how)
    settle_times(values, instants, how)


def _read_patterns(
    data: np.ndarray, starts: np.ndarray, ends: np.ndarray, live: np.ndarray, pattern: str,
    instants: np.ndarray, how: np.ndarray,
) -> None:  # fmt: skip
    results: dict[bytes, tuple[int, int]] = {}
    for index in np.flatnonzero(live):
        text = data[starts[index] : ends[index]].tobytes()
        if text not in results:
            results[text] = times.read_pattern(text.decode(), pattern)
        instants[index], how[index] = results[text]


def settle_times(values: Values, instants: np.ndarray, how: np.ndarray) -> None:
    """Set the `values` to the `instants` that were read, with local times resolved as the column declares, and set the
    rules that they break. `how`: the outcomes of reading, see `times`."""
    column = values.column
    if column.type == "date":
        instants = instants - instants % times.DAY_US
        values.days = instants // times.DAY_US
        how = np.where(how == times.BAD, how, times.LOCAL)
    local = (how == times.LOCAL) & values.present
    earliest, latest, change = times.resolve_local(instants, local, column.timezone)
    values.numbers = latest if column.dst == "latest" else earliest
    outside = (values.numbers < times.LEAST_US) | (values.numbers > times.GREATEST_US)
    values.rules[(how == times.BAD) | (values.present & outside)] = BAD_VALUE[column.type]
    values.numbers[outside] = 0
    changed = np.flatnonzero((change != times.READ) & (values.rules == 0))
    for index in changed:
        twice = change[index] == times.AMBIGUOUS
        if column.dst == "refuse":
            values.rules[index] = NUMBER["ambiguous_local_time" if twice else "skipped_local_time"]
        else:
            values.notes = values.notes or {}
            values.notes[int(index)] = f"{'ambiguous' if twice else 'skipped'}, {column.dst}"
