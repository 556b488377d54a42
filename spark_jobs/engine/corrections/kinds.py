"""The kinds of data of a buffer. Data of the same kind have a total order, and equal data are the same.

A buffer has data of one kind only; otherwise a later read could not sort them.

Texts, integers and days are kinds; so are times of day and instants, each with a zone or without. Any other type whose
values can be hashed and compared is a kind of its own. Tuples are compared place by place: the data of each place are
of one kind, and tuples may differ in length.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from numbers import Integral
from typing import Any

import numpy as np

from spark_jobs.engine.updates.refusals import MalformedUpdates

Kind = type | tuple[Any, ...] | None
"""A type; for tuples, a kind for each place; None as long as there are no data."""

_CERTAIN = frozenset({str, bytes, int, bool})
"""Types whose values need not be examined one by one."""


class _WithZone:
    """The kind of instants, or of times of day, with a zone."""


def kind_of(data: Sequence[Any]) -> Kind:
    """The kind of all these data. Raises MalformedUpdates if they have no common kind."""
    types = set(map(type, data))
    kinds = {_kind_of_type(one) for one in types}
    if len(kinds) > 1:
        names = ", ".join(sorted(one.__name__ for one in types))
        raise not_of_one_kind(f"data of the types {names}")
    if not kinds:
        return None
    (kind,) = kinds
    if kind is tuple:
        width = max(map(len, data))
        return tuple(kind_of([row[place] for row in data if len(row) > place]) for place in range(width))
    if kind in _CERTAIN:
        return kind
    return _looked_at(kind, data)


def merge_kinds(kind: Kind, other: Kind) -> Kind:
    """The kind of data of both kinds. Raises MalformedUpdates if the kinds differ."""
    if kind == other or other is None:
        return kind
    if kind is None:
        return other
    if not isinstance(kind, tuple) or not isinstance(other, tuple):
        raise not_of_one_kind(f"{_text_of(other)} beside {_text_of(kind)}")
    longer, shorter = (kind, other) if len(kind) >= len(other) else (other, kind)
    return (*map(merge_kinds, longer, shorter), *longer[len(shorter) :])


def not_of_one_kind(found: str) -> MalformedUpdates:
    """The refusal of data that a read could not sort."""
    return MalformedUpdates(
        expected="data of one kind with exact equality, a hash and a total order: texts, bytes, integers, dates, or"
        " tuples of such",
        found=found,
        next_step="give each row a code, a text or a tuple of such; data of another kind need a buffer of their own",
    )


def _kind_of_type(one: type) -> type:
    if one is str or one is int:
        return one
    if issubclass(one, bool | np.bool_):
        return bool
    for kind in (str, bytes, int, tuple):
        if issubclass(one, kind):
            return kind
    if issubclass(one, Integral):
        return int
    hashable = getattr(one, "__hash__", None) is not None
    if not hashable or one is type(None) or issubclass(one, float | complex | np.inexact | AbstractSet):
        raise not_of_one_kind(f"data of the type {one.__name__}")
    return one


def _looked_at(kind: type, data: Sequence[Any]) -> Kind:
    """The kind of data of a type not all of whose values can be compared, which are therefore examined one by one."""
    try:
        unequal = next((value for value in data if not (value == value and not value < value)), None)  # noqa: PLR0124
    except (TypeError, ValueError, ArithmeticError) as error:
        raise not_of_one_kind(f"a {kind.__name__}: {error}") from None
    if unequal is not None:
        raise not_of_one_kind(f"{unequal!r}, which has no place in an order")
    if issubclass(kind, dt.datetime | dt.time):
        zones = {value.utcoffset() is not None for value in data}
        if len(zones) > 1:
            raise not_of_one_kind(f"{kind.__name__}s with a zone beside some without")
        return (_WithZone, kind) if zones == {True} else kind
    return kind


def _text_of(kind: Kind) -> str:
    if isinstance(kind, tuple):
        return f"({', '.join(map(_text_of, kind))})"
    return "nothing" if kind is None else kind.__name__
