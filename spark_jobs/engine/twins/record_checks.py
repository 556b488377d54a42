"""The slow, obvious twin of `row_checks`: one row, one check after another."""

from __future__ import annotations

import re
from typing import Any

from spark_jobs.engine.records.spec import COLUMN_PREFIX, TIMELINE_PREFIX, RecordSpec, RowCheck


def first_broken_check(row: dict[str, Any], spec: RecordSpec) -> tuple[RowCheck, str] | None:
    """The first check that a readable row breaks, and the column that the check is about; None if it breaks none."""
    for check in spec.checks:
        if check.kind == "lateness":
            name = next(name for name in spec.event_time if row[TIMELINE_PREFIX + name] is not None)
            if spec.drop_lo_us - row["event_time"] > check.greatest:
                return check, dict(spec.timelines)[name]
        elif _breaks(check, row[COLUMN_PREFIX + check.column]):
            return check, check.column
    return None


def _breaks(check: RowCheck, value: Any) -> bool:
    if value is None or check.kind == "not_null":
        return value is None and check.kind == "not_null"
    if check.kind == "in":
        return value not in check.values
    if check.kind == "matches":
        return re.fullmatch(check.pattern, value, re.ASCII) is None
    below = check.least is not None and value < check.least
    return below or (check.greatest is not None and value > check.greatest)
