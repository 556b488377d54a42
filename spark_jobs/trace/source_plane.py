"""The batches of a source: its table of updates, and how one attempt of a run writes to it.

Replaced batches stay where they are: the frontiers list them (`frontiers.obsolete`), and they go with a later run's
write, once a publication has been made over their replacement. Diffs are +1 and -1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import Observation
from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.kernels.arrangement import AdvanceRequest, ArrangementState, Buckets
from spark_jobs.sources import Source
from spark_jobs.storage.fence import Fence
from spark_jobs.storage.lake import Lake
from spark_jobs.storage.tables import BELOW_HORIZON, COUNTS, updates
from spark_jobs.trace.delta_plane import DeltaPlane
from spark_jobs.trace.plane import Slice

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

ORDER = ("entity", "event_time", "row_id")
"""The key of an update: how a batch's updates are sorted first."""


class SourcePlane(DeltaPlane):
    """The batches as an attempt moves them.

    Args:
        passed: per update on its way, 1 if it lies below the horizon, else null; what was marked before stays so.
        n_landed: about how many updates are new.
        is_settled: no two of the new ones are of the same row, and they lie as a batch has them, see `write`.
        removed: replaced batches that go with the commit that writes.
    """

    def __init__(
        self,
        lake: Lake,
        source: Source,
        fence: Fence | None = None,
        *,
        passed: Column | None = None,
        n_landed: int = 0,
        is_settled: bool = False,
        removed: Sequence[str] = (),
    ) -> None:
        super().__init__(lake, updates(source), order=ORDER, fence=fence)
        self._passed = F.lit(None) if passed is None else passed
        self._n_landed = n_landed
        self._is_settled = is_settled
        self._removed = removed
        self.has_written = False
        """Whether `place` has, and with that removed what it was to remove."""
        self.n_below = 0
        """Of what `place` wrote, the updates below the horizon."""

    def check_sums(self, updates: DataFrame, magnitude: int, beside: Callable[[], Sequence[Slice]]) -> None:
        """Nothing to check: as many updates of one row as a sum beyond int64 takes can't be stored."""

    def delete(self, handles: Sequence[str]) -> None:
        """Nothing goes yet: see the module. What was stored and refused is an orphan."""

    def _write_placed(self, rows: DataFrame, handles: Sequence[str], request: AdvanceRequest) -> None:
        below, observation = BELOW_HORIZON.name, Observation(f"below_{handles[0]}")
        # what waited is judged again: the horizon may have passed it
        judged = rows.withColumn(below, F.coalesce(below, self._passed))
        observed = judged.observe(observation, F.count_if(F.col(below).isNotNull()).alias("below"))
        # rows that landed once have nothing to be consolidated with
        settled = self._is_settled and not request.moving
        n_rows = self._n_landed + sum(batch.n_updates for batch in request.moving)
        self.write(observed, handles, consolidate=not settled, settled=settled, n_rows=n_rows, removed=self._removed)
        self.has_written, self.n_below = True, observation.get["below"]


def batch_rows(lake: Lake, source: Source, handles: list[str]) -> DataFrame:
    """The updates of some batches."""
    return lake.read(updates(source)).where(F.col("batch").isin(handles))


def counting_rows(lake: Lake, source: Source, state: ArrangementState) -> DataFrame:
    """The updates of the trace that bear on what is published."""
    return batch_rows(lake, source, trace_handles(state)).where(COUNTS)


def trace_handles(state: ArrangementState) -> list[str]:
    """The batches of the trace, oldest first."""
    return [batch.handle for batch in state.trace]


def buckets(source: Source) -> Buckets:
    """Where a source's future-dated updates wait, in units of a drop."""
    return Buckets(source.drops.start_us, source.drops.every_us)
