"""The invariants of a gate as data, and the Great Expectations suite made of them.

A gate measures the result of a stage in one pass, into one row. Each invariant bounds one or two columns of that row. A
measure that is missing or null fails its invariant: a gate that could not measure does not open. If an invariant is
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
"""A measured value; None if it could not be measured."""
BREAKING_ROWS = "breaking_rows"
"""The attribute of a measured row's frame with a function from the measures of an invariant to rows that break it."""


@dataclass(frozen=True, slots=True)
class Invariant:
    """A condition that must hold before the next stage starts.

    `bound` is the kind of condition: `none`: `measure` is 0; `equal`: `measure` = `other`; `at_most`: `measure` <=
    `other`. `guarantee` states in words the fact that readers may rely on. `on_failure` names the actions after a
    failure, and who takes them.
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
        """The condition on the measures, as a formula."""
        return bounds(self.measure, self.bound, self.other)

    def holds(self, row: Mapping[str, Measure]) -> bool:
        """True if the measured row keeps the bound."""
        return holds(self.bound, *(row.get(measure) for measure in self.measures))

    def expectation(self) -> Expectation:
        """The invariant as an expectation of Great Expectations; its `meta.measure` identifies the invariant."""
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
    """True if a measure keeps its bound; False also if it, or the measure it is compared with, was not measured."""
    if bound == "none":
        return measure == 0
    if measure is None or other is None:
        return False
    return measure == other if bound == "equal" else measure <= other


def bounds(measure: str, bound: Bound, other: str | None) -> str:
    """The condition on a measure, as a formula: `0`, `a = b`, `a <= b`."""
    return {"none": "0", "equal": f"{measure} = {other}", "at_most": f"{measure} <= {other}"}[bound]


def describe_measures(measures: Mapping[str, Measure]) -> str:
    """The measures of an invariant as text for people: `3`, or `ledger_rows=5, chunk_rows=4`."""
    texts = {name: "not measured" if value is None else str(value) for name, value in measures.items()}
    return ", ".join(f"{name}={text}" for name, text in texts.items()) if len(texts) > 1 else next(iter(texts.values()))


def exception_message(result: ExpectationValidationResult) -> str | None:
    """The message of the exception because of which Great Expectations could not judge an expectation, else None."""
    info: Mapping[str, Any] = result.exception_info or {}
    nested = [each for each in info.values() if isinstance(each, Mapping)] or [info]
    return next((str(each["exception_message"]) for each in nested if each.get("raised_exception")), None)


def suite(gate: str, invariants: Iterable[Invariant]) -> ExpectationSuite:
    """The suite of a gate, with one expectation per invariant, in the same order."""
    from great_expectations import ExpectationSuite

    return ExpectationSuite(name=gate, expectations=[invariant.expectation() for invariant in invariants])
