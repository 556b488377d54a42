"""The gates' measures against their slow twins, over rows of which many are faulty in every way."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.engine.calendar import Drops
from spark_jobs.engine.hashes import bag, hashes, in_share
from spark_jobs.engine.measures import (
    balance,
    chains,
    chunks,
    drops,
    nonzero_places,
    rates,
    states,
    survivors,
    total,
    updates,
    versions,
    windows,
)
from spark_jobs.engine.measures.sums import Scaled
from spark_jobs.engine.twins.adaptive_windows import change_of_rates
from spark_jobs.engine.windows import (
    AdaptiveKind,
    Calendar,
    Cuts,
    Deltas,
    Hopping,
    Sessions,
    Sliding,
    Trigger,
    WindowKind,
)
from tests.effort import tries
from tests.engine import measure_twins as twins

INT, TEXT = pa.int64(), pa.string()
LISTS = pa.list_(INT)

small = st.integers(0, 4)
perhaps = st.none() | small
texts = st.sampled_from(["a", "b", "c"])
lists = st.none() | st.lists(perhaps, max_size=4)
ids = st.none() | st.lists(small, max_size=4)
eras = st.sampled_from(["live", "closing"])


def tables(columns: dict[str, tuple[Any, pa.DataType]], size: int = 12) -> st.SearchStrategy[pa.Table]:
    """Tables of rows with these columns: how values are drawn, and their type."""
    row = st.fixed_dictionaries({name: drawn for name, (drawn, _) in columns.items()})
    schema = pa.schema([(name, kind) for name, (_, kind) in columns.items()])
    return st.lists(row, max_size=size).map(lambda rows: pa.Table.from_pylist(rows, schema=schema))


def halves(table: pa.Table) -> list[pa.Table]:
    """The table as it is read, some rows at a time."""
    middle = table.num_rows // 2
    return [table.slice(0, middle), table.slice(middle)]


def parted(table: pa.Table, judge: Any) -> dict[str, list[int]]:
    """What a kernel says, of a table that comes in two chunks."""
    found = twins.added(judge(pa.concat_tables(halves(table))))
    return {name: values for name, values in found.items() if values}


CHUNKS = {
    "chunk_id": (texts, TEXT),
    "entity": (st.none() | texts, TEXT),
    "seq_no": (perhaps, INT),
    "rows": (perhaps, pa.int32()),
    "row_ids": (ids, LISTS),
    "event_times": (lists, LISTS),
    "event_min": (perhaps, INT),
    "event_max": (perhaps, INT),
    "t_x": (lists, LISTS),
    "min_x": (perhaps, INT),
    "max_x": (perhaps, INT),
    "sorted_x": (st.none() | st.booleans(), pa.bool_()),
    "c_v": (st.none() | st.lists(st.none() | texts, max_size=4), pa.list_(TEXT)),
    "diff": (st.sampled_from([-1, 1]), INT),
    "landing": (st.sampled_from([1, 2]), INT),
}


@settings(deadline=None)
@given(tables(CHUNKS))
def test_chunks(table: pa.Table) -> None:
    given_: dict[str, Any] = {"timelines": ["x"], "arrays": ["t_x", "c_v"]}
    judge = partial(chunks.judge_chunks, **given_, place_bits=1)
    assert parted(table, judge) == twins.each(table, partial(twins.chunk, **given_, bits=1))
    repeats = chunks.repeated_row_ids(halves(table))
    assert total(chunks.judge_repeated_rows(repeats)["repeated_row_ids"]) == twins.surplus(table.to_pylist())
    assert all(row["times"] > 1 for row in repeats.to_pylist())


UPDATES = {
    "batch": (st.none() | st.sampled_from(["T1", "M2", "U3", "none"]), TEXT),
    "time": (perhaps, INT),
    "diff": (st.none() | st.integers(-2, 2), INT),
    "row_id": (perhaps, INT),
    "entity": (st.none() | texts, TEXT),
    "event_time": (perhaps, INT),
    "below_horizon": (st.sampled_from([None, 1]), pa.int32()),
}


@settings(deadline=None)
@given(tables(UPDATES), small)
def test_updates(table: pa.Table, sealed: int) -> None:
    intervals = {"T1": (1, 3), "M2": (0, 2), "U3": (3, 1 << 62)}
    judge = partial(updates.judge_updates, intervals=intervals, sealed_us=sealed, merged=["M2"])
    twin = partial(twins.update, intervals=intervals, sealed=sealed, merged=["M2"])
    alone = {name: value for name, value in parted(table, judge).items() if name != "updates_out_of_order"}
    assert alone == twins.each(table, twin)
    assert updates.out_of_order(table).tolist() == twins.out_of_order(table.to_pylist())
    repeats = updates.repeated_updates(halves(table))
    assert total(updates.judge_repeated_updates(repeats)["repeated_updates"]) == twins.repeated(table.to_pylist())
    assert total(updates.taken_from(table)["updates_added"]) == -sum(u["diff"] or 0 for u in table.to_pylist())


FACTS = st.tuples(st.integers(0, 1), st.just(1), st.integers(1, 2), st.sampled_from(["", "a.b", "a.c", "d.b"]))
NOTES = st.dictionaries(
    st.sampled_from("TMU"), st.tuples(st.sampled_from(["0 to 1", "0 to 2"]), st.sampled_from([None, 0, 1]), FACTS)
)


@settings(deadline=None)
@given(NOTES, NOTES, st.dictionaries(st.sampled_from("TMU"), FACTS))
def test_surviving_batches(before: Any, after: Any, stored: Any) -> None:
    def noted(notes: Any) -> dict[str, survivors.BatchNote]:
        return {
            handle: survivors.BatchNote(bounds, level, survivors.BatchFacts(*facts))
            for handle, (bounds, level, facts) in notes.items()
        }

    facts = {handle: survivors.BatchFacts(*of_files) for handle, of_files in stored.items()}
    changes = survivors.changed_batches(noted(before), noted(after), facts)
    parts = [(row["batch"], row["changed"]) for row in changes.to_pylist()]
    assert parts == twins.changed_parts(before, after, stored)
    assert total(survivors.judge_changed_batches(changes)["batches_changed"]) == len(parts)
    assert survivors.changed_batches(noted(before), noted(before), {h: n.facts for h, n in noted(before).items()}) == (
        changes.schema.empty_table()
    )


@given(st.lists(st.integers(0, 100).map(float), max_size=20))
def test_the_change_of_a_rate_is_that_of_the_adaptive_windows_twin(given: list[float]) -> None:
    change = rates.rate_change(given)
    assert (change is None) == (len(given) < 10)
    if change is not None:
        assert change == pytest.approx(change_of_rates(given), rel=1e-12)


ENTITY_CHUNKS = {
    "landing": (st.integers(1, 2), INT),
    "seq_no": (st.integers(0, 1), INT),
    "entity": (st.none() | st.sampled_from("abcdefghijklmno"), TEXT),
    "rows": (st.integers(1, 9), INT),
    "diff": (st.sampled_from([1, -1]), INT),
}


@settings(deadline=None)
@given(tables(ENTITY_CHUNKS))
def test_the_busiest_entities_of_a_drop(table: pa.Table) -> None:
    counted = rates.EntityCounts()
    for half in halves(table):
        counted.add(half)
    for key in [(landing, drop) for landing in (1, 2) for drop in (0, 1)]:
        twin = Counter[str]()
        for row in table.to_pylist():
            if (row["landing"], row["seq_no"]) == key and row["entity"] is not None:
                twin[row["entity"]] += row["rows"] * row["diff"]
        by_rows = sorted(twin.items(), key=lambda item: (-item[1], item[0]))
        assert list(counted.busiest(key).items()) == by_rows[:10]


def test_entities_beyond_the_most_are_forgotten_from_the_rarest_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "MOST_COUNTED", 4)
    counted = rates.EntityCounts()
    for entities in ("abcde", "fgf"):
        n = len(entities)
        columns = {"landing": [1] * n, "seq_no": [0] * n, "entity": [*entities], "rows": [*range(9, 9 - n, -1)]}
        counted.add(pa.table({**columns, "diff": [1] * n}))
    assert counted.busiest((1, 0)) == {"f": 16, "a": 9, "b": 8, "g": 8}


VERSIONS = {
    "key": (st.none() | texts, TEXT),
    "start": (st.integers(0, 1), INT),
    "era": (eras, TEXT),
    "known_from": (st.integers(0, 2), INT),
    "revision": (st.integers(0, 2), pa.int32()),
    "token": (st.sampled_from([1, 2]), INT),
}


@settings(deadline=None)
@given(tables(VERSIONS), st.integers(1, 3))
def test_versions(table: pa.Table, shares: int) -> None:
    identity, found = ["key", "start"], Counter[str]()
    for share in range(shares):
        of_share = table.filter(pa.array(in_share(table["start"], share, shares)))
        things = versions.faulty_things(halves(of_share), identity=identity, token=2)
        found.update({name: total(adds) for name, adds in versions.judge_versions(things, repeated="repeated").items()})
    wanted = twins.versions(table.to_pylist(), identity, 2)
    all_things = versions.versions_of_things(table, identity=identity, token=2)
    exact = versions.judge_versions(all_things, repeated="repeated")
    assert {name: total(adds) for name, adds in exact.items()} == dict(found)
    assert dict(found) == dict.fromkeys(found, 0) | wanted


BOUNDED = {"era": (eras, TEXT), "known_from": (perhaps, INT), "known_to": (perhaps, INT)}


@settings(deadline=None)
@given(tables(BOUNDED))
def test_times_of_changes(table: pa.Table) -> None:
    wanted = [twins.wrong_time(row, 3) for row in table.to_pylist()]
    assert versions.at_wrong_time(table, 3).tolist() == wanted


KINDS: list[tuple[WindowKind, Any]] = [
    (Sliding(2, clip_at_zero=False), lambda start, end: end - start != 2),
    (Sessions(2), lambda start, end: end < start),
    (Hopping(2, 2, 1), lambda start, end: end - start != 2 or start % 2 != 1),
    (Hopping(3, 2, 0), lambda start, end: end - start != 3 or start % 2 != 0),
    (Calendar(1, "day"), lambda start, end: not 1 <= end - start <= 2 * 86_400_000_000),
    (
        AdaptiveKind(Cuts(1, 1, 1, 3, (Trigger("time"),), 1, 1), Deltas("d")),
        lambda start, end: not 0 <= end - start <= 3 - start % 3,
    ),
]
WINDOWS = {
    "key": (st.none() | texts, TEXT),
    "window_start": (st.none() | st.integers(-4, 4), INT),
    "window_end": (st.none() | st.integers(-4, 6), INT),
    "n": (perhaps, INT),
    **BOUNDED,
}


@pytest.mark.parametrize(("kind", "misplaced"), KINDS, ids=[type(kind).__name__ for kind, _ in KINDS])
@settings(deadline=None)
@given(table=tables(WINDOWS))
def test_windows(kind: WindowKind, misplaced: Any, table: pa.Table) -> None:
    def twin(row: twins.Row) -> twins.Row:
        live, start, end, n = row["era"] == "live", row["window_start"], row["window_end"], row["n"]
        return {
            "windows_of_wrong_length": live and None not in (start, end) and misplaced(start, end),
            "windows_without_key": None in (row["key"], start, end),
            "changes_at_wrong_time": twins.wrong_time(row, 3),
            "windows_without_rows": live and n is not None and n < 1,
            "rows_windowed": (1 if live else -1) * (n or 0),
        }

    judge = partial(
        windows.judge_windows,
        kind=kind,
        identity=["key", "window_start"],
        counter=("n",),
        known_from_us=3,
        balanced=True,
    )
    assert parted(table, judge) == twins.each(table, twin)


def test_rows_are_counted_inside_a_struct_and_nowhere() -> None:
    counts = pa.array([{"delta_count": 2}, {"delta_count": 0}, None])
    text = pa.array(["a"] * 3)
    bounds = {name: pa.array([0] * 3) for name in ("window_start", "window_end", "known_from")}
    rest = {"era": pa.array(["live"] * 3), "known_to": pa.nulls(3, INT)}
    table = pa.table({"key": text, "stats": counts, **bounds, **rest})
    judge = partial(windows.judge_windows, table, kind=Sessions(1), identity=["key"], known_from_us=0, balanced=True)
    found = twins.added(judge(counter=("stats", "delta_count")))
    assert (found["windows_without_rows"], found["rows_windowed"]) == ([0, 1, 0], [2, 0, 0])
    assert not {"windows_without_rows", "rows_windowed"} & set(judge(counter=()))


STATES = {
    "entity": (texts, TEXT),
    "timestamp": (perhaps, INT),
    "delta_count": (perhaps, INT),
    "names": (st.none() | st.lists(texts, max_size=2), pa.list_(TEXT)),
    "ints": (st.none() | st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=3), LISTS),
    "seen": (st.none() | st.lists(st.booleans(), max_size=2), pa.list_(pa.bool_())),
    **BOUNDED,
}


@settings(deadline=None)
@given(tables(STATES), st.booleans(), st.sampled_from([None, 1, 2]), st.booleans(), st.booleans())
def test_states(table: pa.Table, named: bool, width: int | None, everything: bool, sums: bool) -> None:
    given_: dict[str, Any] = {"vector": "ints", "named": named, "width": width, "sums": sums}
    judge = partial(states.judge_states, **given_, reached_us=3, known_from_us=2)
    assert parted(table, judge) == twins.each(table, partial(twins.state, **given_, reached=3, known_from=2))
    gained = states.gained_by_states(table, everything=everything, components=["x", "y"], deltas=True)
    wanted: dict[str, list[int]] = {"balance_of_x": [], "balance_of_y": [], "deltas_folded": []}
    for row in table.to_pylist():
        by = 1 if row["era"] == "live" else 0 if everything else -1
        values = [*(row["ints"] or []), None, None]
        for name, value in zip(wanted, [*values[:2], row["delta_count"]], strict=True):
            wanted[name].append(by * (value or 0))
    assert twins.added(gained) == wanted
    assert total(gained["balance_of_x"]) == sum(wanted["balance_of_x"])


wide = st.integers(-(2**63), 2**63 - 1)


@settings(deadline=None)
@given(st.lists(st.tuples(wide, st.integers(-2, 2)), max_size=20))
def test_sums_are_exact_beyond_64_bits(drawn: list[tuple[int, int]]) -> None:
    values, by = (np.array([row[i] for row in drawn], np.int64) for i in (0, 1))
    assert total(Scaled(values, by)) == sum(value * factor for value, factor in drawn)
    assert total(values) == sum(value for value, _ in drawn)
    assert nonzero_places(Scaled(values, by)).tolist() == [
        i for i, (value, factor) in enumerate(drawn) if value * factor
    ]


@settings(deadline=None)
@given(
    tables({"entity": (texts, TEXT), "at_delta": (perhaps, INT), "floats": (st.none(), pa.list_(pa.float64()))}, 5),
    tables({"row_id": (small, INT), "x": (perhaps, INT), "y": (st.none() | st.floats(width=32), pa.float64())}, 5),
    st.data(),
)
def test_states_beside_their_last_rows(held: pa.Table, rows: pa.Table, data: st.DataObject) -> None:
    told = {row["row_id"]: [row["x"], row["y"]] for row in rows.to_pylist()}
    faulty = [data.draw(st.booleans()) for _ in range(held.num_rows)]
    vectors = [
        [7.5, None] if bad else told.get(row["at_delta"], [1.0, 2.0])
        for row, bad in zip(held.to_pylist(), faulty, strict=True)
    ]
    held = held.set_column(2, "floats", pa.array(vectors, pa.list_(pa.float64())))

    def same(one: float | None, other: float | None) -> bool:
        return one == other or (one is not None and other is not None and one != one and other != other)  # noqa: PLR0124

    wanted = [
        (state["entity"], state["at_delta"])
        for state in held.to_pylist()
        for row in rows.to_pylist()
        if row["row_id"] == state["at_delta"]
        and not all(same(a, b) for a, b in zip(state["floats"], [row["x"], row["y"]], strict=True))
    ]
    found = states.off_their_row([held], [rows], vector="floats", row_columns=["x", "y"], single=False)
    assert Counter((row["entity"], row["at_delta"]) for row in found.to_pylist()) == Counter(wanted)


def test_a_negative_zero_and_a_rounded_number_say_the_same() -> None:
    held = pa.table({"entity": ["a"], "at_delta": [1], "floats": pa.array([[-0.0, float(np.float32(0.1))]])})
    rows = pa.table({"row_id": [1], "x": [0.0], "y": [0.1]})
    judge = partial(states.off_their_row, [held], [rows], vector="floats", row_columns=["x", "y"])
    assert (judge(single=True).num_rows, judge(single=False).num_rows) == (0, 1)


SEGMENTS = {
    "entity": (texts, TEXT),
    "start_time": (st.sampled_from([None, 1]), INT),
    "start_row": (st.sampled_from([None, 1]), INT),
    "end_time": (st.sampled_from([None, 1]), INT),
    "token": (st.sampled_from([1, 2]), INT),
    "deltas": (perhaps, INT),
    "dropped": (perhaps, INT),
    "refusals": (st.none() | st.lists(st.integers(0, 2), min_size=2, max_size=2) | st.just([]), pa.list_(pa.int8())),
    "row_ids": (st.lists(small, min_size=2, max_size=2), LISTS),
    "known_until": (st.just([]) | st.lists(perhaps, min_size=2, max_size=2), LISTS),
    **BOUNDED,
}


@settings(deadline=None)
@given(tables(SEGMENTS), st.booleans())
def test_segments(table: pa.Table, everything: bool) -> None:
    def twin(row: twins.Row) -> twins.Row:
        by = 1 if row["era"] == "live" else 0 if everything else -1
        return {
            "deltas_folded": by * (row["deltas"] or 0) + (row["dropped"] or 0),
            "segments_at_wrong_time": twins.wrong_time(row, 2),
            chains.REFUSING: bool(row["refusals"]),
        }

    judge = partial(chains.judge_segments, everything=everything, known_from_us=2)
    assert parted(table, judge) == twins.each(table, twin)
    rows = table.to_pylist()
    ends = chains.ends_of_chains(halves(table), token=2)
    assert {row["entity"]: row["ends"] for row in ends.to_pylist()} == twins.ends(rows, 2)
    refused = Counter(tuple(row.values()) for row in chains.refused_deltas(table, token=2).to_pylist())
    assert refused == twins.refused(rows, 2)
    past = {
        entity
        for entity in {row["entity"] for row in rows}
        if sum(r["dropped"] or 0 for r in rows if r["entity"] == entity) > 0
        and any(r["refusals"] for r in rows if r["entity"] == entity)
    }
    assert set(chains.past_balance(table).to_pylist()) == past


@settings(deadline=None)
@given(
    tables({"entity": (texts, TEXT), "row_id": (small, INT), "sign": (st.sampled_from([-1, 1]), INT)}, 6),
    tables(
        {
            "entity": (texts, TEXT),
            "row_id": (small, INT),
            "diff": (st.sampled_from([-1, 1]), INT),
            "touches": (st.booleans(), pa.bool_()),
        },
        6,
    ),
)
def test_updates_behind_refused_deltas(refused: pa.Table, rows: pa.Table) -> None:
    wanted = sum(
        delta["sign"] * row["diff"]
        for delta in refused.to_pylist()
        for row in rows.to_pylist()
        if (delta["entity"], delta["row_id"]) == (row["entity"], row["row_id"])
        and (delta["sign"] > 0 or not row["touches"])
    )
    assert total(windows.diffs(chains.weigh_updates(rows, refused), measure="diff")["diff"]) == wanted


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["", None, "a", "entity-00000001", "entity-00000002", "a"] * 50),
        pa.array([None, 0, -1, 2**63 - 1, 7, 7] * 50, INT),
        pa.array([1.5, None, float("nan")] * 100),
        pa.array([None, 3, 5] * 100, pa.timestamp("us", "UTC")),
        pa.array(range(300), pa.int32()),
    ],
    ids=["texts", "numbers", "floats", "times", "narrow"],
)
def test_equal_values_are_in_one_share(column: pa.Array) -> None:
    shares = np.array([in_share(pa.chunked_array([column]), share, 4) for share in range(4)])
    assert (shares.sum(axis=0) == 1).all()
    places: dict[str, set[int]] = {}
    for value, share in zip(column.to_pylist(), shares.argmax(axis=0).tolist(), strict=True):
        places.setdefault(repr(value), set()).add(share)
    assert all(len(of_value) == 1 for of_value in places.values())
    assert len(set().union(*places.values())) > 1 or len(places) < 4


@settings(deadline=None)
@given(st.lists(st.tuples(st.none() | st.text(max_size=4), perhaps), max_size=30))
def test_hashes_are_equal_where_values_are(drawn: list[tuple[str | None, int | None]]) -> None:
    columns = [pa.chunked_array([pa.array([row[i] for row in drawn], kind)]) for i, kind in enumerate((TEXT, INT))]
    found = hashes(columns).tolist()
    assert len(dict(zip(drawn, found, strict=True))) == len(set(found)) == len(set(drawn))
    assert {drawn[i]: found[i] for i in range(len(drawn))} == {drawn[~i]: found[~i] for i in range(len(drawn))}


@given(
    chunks=tables(
        {
            "seq_no": (small, INT),
            "landing": (small, INT),
            "diff": (st.sampled_from([1, -1]), INT),
            "rows": (small, INT),
            "event_times": (st.lists(perhaps | st.integers(0, 60), max_size=4), LISTS),
            "c_a": (lists, LISTS),
            "c_b": (st.none() | st.lists(st.none() | texts, max_size=4), pa.list_(TEXT)),
        }
    )
)
@settings(max_examples=tries(300))
def test_drops_are_told_as_the_twin_tells_them(chunks: pa.Table) -> None:
    whole = drops.drop_changes(pa.concat_tables(halves(chunks)), ["a", "b"], Drops(3, 10))
    expected = twins.drops(chunks.to_pylist(), ["a", "b"], 3, 10)
    assert {key: asdict(change) for key, change in whole.items()} == expected
    parts: dict[tuple[int, int], drops.DropChange] = {}
    for half in halves(chunks):
        for key, change in drops.drop_changes(half, ["a", "b"], Drops(3, 10)).items():
            parts.setdefault(key, drops.DropChange()).add(change)
    assert {key: asdict(change) for key, change in parts.items()} == expected


ROW_TYPES = pa.schema(
    [
        ("n", INT), ("x", pa.float64()), ("t", TEXT), ("ok", pa.bool_()), ("at", pa.timestamp("us", "UTC")),
        ("list", LISTS), ("texts", pa.list_(TEXT)), ("stats", pa.struct([("a", INT), ("b", pa.list_(INT))])),
        ("extra", pa.map_(TEXT, TEXT)),
    ]
)  # fmt: skip
bag_rows = st.lists(
    st.fixed_dictionaries(
        {
            "n": perhaps, "x": st.none() | st.sampled_from([0.1, -0.0, 1e300]), "t": st.none() | texts,
            "ok": st.none() | st.booleans(), "at": perhaps, "list": lists,
            "texts": st.none() | st.lists(st.none() | texts, max_size=3),
            "stats": st.none() | st.fixed_dictionaries({"a": perhaps, "b": lists}),
            "extra": st.none() | st.lists(st.tuples(texts, texts), max_size=2),
        }
    ),
    max_size=6,
)  # fmt: skip


@given(rows=bag_rows, others=bag_rows, seed=st.randoms())
@settings(max_examples=tries(300))
def test_a_bag_is_equal_for_equal_rows_in_any_order_and_for_no_others(
    rows: list[dict[str, Any]], others: list[dict[str, Any]], seed: Any
) -> None:
    def bag_of(given: list[dict[str, Any]]) -> tuple[int, int]:
        return bag(pa.Table.from_pylist(given, schema=ROW_TYPES))

    shuffled = [*rows]
    seed.shuffle(shuffled)
    assert bag_of(rows) == bag_of(shuffled)
    halved = [bag_of(rows[: len(rows) // 2]), bag_of(rows[len(rows) // 2 :])]
    assert bag_of(rows) == (sum(n for n, _ in halved), sum(total for _, total in halved) % 2**64)
    printed, others_printed = (sorted(repr(sorted(row.items())) for row in given) for given in (rows, others))
    same = printed == others_printed
    assert (bag_of(rows) == bag_of(others)) == same


@given(
    rows=st.lists(st.tuples(st.integers(-1, 2), small, texts, st.sampled_from([1, -1])), max_size=12),
    cut=st.integers(0, 12),
)
@settings(max_examples=tries(200))
def test_a_balance_is_what_is_left_of_each_file(rows: list[tuple[int, int, str, int]], cut: int) -> None:
    def of(given: list[tuple[int, int, str, int]], *, at: int = 0) -> balance.Balance:
        found = balance.Balance.of_nothing(3)
        for part in (given[:at], given[at:]):
            table = pa.table({"n": pa.array([r[1] for r in part], INT), "t": pa.array([r[2] for r in part], TEXT)})
            found.add(table, np.array([r[0] for r in part], np.int64), np.array([r[3] for r in part], np.int64))
        return found

    left: dict[int, Counter[tuple[int, str]]] = {}
    for file, n, text, diff in rows:
        left.setdefault(file, Counter())[n, text] += diff
    whole = of(rows, at=cut)
    assert [whole.rows[file] for file in (0, 1, 2, -1)] == [
        sum(left.get(file, Counter()).values()) for file in (0, 1, 2, -1)
    ]
    # what is left, row by row, is the same balance; with one row more it is another one of that file alone
    plain = [
        (file, n, text, 1 if k > 0 else -1)
        for file, c in left.items()
        for (n, text), k in c.items()
        for _ in range(abs(k))
    ]
    assert not whole.differs(of(plain)).any()
    assert whole.differs(of([*rows, (1, 7, "z", 1)])).tolist() == [False, True, False, False]
