"""Chains as DataFrames on Spark: compaction, states and point-in-time joins say what a replay of the rows says."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.engine.deltas import (
    Adaptive,
    BelowHorizon,
    BelowSince,
    CompactionPolicy,
    FullMerge,
    Meaning,
    Status,
    Strategy,
    TieredMerge,
    TimeBoundary,
)
from spark_jobs.engine.spark.checkpoints import ChainFrame, compact_deltas, join_as_of, read_chains, write_chains
from spark_jobs.engine.twins.deltas import NaiveEntity
from spark_jobs.errors import ParameterError
from tests.connect_program import run_program
from tests.engine.test_deltas_segments import MEANINGS, replayed

pytestmark = pytest.mark.spark

ENTITIES = [f"e{i}" for i in range(7)]
SCHEMA = (
    "entity STRING, event_time BIGINT, time BIGINT, row_id BIGINT, diff BIGINT, x BIGINT, y DOUBLE, gone BOOLEAN,"
    " op STRING, indices ARRAY<BIGINT>, `values` ARRAY<DOUBLE>, scalar DOUBLE, id STRING, parent STRING"
)
STRATEGIES: list[Strategy] = [FullMerge(), TieredMerge(3), TimeBoundary(40), Adaptive(2, 1, keep_recent=2)]
QUESTIONS = [(e, t, k) for e in [*ENTITIES, "never"] for t in (0, 57, 100, 199, 400) for k in (30, 99, 151, 400)]
Row = dict[str, Any]


def rows_of_a_year() -> list[Row]:
    """Rows of all operations; some land late, some are taken back, one entity is hot."""
    chance = random.Random(11)
    made: list[Row] = []
    for row_id in range(400):
        event_time = chance.randrange(200)
        time = event_time + chance.choice([0, 0, 0, 40, 120])
        op = chance.choice(["create", "dense", "sparse", "sparse", "add", "upsert", "scale", "offset", "delete"])
        indices = [chance.randrange(2) for _ in range(chance.randrange(3))] if op in ("sparse", "add", "upsert") else []
        row = {
            "entity": "e0" if row_id % 3 == 0 else chance.choice(ENTITIES), "event_time": event_time, "time": time,
            "row_id": row_id, "diff": 1, "x": chance.choice([None, 1, 2, -5]), "y": chance.choice([None, 0.1, -0.0]),
            "gone": chance.random() < 0.1, "op": op, "indices": indices,
            "values": [chance.random()] * (2 if op in ("create", "dense") else len(indices)), "scalar": 0.3,
            "id": f"d{row_id}", "parent": chance.choice([None, None, None, f"d{row_id - 1}"]),
        }  # fmt: skip
        made.append(row)
        if chance.random() < 0.15:
            made.append({**row, "diff": -1, "time": time + chance.randrange(60)})
    return made


ROWS = rows_of_a_year()


@pytest.fixture(scope="module")
def deltas(spark: SparkSession) -> Any:
    columns = [part.split()[0].strip("`") for part in SCHEMA.split(", ")]
    return spark.createDataFrame([tuple(row[c] for c in columns) for row in ROWS], SCHEMA).localCheckpoint()


def vector(state: NaiveEntity) -> tuple[Any, ...] | None:
    """What a reader sees: null where the value is null or was never set."""
    found = state.state()
    if found.status is not Status.LIVE:
        return None
    return tuple(float(v) if s and v is not None else None for v, s in zip(found.vector, found.seen, strict=True))


def given(row: Any, names: list[str] | None, prefix: str = "") -> tuple[Any, ...] | None:
    if row[f"{prefix}at_delta"] is None:
        return None
    values = row[f"{prefix}vector"] if names is None else [row[f"{prefix}{name}"] for name in names]
    return tuple(None if v is None else float(v) for v in values)


def bits(vector: tuple[Any, ...] | None) -> Any:
    return None if vector is None else tuple(None if v is None else v.hex() for v in vector)


def frame(deltas: Any, mode: str, strategy: Strategy, **frontiers: int) -> ChainFrame:
    done = compact_deltas(deltas, MEANINGS[mode], CompactionPolicy(strategy, delta_threshold=4), as_of=200, **frontiers)
    return replace(done, segments=done.segments.localCheckpoint())


@pytest.mark.turns
@pytest.mark.parametrize(
    ("mode", "strategy"),
    [
        pytest.param(mode, strategy, marks=[pytest.mark.long] if mode in ("add", "upsert") else [], id=mode)
        for mode, strategy in zip([mode for mode in MEANINGS if mode != "sequenced"], STRATEGIES, strict=True)
    ],
)
def test_states_and_joins_are_what_a_replay_gives(
    spark: SparkSession, deltas: Any, mode: str, strategy: Strategy, tmp_path: Path
) -> None:
    chains = frame(deltas, mode, strategy)
    write_chains(spark, chains, str(tmp_path / "chains"))
    stored = read_chains(spark, str(tmp_path / "chains"), MEANINGS[mode])
    assert chains.files is None
    assert stored.files is not None
    names = MEANINGS[mode].names
    for event_time, known_at in ((57, 99), (199, 151)):
        found = {row.entity: bits(given(row, names)) for row in chains.states(event_time, known_at=known_at).collect()}
        expected = {e: bits(vector(replayed(ROWS, mode, e, event_time, known_at))) for e in ENTITIES}
        assert found == {e: v for e, v in expected.items() if v is not None}
    asked = spark.createDataFrame(QUESTIONS * 2, "entity STRING, at BIGINT, known BIGINT")
    joined = join_as_of(asked, "entity", "at", chains=chains, known_at="known", prefix="was_").collect()
    assert sorted((r.entity, r.at, r.known) for r in joined) == sorted(QUESTIONS * 2)
    from_files = join_as_of(asked, "entity", "at", chains=stored, known_at="known", prefix="was_").collect()
    assert sorted(map(repr, from_files)) == sorted(map(repr, joined))
    answers = {q: bits(vector(replayed(ROWS, mode, *q))) for q in QUESTIONS}
    for row in joined:
        assert bits(given(row, names, "was_")) == answers[row.entity, row.at, row.known], row
    assert sum(v is not None for v in answers.values()) > 30


def test_one_entity_is_read_from_its_own_segment_alone(deltas: Any) -> None:
    chains = frame(deltas, "upsert", TieredMerge(3))
    row = chains.states(150, entity="e0").collect()
    assert [bits(given(r, ["x", "y"])) for r in row] == [bits(vector(replayed(ROWS, "upsert", "e0", 150, 10**9)))]


def test_deltas_behind_both_frontiers_leave_the_chains_and_answers_stay(deltas: Any) -> None:
    whole, dropped = (
        frame(deltas, "operations", FullMerge()),
        frame(deltas, "operations", FullMerge(), since=400, horizon=150),
    )
    held = [chains.segments.selectExpr("sum(size(event_times))").head(1)[0][0] for chains in (whole, dropped)]
    assert held[0] == sum(row["diff"] for row in ROWS if row["diff"] > 0) > held[1] * 2
    for event_time in (150, 170, None):
        assert sorted(dropped.states(event_time).collect()) == sorted(whole.states(event_time).collect())


def test_no_state_leaks_that_was_not_known_at_the_rows_own_time(spark: SparkSession, deltas: Any) -> None:
    asked = spark.createDataFrame([(e, t) for e, t, _ in QUESTIONS], "entity STRING, at BIGINT").distinct()
    joined = join_as_of(asked, "entity", "at", chains=frame(deltas, "diff", TieredMerge(2))).collect()
    for row in joined:
        expected = bits(vector(replayed(ROWS, "diff", row.entity, row.at, row.at)))
        assert bits(given(row, ["x", "y"])) == expected


def test_times_below_the_frontiers_are_refused_by_name_and_never_answered(
    spark: SparkSession, deltas: Any, tmp_path: Path
) -> None:
    chains = frame(deltas, "diff", FullMerge(), since=400, horizon=150)
    write_chains(spark, chains, str(tmp_path / "chains"))
    stored = read_chains(spark, str(tmp_path / "chains"), chains.meaning, chains.frontiers)
    with pytest.raises(BelowHorizon):
        chains.states(149)
    with pytest.raises(BelowSince):
        chains.states(150, known_at=399)
    # a row without a time asks for nothing
    rows = [("e0", 150, 400), ("e0", None, 400), ("never", 150, None), (None, 150, 400)]
    for at, known, code in ((149, 400, "BelowHorizon"), (150, 399, "BelowSince"), (150, 400, None)):
        asked = spark.createDataFrame([*rows, ("e1", at, known)], "entity STRING, at BIGINT, known BIGINT")
        joined = join_as_of(asked, "entity", "at", chains=chains, known_at="known")
        from_files = join_as_of(asked, "entity", "at", chains=stored, known_at="known")
        if code is None:
            assert sorted(map(repr, from_files.collect())) == sorted(map(repr, joined.collect()))
            for row in joined.collect():
                lives = (
                    None not in (row.entity, row.at)
                    and vector(replayed(ROWS, "diff", row.entity, 150, 400)) is not None
                )
                assert (row.at_delta is not None) == lives, row
        else:
            with pytest.raises(PySparkException, match=code):
                joined.collect()
            with pytest.raises(PySparkException, match=code):
                from_files.collect()


ODD = "SELECT 'e1' AS `my entity`, 7L AS `a.b`, {} AS `At``time`, 1 AS q, 2 AS Q, named_struct('a b', array(1)) AS row"
"""A frame with columns of such names; its time is to be filled in."""


@pytest.mark.parametrize(
    ("time", "day", "count"),
    [
        pytest.param("100", 100, 3, id="int"),
        pytest.param("timestamp'1970-01-02 00:00:00.0001Z'", 86_400_000_000, 4, id="timestamp"),
        pytest.param("timestamp_ntz'1970-01-02 00:00:00.0001'", 86_400_000_000, 4, id="ntz"),
        pytest.param("date'1970-01-02'", 86_400_000_000, 3, id="date"),
    ],
)
def test_columns_of_every_name_and_every_kind_of_time_are_joined(
    spark: SparkSession, time: str, day: int, count: int
) -> None:
    at = [0, day - 1, day, day + 100, day + 101]
    made = [("e1", t, t, n, 1, 10**n) for n, t in enumerate(at)]
    deltas = spark.createDataFrame(made, "entity string, event_time long, time long, row_id long, diff long, x long")
    chains = compact_deltas(deltas, Meaning("add", "int64", {"row": "x", "Entity": 1}), CompactionPolicy(FullMerge()))
    zone = spark.conf.get("spark.sql.session.timeZone")
    assert zone is not None
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        asked = spark.sql(ODD.format(time))
        joined = join_as_of(asked, "MY entity", "At`time", chains=chains, prefix="was_")
        assert joined.columns == [*asked.columns, "was_row", "was_Entity", "was_timestamp", "was_at_delta"]
        assert [f.dataType for f in joined.schema][:6] == [f.dataType for f in asked.schema]
        if day > 100:
            joined = joined.withColumn("was_timestamp", F.unix_micros("was_timestamp"))
        (row,) = joined.collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    assert (row[0], row[1], row[3], row[4], row[5][0]) == ("e1", 7, 1, 2, [1])
    assert (row.was_row, row.was_Entity, row.was_timestamp) == (int("1" * count), count, at[count - 1])


def test_what_names_no_column_or_no_instant_is_refused_before_spark_reads(spark: SparkSession, deltas: Any) -> None:
    chains = frame(deltas, "diff", FullMerge())
    asked = spark.sql("SELECT 'e0' AS e, 1 AS at, 2.5 AS half, 'x' AS word, 3 AS twice, 4 AS twice, 5 AS X")
    for arguments, found in (
        ({"time": "at"}, "prefix"),
        ({"time": "half", "prefix": "p_"}, "decimal"),
        ({"time": "word", "prefix": "p_"}, "string"),
        ({"time": "at", "known_at": "word", "prefix": "p_"}, "string"),
        ({"time": "twice", "prefix": "p_"}, "2 among"),
        ({"time": "never", "prefix": "p_"}, "0 among"),
    ):
        with pytest.raises(ParameterError, match=found):
            join_as_of(asked, "e", chains=chains, **arguments)


PROGRAM = """
from pyspark.sql import SparkSession
from spark_jobs.engine.deltas import TieredMerge
from spark_jobs.engine.spark.checkpoints import compact_deltas, join_as_of
from spark_jobs.engine.deltas.frontiers import BelowHorizon, BelowSince
from spark_jobs.engine.deltas.cutting import CompactionPolicy
from spark_jobs.engine.deltas.mapping import Meaning

