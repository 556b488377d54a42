"""The aggregates that windows of a source file may name: the call of each, and the function that computes it.

There is one entry per aggregate. Reading a source file needs only names and signatures. So an entry gives the computing
function by its name, and only code that computes loads it. CONTRIBUTING.md lists the places of a new aggregate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

FINEST_ACCURACY = 2.0**-50
"""The finest accuracy of a quantile: a finer one would need more bits than a double has."""
MOST_COLLECTED = 1_000_000
"""The greatest number of values in one list of `collect`."""
NUMBERS = frozenset({"int", "float"})
ADDED = NUMBERS | {"decimal"}
"""The column types of a source file whose values windows can add up."""


@dataclass(frozen=True)
class Number:
    """A number in the brackets of an aggregate, with its bounds, both included. If `whole`, it is an integer."""

    name: str
    least: float
    most: float
    whole: bool = False
    finest: float = 0.0
    """Values between 0 and this one are refused."""


@dataclass(frozen=True)
class Signature:
    """The signature of an aggregate: the arguments that its brackets may have, and the function that constructs it.

    Args:
        call: the call as users write it.
        constructor: the name of a function of `engine.windows`. It takes the columns by name and then the numbers.
        least, most: the least and the greatest number of columns; `most` None: any number.
        numbers: the numbers that follow the columns; the last `optional` may be absent.
        operands: the types of a source file that the columns may have; None: any.
        as_vector: the columns become one column of vectors, and the constructor takes the name of that column. Vectors
            consist of doubles, which would round decimals.
    """

    call: str
    constructor: str
    least: int = 1
    most: int | None = 1
    numbers: tuple[Number, ...] = ()
    optional: int = 0
    operands: frozenset[str] | None = None
    as_vector: bool = False


AGGREGATES: Mapping[str, Signature] = {
    "count": Signature("count()", "count", least=0),
    "sum": Signature("sum(column)", "sum_", operands=ADDED),
    "avg": Signature("avg(column)", "avg", operands=ADDED),
    "min": Signature("min(column)", "min_"),
    "max": Signature("max(column)", "max_"),
    "first": Signature("first(column)", "first"),
    "last": Signature("last(column)", "last"),
    "variance": Signature("variance(column)", "variance", operands=ADDED),
    "stddev": Signature("stddev(column)", "stddev", operands=ADDED),
    "count_distinct": Signature("count_distinct(column)", "count_distinct"),
    "approx_quantile": Signature(
        "approx_quantile(column, fraction, accuracy)",
        "approx_quantile",
        numbers=(Number("fraction", 0, 1), Number("accuracy", 0, 0.5, finest=FINEST_ACCURACY)),
        optional=1,
        operands=ADDED,
    ),
    "collect": Signature(
        "collect(column, limit)", "collect", numbers=(Number("limit", 1, MOST_COLLECTED, whole=True),)
    ),
    **{
        name: Signature(f"{name}(column, …)", name, most=None, operands=NUMBERS, as_vector=True)
        for name in ("vector_sum", "vector_mean")
    },
}
"""Name of an aggregate -> its signature, in the order in which users see them."""
