"""The decorators by which a plugin's file declares its aggregates, triggers and formats."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from spark_jobs.aggregates import Number, Signature
from spark_jobs.plugins.code import AGGREGATE, FORMAT, TRIGGER

_CALL = re.compile(r"([a-z_]+)\(.*\)")
_NAME = re.compile(r"[a-z][a-z0-9_]*")
Declared = TypeVar("Declared")


def aggregate(
    shown: str,
    *,
    operands: Iterable[str] | None = None,
    least: int = 1,
    most: int | None = 1,
    numbers: Iterable[Number] = (),
    optional: int = 0,
) -> Callable[[Declared], Declared]:
    """Declare a class of `spark_jobs.engine.windows.Monoid`, or a function that gives one, as an aggregate.

    It is called with the columns' names and then the numbers that a source file gives.

    Args:
        shown: how it is written in a source file, such as `product(column)`.
        operands: types of a source file (`int`, `float`, `string`, …) that the columns may have; None: any.
        least, most: how many columns; `most` None: any number.
        numbers: those that follow the columns, of which the last `optional` may be left out.

    Raises:
        ValueError: `shown` is no call.
    """
    return _declare_call(AGGREGATE, shown, operands, least, most, numbers, optional)


def trigger(
    shown: str,
    *,
    operands: Iterable[str] | None = None,
    least: int = 1,
    most: int | None = 1,
    numbers: Iterable[Number] = (),
    optional: int = 0,
) -> Callable[[Declared], Declared]:
    """Declare a class of `spark_jobs.engine.windows.EarlyTrigger`, or a function that gives one, as a trigger of early
    results.

    It is called with the columns' names and then the numbers that a source file gives. Arguments: as for `aggregate`;
    `least` is 0 for a trigger that reads no column.

    Raises:
        ValueError: `shown` is no call.
    """
    return _declare_call(TRIGGER, shown, operands, least, most, numbers, optional)


def _declare_call(
    kind: str,
    shown: str,
    operands: Iterable[str] | None,
    least: int,
    most: int | None,
    numbers: Iterable[Number],
    optional: int,
) -> Callable[[Declared], Declared]:
    """A decorator that gives an object the attribute `kind` with the signature of the call `shown`."""
    call = _CALL.fullmatch(shown)
    if call is None:
        raise ValueError(
            f"expected a call of lowercase letters and underscores, such as product(column), found {shown!r}"
        )
    signature = Signature(
        shown,
        call[1],
        least=least,
        most=most,
        numbers=tuple(numbers),
        optional=optional,
        operands=None if operands is None else frozenset(operands),
    )

    def declare(constructor: Declared) -> Declared:
        setattr(constructor, kind, signature)
        return constructor

    return declare


def landing_format(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declare a function as the reader of a format of landed files.

    It is given the blocks of bytes of one file, decompressed, and gives its records in order, each a dict that JSON can
    hold: what they become of rows, rejects and types is as for NDJSON, and the n-th record is line n. What it can't
    read as a record it gives as text: that record is rejected. If it raises, the whole file is.

    Raises:
        ValueError: the name is none of lowercase letters, digits and underscores.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(f"expected a name of lowercase letters, digits and underscores, found {name!r}")

    def declare(reader: Callable[..., Any]) -> Callable[..., Any]:
        setattr(reader, FORMAT, name)
        return reader

    return declare
