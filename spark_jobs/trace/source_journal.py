"""The journal of a source's arrangement: the frontiers, of which one row per attempt is committed.

An attempt's fence takes one commit. So its steps are noted and committed together, with the other parts that it moves:
the landed drops, the time that runs have reached, the horizon. No step is visible before that commit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spark_jobs.engine.arrangement import ArrangementState
from spark_jobs.sources import Source
from spark_jobs.storage.delta.fences import Fence
from spark_jobs.storage.lakes.lake import Lake
from spark_jobs.trace.arrangement import Arrangement
from spark_jobs.trace.frontiers import SourceFrontiers, commit
from spark_jobs.trace.journal import StateChange, StateConflict, StateJournal
from spark_jobs.trace.placing import LandedRows
from spark_jobs.trace.source_plane import SourcePlane, buckets


class SourceJournal(StateJournal):
    """Notes an attempt's steps from the frontiers `current_frontiers` on; `record` commits them.

    Args:
        published_token: the publication's token. Batches that were replaced under a later token stay.
    """

    def __init__(
        self,
        lake: Lake,
        source: Source,
        fence: Fence,
        run_id: str,
        current_frontiers: SourceFrontiers,
        *,
        published_token: int = 0,
    ) -> None:
        self._lake, self._source, self._fence, self._run_id = lake, source, fence, run_id
        self._current_frontiers = current_frontiers
        self._state = current_frontiers.arrangement
        self._passing: set[str] = set()
        self._published_token = published_token

    def arrangement(self, plane: SourcePlane) -> Arrangement[LandedRows]:
        """The source's arrangement on this journal."""
        return Arrangement(plane, self, collection=self._source.name, buckets=buckets(self._source))

    def load(self, collection: str) -> ArrangementState:
        """See `StateJournal.load`: the state after the last noted step."""
        return self.states().get(collection, ArrangementState())

    def states(self) -> Mapping[str, ArrangementState]:
        """See `StateJournal.states`: the one state of the source's arrangement."""
        return {self._source.name: self._state}

    def kept_handles(self) -> frozenset[str]:
        """See `StateJournal.kept_handles`: replaced batches that a reader may still need."""
        due = self._current_frontiers.removable(self._published_token)
        return frozenset(handle for handle, _ in self._current_frontiers.obsolete).difference(due)

    def commit(self, changes: Sequence[StateChange]) -> None:
        """See `StateJournal.commit`. The changes are only noted; `record` commits them."""
        stale = [change.collection for change in changes if change.before != self.load(change.collection)]
        if stale:
            raise StateConflict(stale)
        for change in changes:
            self._state = change.after
            self._passing |= change.after.handles()

    def record(self, moved: SourceFrontiers | None = None) -> SourceFrontiers:
        """Commit the steps as one row, under the fence; returns the new frontiers. This small commit makes the batches
        count that were written before it. If nothing changed, nothing is committed.

        Args:
            moved: the standing frontiers with the other parts that the attempt moves.

        Raises:
            Superseded: an attempt with this token or a newer one has committed.
        """
        after = (moved or self._current_frontiers).replace_arrangement(self._state, self._fence.token, self._passing)
        if after != self._current_frontiers:
            commit(self._lake, self._source, self._fence, self._run_id, after)
        return after
