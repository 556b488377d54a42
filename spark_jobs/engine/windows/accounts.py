"""The account of touched rows: where a definition counted each of them, so that no row is lost in silence.

Each row is counted once, net of retractions (a retracted row counts −1):

    accepted     counts in all windows over it
    partial      late: counts in only some of them
    moved        late for every window that it makes, counts as a row at its drop's start (`next_window`)
    discarded    late for all, counts in none
    skipped      has no value in a column that the kind requires
    null_key     has no value in a column of the key
    null_time    has no time on the definition's timeline
    out_of_range a window over it would begin before year 1 or end after year 9999

A row with several reasons to be in no window is counted under the first of `REASONS`, or else as `skipped`. Two more
numbers are checks: `late` is the number of counted rows that `silver.late` must list; `astray` is the number of rows by
which the windows made differ from this account (0 in a sound run).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_jobs.engine.windows.lateness import RowLateness
from spark_jobs.engine.windows.rows import SkippedRows

Flags = npt.NDArray[np.bool_]
REASONS = ("null_key", "null_time", "out_of_range")
"""The reasons that keep a row out of every window, whatever other rows there are; the first that applies is named."""
LISTED_REASONS = ("null_key", "out_of_range")
"""The reasons that `silver.late` lists. `null_time` is not one: a missing time means that an event did not happen."""


@dataclass(frozen=True, slots=True)
class Account:
    """Numbers of rows; see the module."""

    accepted: int = 0
    partial: int = 0
    moved: int = 0
    discarded: int = 0
    skipped: int = 0
    null_key: int = 0
    null_time: int = 0
    out_of_range: int = 0
    late: int = 0
    astray: int = 0

    def __add__(self, other: Account) -> Account:
        return Account(*(getattr(self, name) + getattr(other, name) for name in NAMES))

    @property
    def rows(self) -> int:
        """All rows of the account, net of retractions."""
        placed = self.accepted + self.partial + self.moved + self.discarded
        return placed + self.skipped + self.null_key + self.null_time + self.out_of_range


NAMES = tuple(field.name for field in fields(Account))


def skipped_rows(rows: pa.Table, required: Sequence[str]) -> Flags:
    """Flags of the rows that lack a value in at least one of the `required` columns."""
    skipped = np.zeros(rows.num_rows, np.bool_)
    for name in required:
        skipped |= rows.column(name).is_null().to_numpy()
    return skipped


def account(diff: npt.NDArray[np.int64], lateness: RowLateness, skipped: Flags, chosen: Flags) -> Account:
    """The account of the `chosen` rows, by their diffs."""
    net = np.where(chosen & ~skipped, diff, 0)

    def total(flags: Flags) -> int:
        return int(net[flags].sum())

    elsewhere = lateness.partial | lateness.moved | lateness.discarded
    return Account(
        accepted=total(~elsewhere),
        partial=total(lateness.partial),
        moved=total(lateness.moved),
        discarded=total(lateness.discarded),
        skipped=int(diff[chosen & skipped].sum()),
        late=total(lateness.late),
    )


def astray(lateness: RowLateness, skipped: Flags, counts: SkippedRows) -> int:
    """The number of rows by which the windows made of these rows differ from the rows' lateness.

    A `partial` row counts nowhere if no other row made one of the windows that it could count in.
    """
    discarded = int(np.count_nonzero(lateness.discarded & ~skipped))
    most = discarded + int(np.count_nonzero(lateness.partial & ~skipped))
    off = max(discarded - counts.late_rows, counts.late_rows - most, 0)
    return off + abs(int(np.count_nonzero(skipped)) - counts.null_value) + counts.null_key + counts.null_time
