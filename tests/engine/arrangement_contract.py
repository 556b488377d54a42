"""What every data plane and every journal must do: suites to subclass, one subclass for each implementation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from spark_jobs.engine.arrangement import ArrangementState, Buckets, Description, StoredBatch, UnsealedBatch
from spark_jobs.engine.arrangement.errors import TimeAtOrBeyondUpper, TimeBelowLower
from spark_jobs.engine.twins import consolidation as naive
from spark_jobs.model import Frontier
from spark_jobs.trace import Slice, StateChange, StateConflict, StateJournal, SteppedPlane

Row = tuple[Any, ...]

MORNING: list[Row] = [("b", "y", 1, 1), ("a", "z", 7, 1), ("a", "y", 4, 2), ("a", "y", 4, 1), ("a", "y", 9, -1)]
EVENING: list[Row] = [("b", "y", 1, -1), ("a", "y", 4, -3), ("c", "x", 6, 5)]
FIVE = Frontier.at(5)


class DataPlaneContract(ABC):
    """Subclass it as `Test…` with a fixture `plane` and the two conversions."""

    @abstractmethod
    def table(self, rows: Iterable[Row]) -> Any:
        """Updates `(key, value, time, diff)` in the plane's own form."""

    @abstractmethod
    def rows(self, updates: Any) -> list[Row]:
        """The rows of what the plane returned, in its order."""

    def put(self, plane: SteppedPlane[Any], rows: Iterable[Row]) -> StoredBatch:
        return plane.put(self.table(rows))

    def stored(self, plane: SteppedPlane[Any], *handles: str) -> list[Row]:
        return self.rows(plane.read([Slice(handle) for handle in handles]))

    def test_what_is_put_is_read_raw(self, plane: SteppedPlane[Any]) -> None:
        batch = self.put(plane, MORNING)
        assert (batch.n_updates, batch.least, batch.greatest) == (5, 1, 9)
        assert batch.size > 0
        assert Counter(self.stored(plane, batch.handle)) == Counter(MORNING)

    def test_a_handle_is_never_given_twice(self, plane: SteppedPlane[Any]) -> None:
        first, second = self.put(plane, MORNING), self.put(plane, MORNING)
        plane.delete([second.handle])
        third = self.put(plane, EVENING)
        assert len({first.handle, second.handle, third.handle}) == 3

    def test_examining_counts_and_finds_an_offender_for_each_frontier(self, plane: SteppedPlane[Any]) -> None:
        examined = plane.examine(self.table(MORNING), [FIVE, Frontier.at(1), Frontier.empty(), Frontier.at(9)])
        assert examined.n_updates == 5
        below_five, below_one, below_none, below_nine = examined.first_below
        assert below_five in (1, 4)
        assert below_one is None
        assert below_none in (1, 4, 7, 9)
        assert below_nine in (1, 4, 7)
        assert plane.examine(self.table([]), [FIVE]).n_updates == 0
        assert plane.examine(self.table([]), [Frontier.empty()]).first_below == (None,)

    def test_a_drain_consolidates_and_sorts_its_half_open_interval(self, plane: SteppedPlane[Any]) -> None:
        morning, evening = self.put(plane, MORNING), self.put(plane, [("a", "y", 4, 1), ("a", "x", 7, 1)])
        drained = plane.drain([morning.handle, evening.handle], Frontier.at(1), Frontier.at(7))
        assert drained is not None
        assert self.stored(plane, drained.handle) == [("a", "y", 4, 4), ("b", "y", 1, 1)]
        assert (drained.n_updates, drained.least, drained.greatest) == (2, 1, 4)

    def test_a_drain_of_no_update_gives_no_batch(self, plane: SteppedPlane[Any]) -> None:
        batch = self.put(plane, MORNING)
        assert plane.drain([batch.handle], Frontier.at(5), Frontier.at(7)) is None
        assert plane.drain([], Frontier.at(0), Frontier.empty()) is None

    def test_a_drain_of_updates_that_cancel_gives_an_empty_batch(self, plane: SteppedPlane[Any]) -> None:
        batch = self.put(plane, [("a", "x", 1, 1), ("a", "x", 1, -1)])
        drained = plane.drain([batch.handle], Frontier.at(0), FIVE)
        assert drained is not None
        assert (drained.n_updates, self.stored(plane, drained.handle)) == (0, [])

    def test_a_trim_keeps_what_is_at_or_beyond_as_it_is(self, plane: SteppedPlane[Any]) -> None:
        batch = self.put(plane, MORNING)
        trimmed = plane.trim(batch.handle, Frontier.at(4))
        kept = [row for row in MORNING if row[2] >= 4]
        assert Counter(self.stored(plane, trimmed.handle)) == Counter(kept)
        assert (trimmed.n_updates, trimmed.least, trimmed.greatest) == (4, 4, 9)

    def test_placing_puts_each_update_where_it_belongs_in_one_step(self, plane: SteppedPlane[Any]) -> None:
        waiting = self.put(plane, [("a", "y", 1, 7), ("a", "y", 6, 1), ("c", "x", 9, 2), ("c", "x", 300, 1)])
        state = ArrangementState(seal=FIVE).append(UnsealedBatch.of(waiting, (0, 1)))
        # what the trace holds already is not moved again
        request = replace(state.advance_request(8, Buckets(0, 1)), lower=Frontier.at(3))
        new = [("a", "y", 6, -1), ("b", "y", 7, 3), ("c", "x", 9, -2), ("b", "z", 10, 1), ("b", "z", 301, 1)]
        placed = plane.place(self.table(new), request)
        assert placed.examined.n_updates == 5
        assert placed.examined.first_below == (None,)
        assert placed.n_drained == 3
        assert placed.drained is not None
        assert self.stored(plane, placed.drained.handle) == [("b", "y", 7, 3)]
        buckets = [self.stored(plane, batch.handle) for batch in placed.waiting]
        assert buckets == [[("b", "z", 10, 1)], [("b", "z", 301, 1), ("c", "x", 300, 1)]]
        bounds = [(batch.n_updates, batch.least, batch.greatest) for batch in placed.waiting]
        assert bounds == [(1, 10, 10), (2, 300, 301)]
        assert {*placed.handles, waiting.handle} <= plane.stored().keys()

    def test_placing_tells_updates_that_cancel_from_none(self, plane: SteppedPlane[Any]) -> None:
        request = ArrangementState(seal=FIVE).advance_request(8, Buckets(0, 1))
        cancelled = plane.place(self.table([("a", "y", 6, 1), ("a", "y", 6, -1)]), request)
        assert (cancelled.n_drained, cancelled.waiting) == (2, ())
        assert cancelled.drained is not None
        assert cancelled.drained.n_updates == 0
        none = plane.place(self.table([("a", "y", 8, 1), ("a", "y", 2, 1)][:1]), request)
        assert (none.n_drained, none.drained) == (0, None)
        late = plane.place(self.table([("a", "y", 4, 1), ("a", "y", 9, 1)]), request)
        assert late.examined.first_below == (4,)

    def test_a_check_finds_what_is_not_stored_as_described(self, plane: SteppedPlane[Any]) -> None:
        drained = plane.drain([self.put(plane, MORNING).handle], Frontier.at(1), Frontier.at(8))
        assert drained is not None
        plane.check(drained.handle, Description(Frontier.at(1), Frontier.at(8), Frontier.at(0)))
        for lower, upper, fault in ((2, 8, TimeBelowLower), (1, 7, TimeAtOrBeyondUpper)):
            with pytest.raises(fault):
                plane.check(drained.handle, Description(Frontier.at(lower), Frontier.at(upper), Frontier.at(0)))

    @pytest.mark.parametrize("since", [0, 5, 100, None])
    def test_a_merge_forwards_consolidates_and_sorts(self, plane: SteppedPlane[Any], since: int | None) -> None:
        earlier, later = self.put(plane, MORNING), self.put(plane, EVENING)
        merged = plane.merge(earlier.handle, later.handle, Frontier(since))
        expected = naive.consolidate(naive.forward(MORNING + EVENING, since))
        assert self.stored(plane, merged.handle) == expected
        assert merged.n_updates == len(expected)

    def test_reading_takes_slices_and_forwards_if_asked(self, plane: SteppedPlane[Any]) -> None:
        morning, evening = self.put(plane, MORNING), self.put(plane, EVENING)
        slices = [Slice(morning.handle, Frontier.at(4), Frontier.at(9)), Slice(evening.handle, upper=FIVE)]
        expected = [("a", "z", 7, 1), ("a", "y", 4, 2), ("a", "y", 4, 1), ("b", "y", 1, -1), ("a", "y", 4, -3)]
        assert Counter(self.rows(plane.read(slices))) == Counter(expected)
        assert Counter(self.rows(plane.read(slices, FIVE))) == Counter(naive.forward(expected, 5))
        assert self.rows(plane.read([])) == []

    def test_accumulating_sums_per_data_and_sorts(self, plane: SteppedPlane[Any]) -> None:
        morning, evening = self.put(plane, MORNING), self.put(plane, EVENING)
        bag = self.rows(plane.accumulate([Slice(morning.handle), Slice(evening.handle)]))
        assert bag == naive.accumulate(MORNING + EVENING)
        assert self.rows(plane.accumulate([])) == []

    def test_batches_never_change_and_only_deletion_ends_them(self, plane: SteppedPlane[Any]) -> None:
        morning, evening = self.put(plane, MORNING), self.put(plane, EVENING)
        plane.trim(morning.handle, FIVE)
        merged = plane.merge(morning.handle, evening.handle, FIVE)
        plane.drain([morning.handle], Frontier.at(0), FIVE)
        plane.delete([evening.handle, evening.handle, "never given"])
        plane.delete([])
        assert Counter(self.stored(plane, morning.handle)) == Counter(MORNING)
        assert len(self.stored(plane, merged.handle)) == merged.n_updates


