"""An invariant of a gate as data, and the Great Expectations suite that a gate's invariants make.

A gate measures what a stage left in one pass, into one row; each invariant bounds one or two columns of that row. A
measure that is missing or null fails its invariant: a gate that could not measure does not open.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from great_expectations import ExpectationSuite
    from great_expectations.expectations.expectation import Expectation

Bound = Literal["none", "equal", "at_most"]


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
        signs = {"none": "0", "equal": f"{self.measure} = {self.other}", "at_most": f"{self.measure} <= {self.other}"}
        return signs[self.bound]

    def expectation(self) -> Expectation:
        """The same as an expectation of Great Expectations; `meta.measure` leads back here."""
        from great_expectations import expectations as gxe

        words: dict[str, Any] = {
            "description": self.guarantee,
            "notes": self.on_failure,
            "meta": {"measure": self.measure},
        }
        if self.bound == "none":
            return gxe.ExpectColumnMaxToBeBetween(column=self.measure, min_value=0, max_value=0, **words)
        if self.bound == "equal":
            return gxe.ExpectColumnPairValuesToBeEqual(
                column_A=self.measure, column_B=self.measures[1], ignore_row_if="neither", **words
            )
        return gxe.ExpectColumnPairValuesAToBeGreaterThanB(
            column_A=self.measures[1], column_B=self.measure, or_equal=True, ignore_row_if="neither", **words
        )


def suite(gate: str, invariants: Iterable[Invariant]) -> ExpectationSuite:
    """The suite of a gate, one expectation per invariant, in their order."""
    from great_expectations import ExpectationSuite

    return ExpectationSuite(name=gate, expectations=[invariant.expectation() for invariant in invariants])
