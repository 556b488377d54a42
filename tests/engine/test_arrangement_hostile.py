"""Whatever an arrangement in memory is given, it either takes it in and can read it for ever, or refuses and stays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.engine.updates import MalformedUpdates
from spark_jobs.errors import TidemarkError
from spark_jobs.model import Frontier
from spark_jobs.trace import UPDATE_SCHEMA, ArrowPlane, SteppedArrangement, updates_table
from tests.effort import tries

UNSIGNED = UPDATE_SCHEMA.set(2, pa.field("time", pa.uint64()))
NAN = float("nan")
TIMES: list[Any] = [0, 1, 3, 9, 2**62, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -1, None, 1.5, NAN, True, "3"]
DIFFS: list[Any] = [1, -1, 2**62, 2**63 - 1, -(2**63), 2**63, None, 1.0, NAN, True, "1"]
KEYS: list[Any] = ["a", "b", None, 1, NAN, b"a", ("a", 1), True, ["a"]]
NUMBERS: list[Any] = [*range(12), 2**63 - 1, 2**63, 2**64 - 1, 2**64, -1, 1.5, NAN, True, None, "3", np.int64(4)]
FRONTIERS: list[Any] = [*(Frontier(time) for time in NUMBERS), 3, None]


COLUMNS: list[tuple[str, list[Any], list[Any]]] = [
    ("key", ["a", "b"], KEYS), ("value", ["x"], KEYS), ("time", [*range(9)], TIMES), ("diff", [1, -1], DIFFS),
]  # fmt: skip


@st.composite
def tables(draw: st.DrawFn) -> Any:
    """Updates of which most are as they should be."""
    rows = draw(st.integers(0, 3))
    columns: dict[str, pa.Array] = {}
    for name, good, all_ in COLUMNS:
        cells = st.sampled_from(draw(st.sampled_from([good, good, good, all_])))
        values = draw(st.lists(cells, min_size=rows, max_size=rows))
        try:
            columns[name] = pa.array(values, UPDATE_SCHEMA.field(name).type if rows and draw(st.booleans()) else None)
        except (TypeError, ValueError, OverflowError):
            columns[name] = pa.array([str(value) for value in values])
    if draw(st.integers(0, 9)) == 0:
        columns.pop(draw(st.sampled_from(sorted(columns))))
    return draw(st.sampled_from([pa.table(columns)] * 9 + [columns, None]))


def call(name: str, *arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[str, tuple[Any, ...]]]:
    return st.tuples(st.just(name), st.tuples(*arguments))


number, frontier = st.sampled_from(NUMBERS), st.sampled_from(FRONTIERS)
small = st.integers(0, 12)
STEPS = st.lists(
    st.one_of(
        call("write", tables()), call("write", tables()), call("append", tables(), st.tuples(small, small | number)),
        call("seal", small | number), call("force_seal", number), call("allow_compaction", small.map(Frontier.at)),
        call("allow_compaction", frontier), call("hold", st.sampled_from(["h", None]), number, number),
        call("snapshot", number), call("unsealed_snapshot", frontier, frontier), call("drain"), call("unsealed_step"),
        call("advance", tables(), small | number), call("sweep"), call("compact"), call("evict"),
        call("release", st.just("h")),
    ),
    min_size=1,
    max_size=12,
)  # fmt: skip


def picture(arrangement: SteppedArrangement[pa.Table]) -> list[Any]:
    """Everything that can be read, of every form."""
    state = arrangement.state
    seal, since = state.seal.time or 0, state.since.time
    reads = [arrangement.updates(), arrangement.trace_snapshot()]
    reads.append(arrangement.unsealed_snapshot(Frontier.at(0), Frontier.empty()))
    if since is not None:
        reads += [arrangement.snapshot(at) for at in {since, seal - 1} if since <= at < seal]
    return [state, arrangement.journal.states(), arrangement.plane.stored(), *(read.to_pylist() for read in reads)]


@pytest.mark.parametrize("schema", [UPDATE_SCHEMA, UNSIGNED], ids=["signed", "unsigned"])
@given(steps=STEPS)
@settings(max_examples=tries(200), deadline=None)
def test_a_refusal_is_one_of_ours_and_changes_nothing(
    schema: pa.Schema, steps: list[tuple[str, tuple[Any, ...]]]
) -> None:
    arrangement = SteppedArrangement(ArrowPlane(schema))
    for name, arguments in steps:
        before = picture(arrangement)
        try:
            if name == "hold":
                arrangement.hold(arguments[0], arguments[1], expires_at=arguments[2])
            else:
                getattr(arrangement, name)(*arguments)
        except TidemarkError as refusal:
            assert refusal.next_step
            assert picture(arrangement) == before
        picture(arrangement)
    forced = any(name == "force_seal" for name, _ in steps)
    if not forced:
        arrangement.check()
        arrangement.drain()
        arrangement.compact()
        picture(arrangement)


def test_diffs_that_no_read_could_add_up_are_refused() -> None:
    arrangement = SteppedArrangement(ArrowPlane())
    arrangement.write(updates_table([("a", "x", 1, 2**62), ("b", "x", 1, 2**62), ("a", "x", 2, -1)]))
    for rows in ([("a", "x", 9, 2**62)], [("c", "x", 1, 2**62), ("c", "x", 2, 2**62)], [("b", "x", 1, 2**62)]):
        with pytest.raises(TidemarkError, match="diff_overflow"):
            arrangement.write(updates_table(rows))
        with pytest.raises(TidemarkError, match="diff_overflow"):
            arrangement.append(updates_table(rows), (1, 2))
    arrangement.write(updates_table([("a", "x", 9, 2**62 - 1), ("c", "x", 1, -(2**63))]))
    arrangement.seal(10)
    arrangement.drain()
    assert arrangement.snapshot(9).column("diff").to_pylist() == [2**63 - 2, 2**62, -(2**63)]


@pytest.mark.parametrize(
    "broken",
    [
        pa.table({"key": ["a"], "value": ["x"], "time": pa.array([2**63], pa.uint64()), "diff": [1]}),
        pa.table({"key": ["a"], "value": ["x"], "time": [1.0], "diff": [1]}),
        pa.table({"key": ["a"], "value": ["x"], "time": [None], "diff": [1]}),
        pa.table({"key": ["a"], "value": ["x"], "time": [1], "diff": pa.array([None], pa.int64())}),
        pa.table({"key": ["a"], "value": ["x"], "time": [1], "diff": [True]}),
        pa.table({"key": ["a"], "value": ["x"], "time": ["1"], "diff": [1]}),
        pa.table({"key": [[1]], "value": ["x"], "time": [1], "diff": [1]}),
        pa.table({"key": ["a"], "time": [1], "diff": [1]}),
        [("a", "x", 1, 1)],
    ],
    ids=lambda table: str(getattr(table, "schema", table)).replace("\n", ","),
)
def test_updates_of_another_form_are_refused_at_every_door(broken: Any) -> None:
    arrangement = SteppedArrangement(ArrowPlane())
    arrangement.write(updates_table([("a", "x", 3, 1)]))
    before = picture(arrangement)
    for door in (arrangement.write, lambda updates: arrangement.append(updates, (1, 2)), arrangement.plane.put):
        with pytest.raises(MalformedUpdates) as refusal:
            door(broken)
        assert refusal.value.next_step
    assert picture(arrangement) == before
    with pytest.raises(MalformedUpdates):
        updates_table([("a", "x", 2**64, 1)])


@pytest.mark.parametrize("kind", [pa.list_(pa.int64()), pa.struct([("a", pa.int64())])], ids=str)
def test_data_without_an_order_can_be_no_column(kind: pa.DataType) -> None:
    with pytest.raises(MalformedUpdates):
        ArrowPlane(UPDATE_SCHEMA.set(0, pa.field("key", kind)))


def test_other_widths_of_integers_and_coded_texts_are_taken() -> None:
    arrangement = SteppedArrangement(ArrowPlane())
    key = pa.array(["a", None]).dictionary_encode()
    narrow = {"time": pa.array([1, 2], pa.uint8()), "diff": pa.array([1, 1], pa.int8())}
    arrangement.write(pa.table({"key": key, "value": pa.nulls(2), **narrow}))
    assert arrangement.updates().column("key").to_pylist() == ["a", None]
