"""Checks that put rows into quarantine: each row of a batch against the bounds, values and forms of its source.

A row without a value passes all checks but `not_null`. A row that breaks several checks is rejected by the first one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.engine.records.rules import RULES
from spark_jobs.engine.records.spec import RecordSpec, RowCheck
from spark_jobs.engine.records.values import Values


def mark_checks(
    columns: list[Values],
    spec: RecordSpec,
    event_us: np.ndarray,
    timed_by: np.ndarray,
    rules: np.ndarray,
    arguments: np.ndarray,
) -> None:
    """Give the records that break no rule yet the first check that they break.

    Args:
        columns: the values of the declared columns.
        spec: the spec with the checks.
        event_us: the event time of each record, in microseconds.
        timed_by: per record, the place of the column of its event time.
        rules: each record's rule so far, 0 for none; changed.
        arguments: per record, the place of the column that its check is about; changed.
    """
    for index, check in enumerate(spec.checks):
        good = rules == 0
        if check.kind == "lateness":
            broken = good & (spec.drop_lo_us - event_us > check.greatest)
            arguments[broken] = timed_by[broken]
        else:
            place = spec.place(check.column)
            broken = good & _breaks(check, columns[place], good)
            arguments[broken] = place
        rules[broken] = len(RULES) + index


def _breaks(check: RowCheck, values: Values, good: np.ndarray) -> np.ndarray:
    """Flags of the `good` records that break the check; arbitrary for the others."""
    array = values.array(good)
    if check.kind == "not_null":
        return _as_flags(array.is_null())
    kept = _is_kept(check, array, values.column.arrow)
    return ~_as_flags(pc.fill_null(kept, True))


def _is_kept(check: RowCheck, array: pa.Array, kind: pa.DataType) -> pa.Array:
    """True for each value that passes the check; arbitrary for a null."""
    if check.kind == "in":
        return pc.or_(array.is_null(), pc.is_in(array, value_set=pa.array(check.values, kind)))
    if check.kind == "matches":
        return pc.match_substring_regex(array, rf"\A(?:{check.pattern})\z")
    least = _kept_bound(pc.greater_equal, array, check.least, kind)
    greatest = _kept_bound(pc.less_equal, array, check.greatest, kind)
    return greatest if least is None else least if greatest is None else pc.and_(least, greatest)


def _kept_bound(compare: Any, array: pa.Array, bound: Any, kind: pa.DataType) -> pa.Array | None:
    return None if bound is None else compare(array, pa.scalar(bound, kind))


def _as_flags(answers: pa.Array) -> np.ndarray:
    return answers.to_numpy(zero_copy_only=False)
