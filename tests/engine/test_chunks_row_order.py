"""What a chunk answers does not depend on the order in which its rows lie."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.engine.chunks import Chunk, ComponentColumn, Row, StoreConfig
from spark_jobs.engine.chunks.query import chunk_latest_at, chunk_range
from spark_jobs.engine.twins.chunks import NaiveStore
from tests.effort import tries
from tests.engine.chunk_strategies import COMPONENTS, row_lists, timeline_sets, times
from tests.replaying.cases import ACCEPTED, Case, Step, read_cases
from tests.replaying.chunks import Player
from tests.replaying.runner import replay

FILES = sorted((Path(__file__).resolve().parents[1] / "cases" / "chunks").glob("*.json"))
Order = Callable[[list[Any]], list[Any]]


def in_another_order(case: Case, order: Order) -> Case:
    """The case with rows in another order, wherever its answers may not depend on it.

    A chunk to insert must have its rows in order: out of order it is refused, and the case goes on as if it had not
    been there. Rows that wait in a batcher may have come in any order. `split` and `dedupe_latest` are about the rows
    as they lie, and stay as they are.
    """
    steps: list[Step] = []
    waiting: list[Any] = []
    for step in case.steps:
        if step.op in ("push", "push_many") and step.expect == []:
            waiting += step.args["rows"] if step.op == "push_many" else [[step.args["entity"], step.args["row"]]]
            continue
        if waiting:
            steps.append(Step("push_many", {"rows": order(waiting)}, []))
            waiting = []
        steps += _permuted(step, order)
    if waiting:
        steps.append(Step("push_many", {"rows": order(waiting)}, []))
    return replace(case, steps=tuple(steps))


def _permuted(step: Step, order: Order) -> Iterator[Step]:
    args = step.args
    if step.op in ("chunk_latest_at", "chunk_range"):
        yield replace(step, args={**args, "rows": order(args["rows"])})
    elif step.op == "concat":
        yield replace(step, args={side: {**chunk, "rows": order(chunk["rows"])} for side, chunk in args.items()})
    elif step.op == "insert":
        rows = order(args["chunk"]["rows"])
        is_new = isinstance(step.expect, dict) and step.expect.get("changed", False)
        if is_new and rows != args["chunk"]["rows"]:
            refused = {"error": {"code": "unsorted_rows"}}
            yield replace(step, args={"chunk": {**args["chunk"], "rows": rows}}, expect=refused)
        yield step
    else:
        yield step


def orders() -> list[Order]:
    """The rows from behind, and in random orders."""
    seeds = range(tries(10))
    shuffled = [lambda rows, seed=seed: random.Random(seed).sample(rows, len(rows)) for seed in seeds]
    return [lambda rows: rows[::-1], *shuffled]


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_case_holds_in_any_order_of_rows(file: Path) -> None:
    player = Player()
    for case in read_cases(file):
        for order in orders():
            permuted = in_another_order(case, order)
            assert [mismatch.line() for mismatch in replay(player, permuted, lambda value: value)] == []


def test_other_orders_reach_most_ops_on_rows() -> None:
    cases = [case for file in FILES for case in read_cases(file)]
    changed = {
        step.op
        for case in cases
        for step in in_another_order(case, orders()[0]).steps
        if step not in case.steps and step.expect is not ACCEPTED
    }
    assert changed == {"chunk_latest_at", "chunk_range", "concat", "insert", "push_many"}


@settings(max_examples=tries(150), deadline=None)
@given(st.data())
def test_a_chunk_answers_as_the_rows_do_in_any_order(data: st.DataObject) -> None:
    ids = data.draw(st.permutations(range(data.draw(st.integers(1, 7)))))
    if data.draw(st.booleans()):
        ids = [2**63 + row_id for row_id in ids]
    rows = data.draw(row_lists(list(ids), data.draw(timeline_sets)))
    chunk = Chunk.from_rows("c", "pump", rows)
    twin = NaiveStore(StoreConfig.off())
    twin.insert("c", "pump", sorted(rows, key=lambda row: row.row_id))
    lo, hi = data.draw(times), data.draw(times)
    for component in COMPONENTS:
        latest = twin.latest_at("pump", "seen", hi, component)
        assert chunk_latest_at(chunk, "seen", hi, component) == (None if latest is None else latest[1])
        for extended in (False, True):
            found = twin.range("pump", "seen", lo, hi, component, extended=extended)
            assert chunk_range(chunk, "seen", lo, hi, component, extended=extended) == [row_id for _, row_id in found]
    assert chunk.first_row_id == min(ids)


def test_columns_out_of_order_answer_like_rows() -> None:
    chunk = Chunk.from_columns(
        "c",
        "pump",
        row_ids=np.array([3, 1, 2]),
        times={"day": np.array([5, 5, 5])},
        components={"flow": ComponentColumn.of("int64", np.array([30, 10, 20]))},
    )
    assert chunk_range(chunk, "day", 5, 5, "flow") == [1, 2, 3]
    assert chunk_latest_at(chunk, "day", 5, "flow") == 3
    assert chunk.take(np.array([1, 2, 0]), "sorted").has_ascending_rows
    assert not chunk.has_ascending_rows
    assert Chunk.from_rows("r", "pump", [Row(2, {}, {"v": 1}), Row(1, {}, {"v": 1})]).first_row_id == 1
