"""The cutoffs of rows: a row is late for each window whose last instant is before its cutoff.

Under a late policy the cutoff is `lo`, the start of the row's drop. Under a `grace` it is the stream time at which the
row arrived, less the grace; see `stream_times`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from spark_jobs.engine.columns import Flags, Ints, numbers


@dataclass(frozen=True)
class CutoffsOfRows:
    """Cutoffs by row id, ascending; a row that is not listed is late for no window."""

    row_ids: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    cutoffs: Ints = field(default_factory=lambda: np.zeros(0, np.int64))

    def of(self, row_ids: Ints, times: Ints) -> Ints:
        """The cutoffs of rows at `times`. A row that is late for no window has its own time."""
        if not self.row_ids.size:
            return times
        places = np.minimum(np.searchsorted(self.row_ids, row_ids), self.row_ids.size - 1)
        return np.where(self.row_ids[places] == row_ids, self.cutoffs[places], times)


@dataclass(frozen=True)
class Cutoffs:
    """The cutoffs of a definition's rows in a run: `before` for the rows of the publication in force, `now` for those
    that come. A row that goes is judged as it was when it counted. `changed`: the cutoffs of rows that stay changed."""

    before: CutoffsOfRows
    now: CutoffsOfRows
    changed: bool = False

    def of(self, updates: pa.Table, times: Ints, fresh: Flags) -> Ints:
        """The cutoffs of updates (`row_id`, `diff`) whose rows are at `times`; `fresh`: they are not published yet."""
        row_ids, comes = numbers(updates["row_id"]), fresh & (numbers(updates["diff"]) > 0)
        return np.where(comes, self.now.of(row_ids, times), self.before.of(row_ids, times))
