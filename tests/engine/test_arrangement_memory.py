"""The in-memory plane and journal keep the contracts, and what they promise beyond them."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pytest

from spark_jobs.engine.arrangement import Description
from spark_jobs.engine.arrangement.errors import Unconsolidated, Unsorted, ZeroDiff
from spark_jobs.engine.updates import DiffOverflow
from spark_jobs.errors import TidemarkError
from spark_jobs.model import Frontier
from spark_jobs.trace import ArrowPlane, MemoryJournal, updates_table
from tests.engine.arrangement_contract import DataPlaneContract, Row, StateJournalContract


class TestArrowPlane(DataPlaneContract):
    @pytest.fixture
    def plane(self) -> ArrowPlane:
        return ArrowPlane()

    def table(self, rows: Iterable[Row]) -> pa.Table:
        return updates_table(list(rows))

    def rows(self, updates: pa.Table) -> list[Row]:
        return list(zip(*(column.to_pylist() for column in updates.columns), strict=True))

    def test_the_offender_is_the_first_in_order(self, plane: ArrowPlane) -> None:
        updates = self.table([("a", "x", 9, 1), ("a", "x", 4, 1), ("a", "x", 1, 1)])
        assert plane.examine(updates, [Frontier.at(5), Frontier.at(2)]).first_below == (4, 1)

    def test_columns_are_taken_by_name(self, plane: ArrowPlane) -> None:
        updates = self.table([("a", "x", 9, 1)])
        shuffled = updates.select(["diff", "time", "value", "key"]).append_column("more", pa.array([0]))
        assert self.stored(plane, plane.put(shuffled).handle) == [("a", "x", 9, 1)]

    @pytest.mark.parametrize(
        ("rows", "fault"),
        [
            ([("b", "y", 1, 1), ("a", "y", 1, 1)], Unsorted),
            ([("a", "y", 2, 1), ("a", "y", 1, 1)], Unsorted),
            ([("a", "y", 1, 1), ("a", "y", 1, 1)], Unconsolidated),
            ([("a", "y", 1, 0)], ZeroDiff),
        ],
    )
    def test_a_check_finds_what_is_out_of_order(
        self, plane: ArrowPlane, rows: list[Row], fault: type[TidemarkError]
    ) -> None:
        batch = self.put(plane, rows)
        with pytest.raises(fault):
            plane.check(batch.handle, Description(Frontier.at(0), Frontier.at(8), Frontier.at(0)))

    def test_handles_and_sizes_can_be_given(self) -> None:
        plane = ArrowPlane(size_of=lambda updates: 10 * updates.num_rows, handles=["first", "second"])
        batch = plane.put(self.table([("a", "x", 9, 1)]))
        assert (batch.handle, batch.size) == ("first", 10)

    def test_a_sum_that_overflows_stores_nothing(self, plane: ArrowPlane) -> None:
        batch = self.put(plane, [("a", "x", 1, 2**62), ("a", "x", 1, 2**62)])
        with pytest.raises(DiffOverflow):
            plane.drain([batch.handle], Frontier.at(0), Frontier.at(5))
        assert plane.stored().keys() == {batch.handle}


class TestMemoryJournal(StateJournalContract):
    @pytest.fixture
    def journal(self) -> MemoryJournal:
        return MemoryJournal()
