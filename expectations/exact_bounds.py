"""Checks against bounds and values that no float has: decimals, and whole numbers of more than 53 bits.

Great Expectations makes floats of bounds. No float is 0.1: a `Decimal("0.10")` is less than the float next to it.
And a float has 53 bits: of two larger whole numbers that follow each other it is one only.

Importing this makes the class known to Great Expectations, whose project names it in stored suites.
"""

from __future__ import annotations

from collections.abc import Collection
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

from great_expectations.compatibility import pydantic
from great_expectations.expectations.core import (
    ExpectColumnValuesToBeBetween,
    ExpectColumnValuesToBeInSet,
    ExpectColumnValuesToNotBeInSet,
)

if TYPE_CHECKING:
    from great_expectations.expectations.expectation import Expectation


LARGEST_OF_FLOATS = 1 << 53
"""Every whole number up to here is a float."""


class ExpectColumnValuesToBeExactlyBetween(ExpectColumnValuesToBeBetween):
    """Expect decimals or whole numbers from `min_value` to `max_value`, each with all of its digits."""

    # a float, for Great Expectations: what the class is there to avoid
    min_value: pydantic.StrictInt | Decimal | None = None  # type: ignore[assignment]
    max_value: pydantic.StrictInt | Decimal | None = None  # type: ignore[assignment]


def between(column: str, least: Any, greatest: Any, **arguments: Any) -> ExpectColumnValuesToBeBetween:
    """The expectation of values from `least` to `greatest`: Great Expectations' own where its bounds are those."""
    exact = any(isinstance(end, Decimal) or _is_large(end) for end in (least, greatest))
    kind = ExpectColumnValuesToBeExactlyBetween if exact else ExpectColumnValuesToBeBetween
    return kind(column=column, min_value=least, max_value=greatest, **arguments)


def _is_large(number: Any) -> bool:
    return isinstance(number, int) and abs(number) > LARGEST_OF_FLOATS


def over_decimals(expectation: Expectation, decimals: Collection[str]) -> Expectation:
    """The expectation; if it compares one of these columns, with decimals: of a float the one that it is written as."""
    if getattr(expectation, "column", None) not in decimals:
        return expectation
    # a subclass of one's own may mean something else by its bounds
    if type(expectation) is ExpectColumnValuesToBeBetween:
        bounds = {end: _decimal(getattr(expectation, end)) for end in ("min_value", "max_value")}
        if all(bound is None or isinstance(bound, Decimal) for bound in bounds.values()):
            return ExpectColumnValuesToBeExactlyBetween(**{**dict(expectation), **bounds})
    if isinstance(expectation, ExpectColumnValuesToBeInSet | ExpectColumnValuesToNotBeInSet):
        values = expectation.value_set
        if isinstance(values, list):
            return expectation.copy(update={"value_set": [_decimal(value) for value in values]})
    return expectation


def _decimal(value: Any) -> Any:
    """A number, or one in quotes, as the decimal that it is written as; anything else as it is."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return value
    try:
        return Decimal(str(value))
    except InvalidOperation:
        return value