class StateJournalContract:
    """Subclass it as `Test…` with a fixture `journal`: an empty one."""

    def sealed(self, journal: StateJournal, collection: str, ts: int) -> StateChange:
        before = journal.load(collection)
        return StateChange(collection, before, before.force_sealed(ts))

    def test_a_collection_never_committed_is_empty(self, journal: StateJournal) -> None:
        assert journal.load("flights") == ArrangementState()

    def test_a_committed_state_is_loaded_as_it_was(self, journal: StateJournal) -> None:
        change = self.sealed(journal, "flights", 2**62)
        journal.commit([change])
        assert journal.load("flights") == change.after
        assert journal.load("weather") == ArrangementState()

    def test_a_change_of_an_older_state_conflicts_and_is_not_made(self, journal: StateJournal) -> None:
        late = self.sealed(journal, "flights", 5)
        journal.commit([self.sealed(journal, "flights", 7)])
        with pytest.raises(StateConflict) as conflict:
            journal.commit([late])
        assert conflict.value.as_json() == {"code": "state_conflict", "collections": ["flights"]}
        assert journal.load("flights").seal == Frontier.at(7)

    def test_several_changes_are_made_together_or_not_at_all(self, journal: StateJournal) -> None:
        both = [self.sealed(journal, name, 5) for name in ("flights", "weather")]
        journal.commit([self.sealed(journal, "weather", 3)])
        with pytest.raises(StateConflict):
            journal.commit(both)
        assert journal.load("flights") == ArrangementState()
        journal.commit([self.sealed(journal, name, 5) for name in ("flights", "weather")])
        assert {journal.load(name).seal for name in ("flights", "weather")} == {Frontier.at(5)}

    def test_the_states_of_all_collections_are_there(self, journal: StateJournal) -> None:
        assert journal.states() == {}
        for name, ts in (("flights", 5), ("weather", 3), ("flights", 7)):
            journal.commit([self.sealed(journal, name, ts)])
        assert {name: state.seal.time for name, state in journal.states().items()} == {"flights": 7, "weather": 3}
        assert journal.kept_handles() == frozenset()

    def test_committing_nothing_is_accepted(self, journal: StateJournal) -> None:
        journal.commit([])
