"""Faults of a whole history table, in which each thing (a window or a state) has one version after the other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from spark_jobs.engine.columns.plain import Flags, Ints, are, numbers, present
from spark_jobs.engine.restatement.comparison import CLOSING, key_codes

_STILL = np.iinfo(np.int64).max
FAULTS = (
    "known from or to a time at which nothing was published",
    "ends what is not there, or what has ended before",
    "ends before it began, or after the next version began",
    "a revision that does not follow the one before",
)


def judge_history(rows: pa.Table, identity: Sequence[str], times: Ints, *, whole: bool) -> Ints:
    """Per row of a history: 0, or 1 + the index of its fault in `FAULTS`.

    Args:
        rows: the columns of `identity`, and era, known_from, known_to, revision.
        identity: the columns that tell two things apart.
        times: the times at which something was published, ascending, in microseconds.
        whole: True if the history still has every version, from the first one on.
    """
    faults = np.zeros(rows.num_rows, np.int64)
    if rows.num_rows == 0:
        return faults
    since, revision = numbers(rows["known_from"]), numbers(rows["revision"])
    until = numbers(rows["known_to"], _STILL)
    closes = are(rows["era"], CLOSING)
    (thing,) = key_codes([rows], tuple(identity))
    (version,) = key_codes([rows], (*identity, "known_from"))
    ends = np.full(int(version.max()) + 1, _STILL, np.int64)
    ends[version[closes]] = until[closes]
    faults[closes & ~_once(version, closes, ~closes & (until == _STILL))] = 2
    until = np.where(~closes & (until == _STILL), ends[version], until)
    order = np.lexsort((since, thing, closes))[: int((~closes).sum())]
    same = np.zeros(order.size, np.bool_)
    same[1:] = thing[order][1:] == thing[order][:-1]
    before = np.concatenate((order[:1], order[:-1]))
    overlaps = same & (until[before] > since[order])
    goes_on = same & (until[before] == since[order])
    wanted = np.where(goes_on, revision[before] + 1, 0)
    faults[order[(revision[order] != wanted) & (same | whole)]] = 4
    faults[order[overlaps]] = 3
    faults[until <= since] = 3
    faults[~np.isin(since, times) | (present(rows["known_to"]) & ~np.isin(until, times))] = 1
    return faults


def _once(version: Ints, closes: Flags, opens: Flags) -> Flags:
    """Flags of the rows whose version has a standing row, and exactly one row that closes it."""
    n = int(version.max()) + 1
    opening, closing = (np.bincount(version[of], minlength=n) for of in (opens, closes))
    return ((opening > 0) & (closing == 1))[version]
