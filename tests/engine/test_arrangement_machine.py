"""The state machine of `arrangement_machine` over an arrangement in memory."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from spark_jobs.trace import ArrowPlane, MemoryJournal, Slice, SteppedArrangement, updates_table
from tests.effort import tries
from tests.engine.arrangement_machine import ArrangementBesideHistory, Row


class InMemory(ArrangementBesideHistory):
    def __init__(self) -> None:
        super().__init__()
        self.plane = ArrowPlane(size_of=lambda table: table.num_rows)
        self.journal = MemoryJournal()

    def opened(self) -> SteppedArrangement[pa.Table]:
        return SteppedArrangement(self.plane, self.journal)

    def as_updates(self, rows: list[Row]) -> pa.Table:
        return updates_table(rows)

    def rows(self, updates: pa.Table) -> list[Row]:
        return list(zip(*(column.to_pylist() for column in updates.columns), strict=True))

    def batch(self, handle: str) -> pa.Table:
        return self.plane.read([Slice(handle)])

    def written(self) -> frozenset[str]:
        return frozenset(self.plane.stored())

    def metadata_and_batches_are_valid(self) -> None:
        super().metadata_and_batches_are_valid()
        self.arrangement.check(data=True)
        assert self.arrangement.state.handles() <= self.plane.stored().keys()


def test_an_arrangement_reads_like_the_list_of_everything_ever_accepted() -> None:
    run_state_machine_as_test(
        InMemory,
        settings=settings(max_examples=tries(20), stateful_step_count=25, deadline=None),
    )
