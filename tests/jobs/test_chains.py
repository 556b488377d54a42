"""Chains in the pipeline, on real Spark and Delta: what they answer is what a replay of the trace's updates says."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from spark_jobs.config import Settings
from spark_jobs.engine.deltas import REGISTERED, Delta, Op, Refusal, Status
from spark_jobs.engine.twins.deltas import NaiveEntity
from spark_jobs.errors import ParameterError
from spark_jobs.reads.as_of import entity_state, states_at
from spark_jobs.reads.chain_metrics import chain_metrics
from spark_jobs.reads.state_reads import entity_history, rollback_rows
from spark_jobs.sources import load_source
from spark_jobs.storage.coordination.read_counts import count_read
from spark_jobs.storage.descriptions.times import micros
from spark_jobs.storage.names import chain_views
from spark_jobs.upkeep.pins import PinExists, drop_pin, make_pin, pins
from tests.jobs.harness import DAY, MINUTE, START, Session, _iso, lake_of, run, write_lines, write_source
from tests.support.distribution import distribute_all

HEAD = """
source: meters
start: 2024-01-01
landing: {path: "meters/{date}/*", format: ndjson}
columns:
  id: string
  meter: string
  at: timestamp
  load: {type: int, optional: true}
  heat: {type: float, optional: true}
  gone: {type: bool, optional: true}
  op: {type: string, optional: true}
  cells: {type: string, optional: true}
  numbers: {type: string, optional: true}
  factor: {type: float, optional: true}
  how: {type: string, optional: true}
  after: {type: string, optional: true}
timelines: [at]
event_time: at
entity: meter
delta_id: id
"""
UPSERT = (
    HEAD
    + """
state: {mode: upsert, components: [load, heat], delete_when: gone}
compaction: {strategy: tiered, keep_recent: 1, delta_threshold: 3}
"""
)
OPERATIONS = (
    HEAD
    + """
state:
  mode: operations
  operations: {op: op, indices: cells, values: numbers, scalar: factor, transform: how, parent: after}
compaction: {strategy: full, delta_threshold: 2}
"""
)
Row = dict[str, Any]


@pytest.fixture
def home(spark_settings: Settings, tmp_path: Any) -> Settings:
    return spark_settings.model_copy(update={"home": tmp_path, "landing": tmp_path / "landing"})


@pytest.fixture(params=["in this process", "in tasks"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where chains are worked on: the entities of a large day are dealt out to the tasks of a Spark job."""
    if request.param == "in tasks":
        distribute_all(monkeypatch)
    return str(request.param)


def write(home: Settings, drop: int, rows: list[Row], name: str = "a.ndjson") -> None:
    lines = [json.dumps({**row, "at": _iso(START + row["at"] * MINUTE)}) for row in rows]
    write_lines(home, drop, lines, name)


def updates(spark: Session) -> list[Row]:
    """What the trace holds, by visible time."""
    columns = ["entity", "row_id", "diff", *[c for c in spark.table("trace.meters_updates").columns if c[:2] == "c_"]]
    times = [f"unix_micros({c}) AS {c}" for c in ("event_time", "time")]
    rows = spark.table("trace.meters_updates").selectExpr(*columns, *times).collect()
    return sorted((row.asDict() for row in rows), key=lambda r: (r["time"], r["diff"]))


