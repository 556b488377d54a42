"""The steps that two states show are those that were taken between them."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.engine.arrangement import ArrangementState
from spark_jobs.model import Frontier
from spark_jobs.trace import ArrowPlane, MemoryJournal, SteppedArrangement, updates_table
from spark_jobs.trace.steps import TraceStep, steps_between
from tests.trace.scenario import MORNING, NOON, operations

KINDS = [
    ["append"],
    ["seal"],
    ["drain"],
    # the batch is trimmed: its rest waits in a batch of its own
    ["append", "evict"],
    ["append"],
    ["seal"],
    ["drain"],
    ["evict", "evict"],
    ["allow_compaction"],
    ["hold"],
    ["merge"],
    ["append"],
    # times 17, 18 and 30 wait in buckets of their own
    ["append", "append", "append", "evict", "seal", "drain"],
]
"""The steps of each operation of the scenario."""


def taken(arrangement: SteppedArrangement[pa.Table], before: ArrangementState) -> list[TraceStep]:
    return steps_between(before, arrangement.state)


def test_each_operation_shows_its_steps() -> None:
    arrangement = SteppedArrangement(ArrowPlane(), MemoryJournal())
    seen = []
    for operation in operations(updates_table):
        before = arrangement.state
        operation(arrangement)
        seen.append([step.kind for step in taken(arrangement, before)])
    assert seen == KINDS


def test_steps_have_the_bounds_and_counts_of_their_batches() -> None:
    arrangement = SteppedArrangement(ArrowPlane(), MemoryJournal())
    arrangement.write(updates_table(MORNING))
    before = arrangement.state
    arrangement.advance(updates_table(NOON), 10)
    appended, evicted, sealed, drained = taken(arrangement, before)
    assert (appended.updates, appended.lower, appended.upper) == (1, Frontier.at(12), Frontier.at(13))
    assert (evicted.batch, evicted.updates) == (before.unsealed[0].handle, 3)
    assert (sealed.lower, sealed.upper) == (Frontier.at(0), Frontier.at(10))
    assert (drained.updates, drained.lower, drained.upper) == (5, Frontier.at(0), Frontier.at(10))
    arrangement.advance(None, 20)
    before = arrangement.state
    arrangement.allow_compaction(Frontier.at(20))
    arrangement.compact()
    since, merged = taken(arrangement, before)
    assert (since.lower, since.upper) == (Frontier.at(0), Frontier.at(20))
    assert merged.replaced == tuple(batch.handle for batch in before.trace)
    assert (merged.lower, merged.upper) == (Frontier.at(0), Frontier.at(20))


def test_a_withdrawn_seal_and_its_batch_are_rolled_back() -> None:
    arrangement = SteppedArrangement(ArrowPlane(), MemoryJournal())
    start = arrangement.state
    arrangement.advance(updates_table(MORNING), 5)
    withdrawn = arrangement.state.rolled_back(start)
    drained = arrangement.state.trace[0].handle
    steps = steps_between(arrangement.state, withdrawn)
    assert [(step.kind, step.batch) for step in steps if step.kind == "roll_back"] == [
        ("roll_back", ""),
        ("roll_back", drained),
    ]


@given(st.lists(st.lists(st.tuples(st.integers(0, 6), st.sampled_from([1, -1])), max_size=4), min_size=1, max_size=8))
def test_replaying_the_steps_leads_to_the_state(days: list[list[tuple[int, int]]]) -> None:
    """The handles of a state are those that its steps appended, drained and merged, less those that went."""
    arrangement = SteppedArrangement(ArrowPlane(), MemoryJournal())
    unsealed: set[str] = set()
    trace: set[str] = set()
    seal = since = Frontier.at(0)
    for day, changes in enumerate(days):
        before = arrangement.state
        arrangement.advance(updates_table([("a", "x", 3 * day + ahead, diff) for ahead, diff in changes]), 3 * day + 3)
        if day % 3 == 2:
            arrangement.allow_compaction(Frontier.at(3 * day))
            arrangement.compact()
        for step in taken(arrangement, before):
            if step.kind == "append":
                unsealed.add(step.batch)
            elif step.kind == "evict":
                unsealed.remove(step.batch)
            elif step.kind == "seal":
                assert step.lower == seal
                seal = step.upper
            elif step.kind == "allow_compaction":
                assert step.lower == since
                since = step.upper
            elif step.kind in ("drain", "merge"):
                trace = (trace - {*step.replaced}) | {step.batch}
            else:
                pytest.fail(f"no run took the step {step}")
        state = arrangement.state
        assert unsealed == {batch.handle for batch in state.unsealed}
        assert trace == {batch.handle for batch in state.trace}
        assert (seal, since) == (state.seal, state.since)
