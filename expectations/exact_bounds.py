"""Checks with bounds and values that floats cannot represent: decimals, and whole numbers of more than 53 bits.

Great Expectations converts bounds to floats. No float equals 0.1: a `Decimal("0.10")` is less than the float next to
it. And a float has 53 bits: it cannot distinguish all larger whole numbers.

Importing this module registers the class with Great Expectations, since stored suites of the project name it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
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
"""The number up to which floats represent every whole number."""


class ExpectColumnValuesToBeExactlyBetween(ExpectColumnValuesToBeBetween):
    """Expect decimals or whole numbers from `min_value` to `max_value`, both compared with all of their digits."""

    # in the base class these are floats, which this class is there to avoid
    min_value: pydantic.StrictInt | Decimal | None = None  # type: ignore[assignment]
    max_value: pydantic.StrictInt | Decimal | None = None  # type: ignore[assignment]


def exact_kind(kind: type[Expectation], arguments: Mapping[str, Any]) -> type[Expectation]:
    """The class for an expectation with these arguments: the exact one if floats cannot represent its bounds."""
    ends = (arguments.get("min_value"), arguments.get("max_value"))
    exact = kind is ExpectColumnValuesToBeBetween and any(isinstance(end, Decimal) or _is_large(end) for end in ends)
    return ExpectColumnValuesToBeExactlyBetween if exact else kind


def _is_large(number: Any) -> bool:
    return isinstance(number, int) and abs(number) > LARGEST_OF_FLOATS


def over_decimals(expectation: Expectation, decimals: Collection[str]) -> Expectation:
    """The expectation, with decimals as its bounds or values if it compares one of the columns `decimals`.

    A float becomes the decimal that it is written as. Expectations of other classes are returned as they are."""
    if getattr(expectation, "column", None) not in decimals:
        return expectation
    # not for a team's own subclass, whose bounds may have another meaning
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
    """A number, or a text with one, as the decimal that it is written as; any other value as it is."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return value
    try:
        return Decimal(str(value))
    except InvalidOperation:
        return value
