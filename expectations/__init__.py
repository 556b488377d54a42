"""The gates' expectations: for each gate what must hold, in words and as a Great Expectations suite.

`GATES` names the gates in the order in which a run meets them. Importing this package does not import Great
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
"""The invariants of each gate."""

AUDIT = "audit"
"""What results of the audit have in the column `gate`."""

SUITES: dict[str, tuple[Invariant, ...]] = {**GATES, AUDIT: audit.INVARIANTS}
"""The same, and those of the audit, which looks at everything between runs."""

__all__ = ["AUDIT", "GATES", "SUITES", "Invariant", "suite"]
