"""An invariant of a gate as data, and the Great Expectations suite that a gate's invariants make.

A gate measures what a stage left in one pass, into one row; each invariant bounds one or two columns of that row. A
measure that is missing or null fails its invariant: a gate that could not measure does not open. Where an invariant is
broken, Great Expectations asks for the rows that break it (`expectations.enforcement`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from great_expectations import ExpectationSuite
    from great_expectations.core import ExpectationValidationResult
    from great_expectations.expectations.expectation import Expectation

Bound = Literal["none", "equal", "at_most"]
Measure = float | int | None
"""A measured value; None: it could not be measured."""
BREAKING_ROWS = "breaking_rows"
"""Attribute of the frame of a measured row: a function from the measures of an invariant to rows that break it."""


@dataclass(frozen=True, slots=True)
class Invariant:
    """What must hold before the next stage starts.

    `bound` says how: `none`: `measure` is 0; `equal`: `measure` = `other`; `at_most`: `measure` <= `other`.
    `guarantee` says in words what a reader may rely on; `on_failure` who acts and how.
    """

    measure: str
    guarantee: str
    on_failure: str
    bound: Bound = "none"
    other: str | None = None

    @property
    def measures(self) -> tuple[str, ...]:
        """The columns of the measured row that this invariant reads."""
        return (self.measure,) if self.other is None else (self.measure, self.other)

    @property
    def bounds(self) -> str:
        """What is expected of the measures, as a formula."""
        return bounds(self.measure, self.bound, self.other)

    def holds(self, row: Mapping[str, Measure]) -> bool:
        """Whether the measured row keeps the bound."""
        return holds(self.bound, *(row.get(measure) for measure in self.measures))

    def expectation(self) -> Expectation:
        """The same as an expectation of Great Expectations; `meta.measure` leads back here."""
        from expectations.enforcement import ExpectInvariantToHold

        return ExpectInvariantToHold(
            measure=self.measure,
            bound=self.bound,
            other=self.other,
            description=self.guarantee,
            notes=self.on_failure,
            meta={"measure": self.measure},
        )


def holds(bound: Bound, measure: Measure, other: Measure = None) -> bool:
    """Whether a measure keeps its bound; it does not if it, or what it is compared with, was not measured."""
    if bound == "none":
        return measure == 0
    if measure is None or other is None:
        return False
    return measure == other if bound == "equal" else measure <= other


def bounds(measure: str, bound: Bound, other: str | None) -> str:
    """What is expected of a measure, as a formula: `0`, `a = b`, `a <= b`."""
    return {"none": "0", "equal": f"{measure} = {other}", "at_most": f"{measure} <= {other}"}[bound]


def observed(measures: Mapping[str, Measure]) -> str:
    """The measures of an invariant for people: `3`, or `ledger_rows=5, chunk_rows=4`."""
    texts = {name: "not measured" if value is None else str(value) for name, value in measures.items()}
    return ", ".join(f"{name}={text}" for name, text in texts.items()) if len(texts) > 1 else next(iter(texts.values()))


def raised(result: ExpectationValidationResult) -> str | None:
    """The message of what Great Expectations ran into, if it could not judge an expectation."""
    info: Mapping[str, Any] = result.exception_info or {}
    nested = [each for each in info.values() if isinstance(each, Mapping)] or [info]
    return next((str(each["exception_message"]) for each in nested if each.get("raised_exception")), None)


def suite(gate: str, invariants: Iterable[Invariant]) -> ExpectationSuite:
    """The suite of a gate, one expectation per invariant, in their order."""
    from great_expectations import ExpectationSuite

    return ExpectationSuite(name=gate, expectations=[invariant.expectation() for invariant in invariants])
