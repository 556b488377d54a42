"""An arrangement that ends at any step of an operation is, opened again, as before or as after the operation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from spark_jobs.engine.arrangement import StoredBatch
from spark_jobs.trace import ArrowPlane, MemoryJournal, StateChange, SteppedArrangement, updates_table
from tests.trace.scenario import operations, shape


class Ended(BaseException):
    """The process ends here."""


class Countdown:
    """Ends the process at the n-th point that it passes; never for n = 0."""

    def __init__(self) -> None:
        self.left = 0

    def point(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise Ended


class MortalPlane(ArrowPlane):
    def __init__(self, countdown: Countdown) -> None:
        super().__init__()
        self._countdown = countdown

    def _store(self, updates: pa.Table) -> StoredBatch:
        self._countdown.point()
        stored = super()._store(updates)
        self._countdown.point()
        return stored

    def delete(self, handles: Sequence[str]) -> None:
        for handle in handles:
            self._countdown.point()
            super().delete([handle])
        self._countdown.point()


class MortalJournal(MemoryJournal):
    def __init__(self, countdown: Countdown) -> None:
        super().__init__()
        self._countdown = countdown

    def commit(self, changes: Sequence[StateChange]) -> None:
        self._countdown.point()
        super().commit(changes)
        self._countdown.point()


def undisturbed() -> tuple[list[Any], list[Any]]:
    """The state's shape before each operation and at the end, and what the end reads."""
    arrangement = SteppedArrangement(ArrowPlane(), MemoryJournal())
    shapes = [shape(arrangement.state)]
    for operation in operations(updates_table):
        operation(arrangement)
        shapes.append(shape(arrangement.state))
    return shapes, arrangement.updates().to_pylist()


def test_every_crash_leaves_the_state_before_or_after_the_operation() -> None:
    shapes, reads = undisturbed()
    assert len(set(map(repr, shapes))) == len(shapes), "every operation changes the state"
    found = set()
    for index in range(len(shapes) - 1):
        for point in range(1, 10):
            found.add(crashed(index, point, shapes, reads))
    assert found == {"before", "after", "never"}


def crashed(index: int, point: int, shapes: list[Any], reads: list[Any]) -> str:
    """End operation `index` at its n-th point, go on from there, and say where it was found."""
    countdown = Countdown()
    plane, journal = MortalPlane(countdown), MortalJournal(countdown)
    steps = operations(updates_table)
    arrangement = SteppedArrangement(plane, journal)
    for step in steps[:index]:
        step(arrangement)
    countdown.left = point
    try:
        steps[index](arrangement)
        outcome, left = "never", steps[index + 1 :]
    except Ended:
        arrangement = SteppedArrangement(plane, journal)
        is_after = shape(arrangement.state) == shapes[index + 1]
        assert is_after or shape(arrangement.state) == shapes[index]
        outcome, left = ("after", steps[index + 1 :]) if is_after else ("before", steps[index:])
    countdown.left = 0
    for step in left:
        step(arrangement)
    arrangement.check()
    assert shape(arrangement.state) == shapes[-1]
    assert arrangement.updates().to_pylist() == reads
    assert arrangement.state.handles() <= plane.stored().keys()
    arrangement.sweep()
    assert arrangement.state.handles() == plane.stored().keys()
    assert arrangement.updates().to_pylist() == reads
    return outcome
