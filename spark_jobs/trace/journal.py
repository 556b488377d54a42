"""The journal, to which the states of arrangements are committed: one small atomic step makes a change visible."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from spark_jobs.engine.arrangement import ArrangementState
from spark_jobs.errors import TidemarkError


class StateConflict(TidemarkError):
    """Another writer committed a new state of the collection in between."""

    code = "state_conflict"

    def __init__(self, collections: Iterable[str]) -> None:
        names = sorted(collections)
        super().__init__(
            expected="the state that the change was worked out from",
            found=f"a newer state of {', '.join(names)}",
            next_step="refresh the arrangement and repeat the operation",
            collections=names,
        )


@dataclass(frozen=True, slots=True)
class StateChange:
    """The change of one collection from the state `before`, as last read, to the state `after`."""

    collection: str
    before: ArrangementState
    after: ArrangementState


class StateJournal(Protocol):
    """The committed states of collections, by name."""

    def load(self, collection: str) -> ArrangementState:
        """The collection's committed state; the empty state if none was ever committed."""
        ...

    def states(self) -> Mapping[str, ArrangementState]:
        """The committed states of all collections that have one, by name."""
        ...

    def kept_handles(self) -> frozenset[str]:
        """The handles of batches that no state names any more and that must still be kept; none by default."""
        return frozenset()

    def commit(self, changes: Sequence[StateChange]) -> None:
        """Commit all changes in one atomic step, or none.

        Raises StateConflict unless every `before` is still committed.
        """
        ...


class MemoryJournal(StateJournal):
    """Committed states in a dictionary, for one thread. `states`: those to begin with."""

    def __init__(self, states: Mapping[str, ArrangementState] | None = None) -> None:
        self._states: dict[str, ArrangementState] = dict(states or {})

    def load(self, collection: str) -> ArrangementState:
        """See `StateJournal.load`."""
        return self._states.get(collection, ArrangementState())

    def states(self) -> Mapping[str, ArrangementState]:
        """See `StateJournal.states`."""
        return dict(self._states)

    def commit(self, changes: Sequence[StateChange]) -> None:
        """See `StateJournal.commit`."""
        stale = [change.collection for change in changes if self.load(change.collection) != change.before]
        if stale:
            raise StateConflict(stale)
        self._states.update({change.collection: change.after for change in changes})
