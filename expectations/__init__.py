"""The gates' expectations: the invariants of each gate, in words and as a Great Expectations suite.

`GATES` has the gates in the order in which a run passes them. Importing this package does not import Great
Expectations.
"""

from expectations import audit, bronze, gold, silver, trace
from expectations.invariant import Invariant, suite

GATES: dict[str, tuple[Invariant, ...]] = {
    "bronze": bronze.INVARIANTS,
    "trace": trace.INVARIANTS,
    "silver": silver.INVARIANTS,
    "gold": gold.INVARIANTS,
}
"""Gate -> its invariants."""

AUDIT = "audit"
"""The value in the column `gate` of the audit's results."""

SUITES: dict[str, tuple[Invariant, ...]] = {**GATES, AUDIT: audit.INVARIANTS}
"""Gate -> its invariants, with those of the audit, which examines the whole lake between runs."""

__all__ = ["AUDIT", "GATES", "SUITES", "Invariant", "suite"]