def replayed(
    rows: list[Row], means: Any, event_us: int, known_us: int, refused: set[tuple[str, int, str]] | None = None
) -> dict[str, NaiveEntity]:
    """The slow twin: the updates known at that time, one after the other; `refused` takes what it refuses."""
    standing: dict[tuple[str, int], Row] = {}
    for row in rows:
        if row["time"] <= known_us and row["event_time"] <= event_us:
            place = (row["entity"], row["row_id"])
            standing |= {place: row} if row["diff"] > 0 else {}
            standing = {k: v for k, v in standing.items() if row["diff"] > 0 or k != place}
    ids = {row["c_id"]: row["row_id"] for row in rows}
    found: dict[str, NaiveEntity] = {}
    for entity in {entity for entity, _ in standing}:
        deltas = [means(row, ids) for (e, _), row in standing.items() if e == entity]
        found[entity] = NaiveEntity(np.dtype("float64"), 2 if means is upserted else None, REGISTERED)
        reasons = zip(deltas, found[entity].replay(deltas), strict=True)
        if refused is not None:
            refused |= {(entity, d.row_id, reason.code) for d, reason in reasons if reason is not Refusal.NONE}
    return found


def upserted(row: Row, ids: dict[str, int]) -> Delta:
    place = {"entity": row["entity"], "event_time": row["event_time"], "row_id": row["row_id"]}
    if row["c_gone"]:
        return Delta(**place, op=Op.DELETE)
    cells = [(i, float(v)) for i, v in enumerate((row["c_load"], row["c_heat"])) if v is not None]
    return Delta(**place, op=Op.UPSERT, indices=[i for i, _ in cells], values=[v for _, v in cells])


def operated(row: Row, ids: dict[str, int]) -> Delta:
    listed = [json.loads(row[c]) if row[c] else [] for c in ("c_cells", "c_numbers")]
    parent = None if row["c_after"] is None else ids.get(row["c_after"], -9)
    return Delta(
        row["entity"], row["event_time"], row["row_id"], Op[row["c_op"].upper()], indices=listed[0], values=listed[1],
        scalar=row["c_factor"] or 0.0, transform=row["c_how"], parent=parent,
    )  # fmt: skip


def vectors(found: dict[str, NaiveEntity]) -> dict[str, list[Any]]:
    states = {entity: twin.state() for entity, twin in found.items()}
    return {
        entity: [v if seen else None for v, seen in zip(state.vector, state.seen, strict=True)]
        for entity, state in states.items()
        if state.status is Status.LIVE
    }