spark = SparkSession.builder.remote("local[2]").config("spark.sql.shuffle.partitions", "2").getOrCreate()
assert type(spark).__module__.startswith("pyspark.sql.connect")
rows = [(f"e{n % 5}", n, n + (n % 4 == 0) * 50, n, 1, n) for n in range(300)]
deltas = spark.createDataFrame(rows, "entity string, event_time long, time long, row_id long, diff long, x long")
policy = CompactionPolicy(TieredMerge(5), delta_threshold=9)
chains = compact_deltas(deltas, Meaning("add", "int64", {"x": "x"}), policy)


def twin(entity, at, known):
    found = [x for e, t, k, _, _, x in rows if e == entity and t <= at and k <= known]
    return sum(found) if found else None


got = {row.entity: row.x for row in chains.states(150, known_at=160).collect()}
assert got == {f"e{i}": twin(f"e{i}", 150, 160) for i in range(5)}, got
asked = spark.createDataFrame([(f"e{n % 6}", n * 37 % 330) for n in range(60)], "entity string, at long")
for row in join_as_of(asked, "entity", "at", chains=chains).collect():
    assert row.x == twin(row.entity, row.at, row.at), row
hours = asked.selectExpr("entity", "timestamp_micros(at) AS at")
for row in join_as_of(hours, "entity", "at", chains=chains, prefix="was_").collect():
    micros = row.at.microsecond
    assert row.was_x == twin(row.entity, micros, micros), row
    assert row.was_timestamp is None or row.was_timestamp <= row.at, row
spark.stop()
"""


@pytest.mark.long
def test_the_same_under_connect(tmp_path: Any) -> None:
    run_program(PROGRAM, tmp_path)
