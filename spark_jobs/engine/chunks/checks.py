"""Checks of arguments: each returns the value in its plain form, or refuses it by its name.

A whole number is a Python or numpy integer; a boolean is none, and 1.0 is none. A time is a whole number of 64 signed
bits. A name (of an entity, timeline, component, datatype or chunk) is a string.

`what.format(*parts)` names the value in a refusal; it is not computed for a value that is accepted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NoReturn

import numpy as np

from spark_jobs.errors import ParameterError

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


def whole_number(value: object, what: str, *parts: object, least: int | None = None) -> int:
    """The value as a Python integer, at least `least`.

    Raises:
        ParameterError: it is not a whole number, or it is smaller.
    """
    if type(value) is not int and (not isinstance(value, int | np.integer) or isinstance(value, bool)):
        _refuse("a whole number", what, value, *parts)
    number = int(value)
    if least is not None and number < least:
        _refuse(f"a whole number of {least} or more", what, value, *parts)
    return number


def int64(value: object, what: str, *parts: object, least: int = INT64_MIN) -> int:
    """The value as a Python integer of 64 signed bits, at least `least`.

    Raises:
        ParameterError: it is not a whole number, or it is too small or too large.
    """
    number = whole_number(value, what, *parts, least=least)
    if number > INT64_MAX:
        _refuse(f"a whole number of at most {INT64_MAX}", what, value, *parts)
    return number


def time(value: object, what: str, *parts: object) -> int:
    """The value as a time.

    Raises:
        ParameterError: it is not a whole number of 64 signed bits.
    """
    number = whole_number(value, what, *parts)
    if not INT64_MIN <= number <= INT64_MAX:
        _refuse("a 64-bit signed time", what, value, *parts)
    return number


def check_mapping(value: object, what: str, *parts: object) -> None:
    """Refuse a value that is not a mapping from names.

    Raises:
        ParameterError: it is no mapping, or one of its keys is no string.
    """
    if type(value) is not dict and not isinstance(value, Mapping):
        _refuse("a mapping from names", what, value, *parts)
    for name in value:
        if not isinstance(name, str):
            _refuse("a string", f"a name in {what}", name, *parts)


def check_name(value: object, what: str, *parts: object) -> None:
    """Refuse a value that is not a string.

    Raises:
        ParameterError: the value is not a string.
    """
    if not isinstance(value, str):
        _refuse("a string", what, value, *parts)


def check_names(**names: object) -> None:
    """Refuse values that are not strings; the keywords name the values.

    Raises:
        ParameterError: one of the values is not a string.
    """
    for what, value in names.items():
        if not isinstance(value, str):
            _refuse("a string", "{}", value, what)


def names(values: object, what: str) -> list[str]:
    """The values as a list of names.

    Raises:
        ParameterError: it is no collection of strings (a single string is none).
    """
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        _refuse("a list of strings", what, values)
    listed = list(values)
    for value in listed:
        check_name(value, what)
    return listed


def time_range(value: object, what: str, *parts: object) -> tuple[int, int]:
    """A pair of times, the first of which may be the greater one.

    Raises:
        ParameterError: it is no pair of times.
    """
    if not isinstance(value, tuple | list) or len(value) != 2:
        _refuse("a pair of times", what, value, *parts)
    return time(value[0], what, *parts), time(value[1], what, *parts)


def check_kind(value: object, kind: type, what: str) -> None:
    """Refuse a value that is not an instance of `kind`.

    Raises:
        ParameterError: the value is not an instance of `kind`.
    """
    if not isinstance(value, kind):
        _refuse(f"a {kind.__name__}", what, value)


def check_flag(value: object, what: str) -> None:
    """Refuse a value that is not a boolean.

    Raises:
        ParameterError: the value is not a boolean.
    """
    if not isinstance(value, bool):
        _refuse("true or false", what, value)


def int64_column(values: object, rows: int, what: str, *parts: object, least: int = INT64_MIN) -> np.ndarray:
    """A column of whole numbers as int64.

    Raises:
        ParameterError: it is no one-dimensional numpy array of this many integers of at least `least` that fit.
    """
    column = column_of(values, rows, what, *parts)
    if column.dtype.kind not in "iu":
        _refuse("integers", what, column.dtype, *parts)
    if column.dtype == np.uint64 and rows and int(column.max()) > INT64_MAX:
        _refuse("64 signed bits", what, int(column.max()), *parts)
    if least > INT64_MIN and rows and int(column.min()) < least:
        _refuse(f"{least} or more", what, int(column.min()), *parts)
    return column.astype(np.int64, copy=False)


def column_of(values: object, rows: int, what: str, *parts: object) -> np.ndarray:
    """A column with one value per row.

    Raises:
        ParameterError: it is no one-dimensional numpy array of this length.
    """
    if not isinstance(values, np.ndarray) or values.ndim != 1:
        _refuse("a one-dimensional numpy array", what, type(values), *parts)
    if len(values) != rows:
        raise ParameterError(
            expected=f"columns of {rows} rows",
            found=f"{len(values)} in {what.format(*parts)}",
            next_step="pass one value per row in every column",
        )
    return values


def _refuse(expected: str, what: str, value: object, *parts: object) -> NoReturn:
    text = repr(value)
    raise ParameterError(
        expected=f"{expected} as {what.format(*parts)}",
        found=text if len(text) <= 80 else f"{text[:77]}...",
        next_step="correct it",
    )