def answers_are_a_replays(spark: SparkSession, home: Settings, means: Any, known: list[int]) -> int:
    """Every (event time, visible time) of a grid; returns how many states were compared."""
    source, lake = load_source(home.sources / "meters.yml"), lake_of(spark)
    rows = [row for row in updates(spark) if row["entity"] != "s"]
    times = sorted({row["event_time"] for row in rows})
    compared = 0
    for known_us in known:
        for event_us in (times[len(times) // 3], times[-1]):
            states = states_at(lake, source, event_us=event_us, known_us=known_us).collect()
            given = {r.meter: list(r.vector) if "vector" in r else [r.load, r.heat] for r in states if r.meter != "s"}
            expected = vectors(replayed(rows, means, event_us, known_us))
            assert given == expected, (event_us, known_us)
            for entity in (*given, "nobody"):
                (row,) = entity_state(lake, source, entity, event_us=event_us, known_us=known_us).to_pylist() or [None]
                one = row and (row["vector"] if "vector" in row else [row["load"], row["heat"]])
                assert one == given.get(entity), (entity, event_us, known_us)
            compared += len(given)
    return compared


def segments(spark: Session) -> dict[tuple[str, int, int], Row]:
    live = spark.sql("SELECT * FROM gold.chain_history WHERE era = 'live'")
    return {(r.entity, r.start_row, r.token): r.asDict() for r in live.collect()}


def upserts() -> dict[int, list[Row]]:
    rows: dict[int, list[Row]] = {day: [] for day in range(3)}
    for i in range(30):
        meter, minute = "abc"[i % 3], i * 90
        # every sixth row lands a day late; `c` is quiet after the first day
        drop = min(minute // 1440 + (i % 6 == 4), 2)
        if meter == "c" and i > 9:
            continue
        load, heat = i if i % 4 else None, i / 7 if i % 5 else None
        row = {"id": f"d{i}", "meter": meter, "at": minute, "load": load, "heat": heat, "gone": i in (12, 16)}
        rows[drop].append(row)
    return rows


@pytest.mark.usefixtures("way")
@pytest.mark.spark
@pytest.mark.turns
def test_late_rows_restate_their_entitys_chain_alone_and_every_answer_is_a_replays(
    lake: SparkSession, home: Settings
) -> None:
    home = write_source(home, UPSERT)
    rows = upserts()
    known, touched = [], []
    for first, last in ((0, 0), (1, 2)):
        before = segments(lake) if first else {}
        landed = [row for day in range(first, last + 1) for row in rows[day]]
        for day in range(first, last + 1):
            write(home, day, rows[day])
        done = run(lake, home, first, last)[3]
        assert done["chains"]["segments"] >= done["chains"]["checkpoints"] > 0
        assert (done["chains"]["closed"] > 0, done["chains"]["dropped"]) == (first > 0, 0)
        known.append(micros(START + (last + 1) * DAY) - 1)
        touched.append({entity for entity, _, _ in segments(lake).keys() - before.keys()})
        assert touched[-1] == {row["meter"] for row in landed}
        state = {r.meter: [r.load, r.heat] for r in lake.table("gold.meters").collect()}
        assert state == vectors(replayed(updates(lake), upserted, known[-1], known[-1]))
    assert touched == [{"a", "b", "c"}, {"a", "b"}]
    between = known[0] + micros(START + DAY) - micros(START)
    assert answers_are_a_replays(lake, home, upserted, [known[0], between, known[1]]) > 6
    newest = lake.table("gold.chains").collect()
    assert {r.entity for r in newest} == {"a", "b", "c"}
    assert all(len(r.ops) < 3 + 1 for r in newest)
    assert lake.table("gold.checkpoints").count() >= 3
    assert [s["commits"] for s in run(lake, home, 2, 2)] == [0] * 5
    place = lake.sql("DESCRIBE DETAIL gold.chain_history").collect()[0].location
    elsewhere = DeltaTable(place).to_pyarrow_table(filters=[("era", "=", "live")], columns=["row_ids", "delta_floats"])
    held = sum(len(row["event_times"]) for row in segments(lake).values())
    assert (len(elsewhere["row_ids"].combine_chunks().flatten()), held) == (held, held)
    assert str(elsewhere.schema.field("delta_floats").type).startswith("list<")
    metrics = chain_metrics(lake_of(lake), load_source(home.sources / "meters.yml"))
    told = lake.table("gold.compactions").orderBy("known_from").collect()
    assert [(r.source, r.chains) for r in told] == [("meters", 3), ("meters", 2)]
    assert sum(r.deltas_merged for r in told) == metrics.merged == sum(r.delta_count for r in newest)
    assert (metrics.dropped, metrics.bytes_after) == (0, sum(r.bytes_after for r in told))
    assert min(min(r.bytes_before, r.bytes_after) for r in told) > 100
    assert (metrics.chains, metrics.refused) == (3, 0)
    assert (metrics.deltas, metrics.longest) == (sum(map(len, rows.values())), max(len(r.ops) for r in newest))
    assert min(metrics.bytes_of_updates, metrics.bytes_of_chains) > 1000


@pytest.mark.spark
@pytest.mark.long
def test_a_rollback_is_new_deltas_and_a_pin_holds_what_was(lake: SparkSession, home: Settings) -> None:
    home = write_source(home, UPSERT)
    rows = [
        {"id": "1", "meter": "a", "at": 1, "load": 1, "heat": 0.1},
        {"id": "2", "meter": "a", "at": 5, "load": 2},
        {"id": "3", "meter": "a", "at": 9, "gone": True},
        {"id": "4", "meter": "a", "at": 11, "heat": 7.0},
        {"id": "5", "meter": "b", "at": 12, "load": 5},
    ]
    write(home, 0, rows)
    run(lake, home, 0, 0)
    source, tables = load_source(home.sources / "meters.yml"), lake_of(lake)
    then, now = micros(START + 6 * MINUTE), micros(START + 12 * MINUTE)
    told = [(v.op, v.refusal, v.state.status, v.state.vector) for v in entity_history(tables, source, "a")]
    assert told == [
        (Op.UPSERT, None, Status.LIVE, (1.0, 0.1)),
        (Op.UPSERT, None, Status.LIVE, (2.0, 0.1)),
        (Op.DELETE, None, Status.DELETED, ()),
        (Op.UPSERT, None, Status.LIVE, (None, 7.0)),
    ]
    assert entity_history(tables, source, "nobody") == []
    with pytest.raises(ParameterError, match="after the newest delta"):
        rollback_rows(tables, source, "a", then, at_us=micros(START + 11 * MINUTE))
    pinned = make_pin(tables, [source], "first_day")
    assert pinned.tables == ["first_day__meters_state", "first_day__meters_versions"]
    with pytest.raises(PinExists):
        make_pin(tables, [source], "first_day")
    assert drop_pin(tables, "first_day") == pinned.tables
    assert (pins(tables), "first_day__meters_state" in tables.catalog.names("pins")) == ([], False)
    with pytest.raises(ParameterError, match="the name of a pin"):
        drop_pin(tables, "first_day")
    assert make_pin(tables, [source], "first_day") == pinned

    back = rollback_rows(tables, source, "a", then, at_us=now)
    assert [{k: v for k, v in row.items() if k != "at"} for row in back] == [
        {"meter": "a", "load": 2.0, "heat": 0.1, "id": f"rollback-a-{now}"}
    ]
    gone = rollback_rows(tables, source, "a", micros(START), at_us=now)
    assert [row.get("gone") for row in gone] == [True]
    assert rollback_rows(tables, source, "a", now, at_us=now) == []
    write_lines(home, 1, [json.dumps({**row, "at": row["at"].isoformat()}) for row in back])
    run(lake, home, 1, 1)
    state = {r.meter: [r.load, r.heat] for r in lake.table("gold.meters").collect()}
    assert state == {"a": [2.0, 0.1], "b": [5.0, None]}
    assert [v.op for v in entity_history(tables, source, "a")] == [Op.UPSERT, Op.UPSERT, Op.DELETE, *[Op.UPSERT] * 2]
    between = states_at(tables, source, event_us=micros(START + 10 * MINUTE)).collect()
    assert [r.meter for r in between] == []
    copied = {r.meter: [r.load, r.heat] for r in lake.table("pins.first_day__meters_state").collect()}
    assert copied == {"a": [None, 7.0], "b": [5.0, None]}
    assert [(pin.name, pin.tables) for pin in pins(tables)] == [("first_day", pinned.tables)]
    asked = "SELECT meter, load, heat FROM pins.first_day__meters_versions WHERE valid_from <= {0} AND"
    asked += " (valid_to > {0} OR valid_to IS NULL) ORDER BY meter"
    held = {}
    for minute in (4, 6, 9, 10, 11, 12):
        at = f"timestamp_micros({micros(START + minute * MINUTE)})"
        held[minute] = [tuple(row) for row in lake.sql(asked.format(at)).collect()]
    first, second, third, other = ("a", 1.0, 0.1), ("a", 2.0, 0.1), ("a", None, 7.0), ("b", 5.0, None)
    assert held == {4: [first], 6: [second], 9: [], 10: [], 11: [third], 12: [third, other]}


def operations() -> dict[int, list[Row]]:
    first = [
        {"id": "1", "meter": "a", "at": 10, "op": "create", "numbers": "[1.5, 2.5]"},
        {"id": "2", "meter": "a", "at": 20, "op": "scale", "factor": 0.1},
        {"id": "3", "meter": "a", "at": 30, "op": "create", "numbers": "[9, 9]"},
        {"id": "4", "meter": "a", "at": 40, "op": "sparse", "cells": "[1]", "numbers": "[7]", "after": "2"},
        {"id": "5", "meter": "a", "at": 50, "op": "sparse", "cells": "[0, 1]", "numbers": "[7]"},
        {"id": "6", "meter": "b", "at": 60, "op": "offset", "factor": 2.0},
        {"id": "7", "meter": "b", "at": 70, "op": "dense", "numbers": "[null, 3, -0.0]"},
        {"id": "8", "meter": "b", "at": 80, "op": "transform", "how": "unheard"},
        {"id": "9", "meter": "b", "at": 90, "op": "delete"},
        {"id": "10", "meter": "b", "at": 100, "op": "scale", "factor": 2.0},
    ]
    # what the twin has no word for: lists that are none, and an operation that nobody knows
    strange = [
        {"id": "20", "meter": "s", "at": 1, "op": "dense", "numbers": "[1, 2]"},
        {"id": "21", "meter": "s", "at": 2, "op": "sparse", "cells": "first", "numbers": "[1]"},
        {"id": "22", "meter": "s", "at": 3, "op": "halve"},
        {"id": "23", "meter": "s", "at": 4, "op": "dense", "numbers": "[5, 6] 7"},
    ]
    second = [
        # late: what was refused before no longer is, and the reverse
        {"id": "11", "meter": "b", "at": 55, "op": "create", "numbers": "[1, 1, 1]"},
        {"id": "12", "meter": "a", "at": 15, "op": "delete"},
        {"id": "13", "meter": "a", "at": 1500, "op": "add", "cells": "[0]", "numbers": "[0.25]", "after": "4"},
        {"id": "14", "meter": "a", "at": 1510, "op": "add", "cells": "[0]", "numbers": "[1]", "after": "2"},
        {"id": "15", "meter": "c", "at": 1520, "op": "dense", "numbers": "[3]"},
        {"id": "16", "meter": "c", "at": 1530, "op": "transform", "how": "negate"},
    ]
    return {0: [*first, *strange], 1: second}


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.usefixtures("way")
def test_refused_deltas_are_listed_and_judged_again_with_their_chain(lake: SparkSession, home: Settings) -> None:
    home = write_source(home, OPERATIONS)
    known, strange = [], {("unreadable_list", "sparse"), ("unreadable_list", "dense"), ("unknown_operation", None)}
    for day, rows in operations().items():
        write(home, day, rows)
        run(lake, home, day, day)
        known.append(micros(START + (day + 1) * DAY) - 1)
        all_rows, refused = [row for row in updates(lake) if row["entity"] != "s"], set[tuple[str, int, str]]()
        twins = replayed(all_rows, operated, known[-1], known[-1], refused)
        listed = lake.table("gold.refused").collect()
        assert {(r.entity, r.row_id, r.reason) for r in listed if r.entity != "s"} == refused
        assert len(refused) > 3
        assert {(r.reason, r.op) for r in listed if r.entity == "s"} == strange
        state = {r.meter: list(r.vector) for r in lake.table("gold.meters").collect()}
        assert state.pop("s") == [1.0, 2.0]
        assert state == vectors(twins)
    assert answers_are_a_replays(lake, home, operated, known) > 4


@pytest.mark.spark
@pytest.mark.long
def test_chains_are_begun_and_given_up_with_the_source_file(lake: SparkSession, home: Settings) -> None:
    plain = HEAD + "state: {mode: add, datatype: int64, components: {readings: 1, load: load}}\n"
    home = write_source(home, plain)
    write(home, 0, [{"id": str(i), "meter": "ab"[i % 2], "at": i, "load": i} for i in range(9)])
    write(home, 1, [{"id": "9", "meter": "a", "at": 3, "load": 100}])
    run(lake, home, 0, 0)
    write_source(home, f"{plain}compaction: {{strategy: time_boundary, interval: 3 min, delta_threshold: 2}}\n")
    run(lake, home, 1, 1, accept_definition=True)
    sums = {r.meter: (r.readings, r.load) for r in lake.table("gold.meters").collect()}
    assert sums == {"a": (6, 120), "b": (4, 16)}
    assert lake.table("gold.checkpoints").count() > 2
    first = micros(START + DAY) - 1
    then = states_at(lake_of(lake), load_source(home.sources / "meters.yml"), known_us=first).collect()
    assert {r.meter: r.load for r in then} == {"a": 20, "b": 16}
    write_source(home, plain)
    run(lake, home, 2, 2, accept_definition=True)
    assert lake.table("gold.chains").count() == 0
    assert sums == {r.meter: (r.readings, r.load) for r in lake.table("gold.meters").collect()}


@pytest.mark.long
def test_a_sum_that_leaves_int64_refuses_its_row_and_not_the_run(lake: Session, home: Settings) -> None:
    add = "state: {mode: add, datatype: int64, components: {readings: 1, load: load}}\n"
    home = write_source(home, f"{HEAD}{add}compaction: {{strategy: tiered, delta_threshold: 20}}\n")
    write(home, 0, [{"id": str(i), "meter": "a", "at": 10 * i, "load": 2**62} for i in range(3)])
    run(lake, home, 0, 0)
    assert [(r.reason, r.op) for r in lake.table("gold.refused").collect()] == [("int64_overflow", "add")] * 2
    assert [(r.readings, r.load) for r in lake.table("gold.meters").collect()] == [(1, 2**62)]
    write(home, 1, [{"id": "late", "meter": "a", "at": 5, "load": -(2**62)}])
    run(lake, home, 1, 1)
    assert lake.table("gold.refused").count() == 1
    assert [(r.readings, r.load) for r in lake.table("gold.meters").collect()] == [(3, 2**62)]
    write(home, 1, [{"id": "other", "meter": "b", "at": 5, "load": 7}])
    run(lake, home, 1, 1)
    assert lake.table("gold.refused").count() == 2
    chains = {r.entity: r for r in lake.table("gold.chains").collect()}
    minutes = [(t.minute, op) for t, op in zip(chains["a"].event_times, chains["a"].ops, strict=True)]
    assert (chains["a"].pending, minutes) == (3, [(0, "add"), (10, "add"), (20, "add")])
    assert (len(chains["a"].row_ids), chains["a"].first_pending) == (3, chains["a"].event_times[0])


@pytest.mark.long
def test_adaptive_leaves_no_tail_to_a_class_of_entities_that_is_read_more_than_written(
    lake: Session, home: Settings
) -> None:
    home = write_source(
        home,
        f"{HEAD}state: {{mode: upsert, components: [load, heat]}}\n"
        "compaction: {strategy: adaptive, keep_recent: 1, delta_threshold: 2}\n",
    )
    counts = {"a": 2, "b": 12}
    rows = [{"id": f"{m}{i}", "meter": m, "at": 60 * i, "load": i} for m, n in counts.items() for i in range(n)]
    write(home, 0, rows)
    run(lake, home, 0, 0)
    for _ in range(9):
        # three deltas, as `a` has them tomorrow
        count_read(home.home, "meters", of_class=2)
    write(home, 1, [{"id": f"{m}late", "meter": m, "at": 1500, "load": 7} for m in counts])
    run(lake, home, 1, 1)
    pending = {r.entity: r.pending for r in lake.table("gold.chains").collect()}
    assert pending == {"a": 0, "b": 1}


def test_names_of_operations_and_refusals_are_the_kernels() -> None:
    assert list(chain_views.OPERATIONS) == [op.name.lower() for op in Op]
    assert list(chain_views.REFUSALS) == [reason.code for reason in Refusal if reason is not Refusal.NONE]
