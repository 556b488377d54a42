"""The aggregates that windows of a source file may name: how each is called, and what computes it.

One entry an aggregate. Reading a source file needs names and signatures alone, so what computes is given by its name,
and loaded by who computes. A new aggregate is its class (`kernels.windows`), and an entry here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

FINEST_ACCURACY = 2.0**-50
"""A finer quantile would need more bits than a double has."""
MOST_COLLECTED = 1_000_000
"""Values in one list."""
NUMBERS = frozenset({"int", "float"})
ADDED = NUMBERS | {"decimal"}
"""Types of a source file whose values windows add up."""


@dataclass(frozen=True)
class Number:
    """A number in the brackets: its bounds, both included; a whole one is an integer."""

    name: str
    least: float
    most: float
    whole: bool = False
    finest: float = 0.0
    """Between 0 and this nothing is taken."""


@dataclass(frozen=True)
class Signature:
    """An aggregate: what may stand in its brackets, and what makes it.

    Args:
        shown: how it is written.
        constructor: `module.function` of `kernels.windows`. It takes the columns by name and then the numbers.
        least, most: how many columns; `most` None: any number.
        numbers: those that follow the columns; the last `optional` may be absent.
        operands: types of a source file that the columns may have; None: any.
        as_vector: the columns become one of vectors, whose name the constructor takes; vectors are of doubles, which
            would round decimals.
    """

    shown: str
    constructor: str
    least: int = 1
    most: int | None = 1
    numbers: tuple[Number, ...] = ()
    optional: int = 0
    operands: frozenset[str] | None = None
    as_vector: bool = False


AGGREGATES: Mapping[str, Signature] = {
    "count": Signature("count()", "aggregates.count", least=0),
    "sum": Signature("sum(column)", "aggregates.sum_", operands=ADDED),
    "avg": Signature("avg(column)", "aggregates.avg", operands=ADDED),
    "min": Signature("min(column)", "aggregates.min_"),
    "max": Signature("max(column)", "aggregates.max_"),
    "first": Signature("first(column)", "aggregates.first"),
    "last": Signature("last(column)", "aggregates.last"),
    "variance": Signature("variance(column)", "aggregates.variance", operands=ADDED),
    "stddev": Signature("stddev(column)", "aggregates.stddev", operands=ADDED),
    "count_distinct": Signature("count_distinct(column)", "aggregates.count_distinct"),
    "approx_quantile": Signature(
        "approx_quantile(column, fraction, accuracy)",
        "summaries.approx_quantile",
        numbers=(Number("fraction", 0, 1), Number("accuracy", 0, 0.5, finest=FINEST_ACCURACY)),
        optional=1,
        operands=ADDED,
    ),
    "collect": Signature(
        "collect(column, limit)", "summaries.collect", numbers=(Number("limit", 1, MOST_COLLECTED, whole=True),)
    ),
    **{
        name: Signature(f"{name}(column, …)", f"summaries.{name}", most=None, operands=NUMBERS, as_vector=True)
        for name in ("vector_sum", "vector_mean")
    },
}
"""By their names, in the order in which they are shown."""
