"""The DataFrame functions against the twin: many random cases in one DataFrame, the case being part of the key."""

import datetime
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from pyspark.sql import DataFrame, Observation, SparkSession

from spark_jobs.engine.spark.windows import (
    avg,
    count,
    first,
    hopping_windows,
    last,
    max_,
    min_,
    session_windows,
    skipped_counts,
    skipped_rows,
    sliding_windows,
    sum_,
    tumbling_windows,
    variance,
)
from spark_jobs.engine.spark.windows.hot_keys import SampledFrame, key_hash
from spark_jobs.engine.twins import windows as naive
from spark_jobs.engine.twins.windows import LEAST, Content, NaiveRow
from spark_jobs.engine.windows import HotKey, Sessions, Sliding, WindowKind, spread
from spark_jobs.errors import ParameterError

pytestmark = [pytest.mark.spark, pytest.mark.turns]

Event = tuple[int, str | None, int | None, int, float | None]
"""A row of SCHEMA."""
SCHEMA = "case long, k string, t long, at long, v double"
CASES = 200
AGGREGATES = {"n": count(), "total": sum_("v"), "low": min_("v"), "high": max_("v"), "mean": avg("v")}
EDGES = {"first": first("v"), "last": last("v")}


def random_rows(seed: int, *, times: int = 30, nulls: bool = True) -> list[Event]:
    """Rows of CASES cases: few keys, many ties, out of order, arrivals with ties."""
    chance = random.Random(seed)
    rows: list[Event] = []
    for case in range(CASES):
        for place in range(chance.randrange(9)):
            value: float | None = chance.choice([1e16, 1.0, 0.1, -3.5, chance.gauss(0, 1)])
            key: str | None = chance.choice("ab")
            time: int | None = chance.randrange(times)
            if nulls and chance.random() < 0.1:
                key, time, value = chance.choice([(None, time, value), (key, None, value), (key, time, None)])
            rows.append((case, key, time, place // 2, value))
    return rows


def contents(
    rows: list[Event], kind: Callable[..., Content], *, null_values: str, grace: int | None = None, **parameters: int
) -> dict[tuple[int, str, int, int], list[Event]]:
    """Per (case, key, start, end) the rows in it, from the twin; with a grace by replaying the arrivals one by one."""
    wanted = {}
    for case in range(CASES):
        mine = [row for row in rows if row[0] == case and row[1] is not None and row[2] is not None]
        if null_values == "skip_row":
            mine = [row for row in mine if row[4] is not None]
        twins = []
        for _, key, time, at, _ in mine:
            assert time is not None
            reached = max(other[2] or 0 for other in mine if other[3] <= at)
            twins.append(NaiveRow(key, time, LEAST if grace is None else reached - grace))
        for window, numbers in kind(twins, **parameters).items():
            wanted[case, window.key, window.start, window.end] = [mine[n] for n in numbers]
    return wanted


def check(
    windows: DataFrame, wanted: dict[tuple[int, str, int, int], list[Event]], *, by_arrival: bool = False
) -> None:
    """The collected DataFrame against the twin's content, aggregates included."""
    found = {(row["case"], row["k"], row["window_start"], row["window_end"]): row for row in windows.collect()}
    assert sorted(found) == sorted(wanted)
    assert len(wanted) > CASES
    for window, rows in wanted.items():
        held = [row[4] for row in rows]
        values = [value for value in held if value is not None]
        row = found[window]
        assert row["n"] == len(rows)
        for name, twin in (("total", "sum"), ("low", "min"), ("high", "max"), ("mean", "avg")):
            assert row[name] == naive.VALUE_AGGREGATES[twin](values)
        order = [(row[2], row[3]) if by_arrival else (row[2],) for row in rows]
        assert row["first"] == naive.edge(held, order, last=False)
        assert row["last"] == naive.edge(held, order, last=True)


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("size", [0, 4, 40])
def test_sliding_windows_equal_the_twin_however_rows_are_partitioned(
    spark: SparkSession, size: int, partitions: int
) -> None:
    rows = random_rows(size)
    df = spark.createDataFrame(rows, SCHEMA).repartition(partitions)
    windows = sliding_windows(df, key=["case", "k"], time="t", size=size, aggregates=AGGREGATES | EDGES)
    check(windows, contents(rows, naive.sliding_windows, null_values="skip_row", size=size, clip_at_zero=True))


@pytest.mark.parametrize("grace", [0, 3, 10])
def test_grace_closes_windows_by_the_stream_time_at_arrival(spark: SparkSession, grace: int) -> None:
    rows = random_rows(grace)
    windows = sliding_windows(
        spark.createDataFrame(rows, SCHEMA),
        key=["case", "k"],
        time="t",
        size=4,
        aggregates=AGGREGATES | EDGES,
        grace=grace,
        arrival="at",
        stream="case",
        clip_at_zero=False,
    )
    wanted = contents(rows, naive.sliding_windows, null_values="skip_row", grace=grace, size=4, clip_at_zero=False)
    check(windows, wanted, by_arrival=True)


def test_stream_time_is_that_of_all_keys_together_by_default(spark: SparkSession) -> None:
    rows = [("a", 100, 0), ("b", 5, 1), ("b", 95, 2)]
    df = spark.createDataFrame(rows, "k string, t long, at long")
    windows = sliding_windows(df, key="k", time="t", size=1, aggregates={"n": count()}, grace=5, arrival="at")
    assert {(row.k, row.window_end) for row in windows.collect()} == {("a", 100), ("b", 95)}


def test_sessions_equal_the_twin(spark: SparkSession) -> None:
    rows = random_rows(7)
    windows = session_windows(
        spark.createDataFrame(rows, SCHEMA), key=["case", "k"], time="t", gap=3, aggregates=AGGREGATES | EDGES
    )
    check(windows, contents(rows, naive.session_windows, null_values="skip_value", gap=3))


def test_hopping_windows_equal_the_twin(spark: SparkSession) -> None:
    rows = random_rows(8)
    windows = hopping_windows(
        spark.createDataFrame(rows, SCHEMA),
        key=["case", "k"],
        time="t",
        size=10,
        advance=3,
        offset=1,
        aggregates=AGGREGATES | EDGES,
    )
    check(windows, contents(rows, naive.hopping_windows, null_values="skip_value", size=10, advance=3, offset=1))


def test_tumbling_windows_with_a_grace_equal_the_twin(spark: SparkSession) -> None:
    rows = random_rows(9)
    windows = tumbling_windows(
        spark.createDataFrame(rows, SCHEMA),
        key=["case", "k"],
        time="t",
        size=5,
        aggregates=AGGREGATES | EDGES,
        grace=2,
        arrival="at",
        stream="case",
    )
    wanted = contents(rows, naive.hopping_windows, null_values="skip_value", grace=2, size=5, advance=5, offset=0)
    check(windows, wanted, by_arrival=True)


@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz"])
def test_timestamps_are_windowed_in_microseconds_and_keep_their_type(spark: SparkSession, kind: str) -> None:
    df = spark.sql(
        f"SELECT * FROM VALUES ('a', {kind} '2013-01-01 00:00:00'), ('a', {kind} '2013-01-01 00:30:00') AS rows(k, t)"
    )
    windows = sliding_windows(df, key="k", time="t", size=datetime.timedelta(hours=1), aggregates={"n": count()})
    assert windows.schema["window_start"].dataType == df.schema["t"].dataType
    text = windows.selectExpr("cast(window_start AS string) s", "cast(window_end AS string) e", "n").collect()
    assert sorted(map(tuple, text)) == [
        ("2012-12-31 23:00:00", "2013-01-01 00:00:00", 1),
        ("2012-12-31 23:30:00", "2013-01-01 00:30:00", 2),
        ("2013-01-01 00:00:00.000001", "2013-01-01 01:00:00.000001", 1),
    ]


@pytest.mark.parametrize(
    "key",
    [
        "true",
        "1.5D",
        "1.50BD",
        "date '2013-01-01'",
        "timestamp '2013-01-01 00:00:00'",
        "X'00ff'",
        "array(1, 2)",
        "struct(1 AS a, 'b' AS b)",
        "interval '1' day",
    ],
)
def test_a_key_may_be_of_any_type_that_rows_can_be_grouped_by(spark: SparkSession, key: str) -> None:
    df = spark.sql(f"SELECT {key} AS `the.key`, id AS t FROM range(3)")
    windows = sliding_windows(df, key="the.key", time="t", size=1, aggregates={"n": count()})
    assert windows.schema["the.key"].dataType == df.schema["the.key"].dataType
    held = windows.collect()
    assert sorted(row.n for row in held) == [1, 2, 2]
    assert {repr(row[0]) for row in held} == {repr(df.head(1)[0][0])}


@pytest.mark.parametrize("tasks", [{}, {"rows_a_slice": 1}, {"rows_a_slice": None}])
def test_the_two_zeros_are_one_key(spark: SparkSession, tasks: dict[str, Any]) -> None:
    df = spark.sql("SELECT * FROM VALUES (0.0D, 1), (-0.0D, 2), (1.0D, 3), (2.0D, 4) AS rows(k, t)")
    windows = session_windows(df, key="k", time="t", gap=5, aggregates={"n": count()}, **tasks)
    assert sorted(tuple(row) for row in windows.collect()) == [(0.0, 1, 2, 2), (1.0, 3, 3, 1), (2.0, 4, 4, 1)]


def test_no_row_gives_no_window(spark: SparkSession) -> None:
    df = spark.createDataFrame([], SCHEMA)
    assert sliding_windows(df, key="k", time="t", size=4, aggregates=AGGREGATES).collect() == []


WRONG = [
    ("df", {"df": 5}),
    ("key", {"key": []}),
    ("key", {"key": "nokey"}),
    ("key", {"key": ["k", "k"]}),
    ("key", {"key": "m"}),
    ("time", {"time": "k"}),
    ("time", {"time": "notime"}),
    ("time", {"time": "v"}),
    ("size", {"size": -1}),
    ("size", {"size": 1.5}),
    ("size", {"size": True}),
    ("size", {"size": 2**63}),
    ("size", {"size": datetime.timedelta(seconds=1)}),
    ("aggregates", {"aggregates": {}}),
    ("aggregates", {"aggregates": {"n": "count"}}),
    ("aggregates", {"aggregates": {"n": sum_("nocolumn")}}),
    ("aggregates", {"aggregates": {"n": sum_("k")}}),
    ("aggregates", {"aggregates": {"K": count()}}),
    ("aggregates", {"aggregates": {"window_end": count()}}),
    ("arrival", {"arrival": "noarrival"}),
    ("arrival", {"grace": 5}),
    ("grace", {"grace": -1, "arrival": "at"}),
    ("grace", {"stream": "k"}),
    ("stream", {"grace": 5, "arrival": "at", "stream": "nostream"}),
    ("clip_at_zero", {"clip_at_zero": 1}),
]


@pytest.mark.parametrize(("parameter", "wrong"), WRONG, ids=[f"{name}-{n}" for n, (name, _) in enumerate(WRONG)])
def test_a_wrong_parameter_is_named_before_a_job_starts(
    spark: SparkSession, parameter: str, wrong: dict[str, object]
) -> None:
    df = spark.createDataFrame([], SCHEMA + ", m map<string, int>")
    parameters: dict[str, Any] = {"df": df, "key": "k", "time": "t", "size": 4, "aggregates": {"n": count()}} | wrong
    with pytest.raises(ParameterError) as refusal:
        sliding_windows(parameters.pop("df"), **parameters)
    assert refusal.value.facts["parameter"] == parameter
    assert refusal.value.code == "parameter"


@pytest.mark.parametrize(
    ("parameter", "function", "wrong"),
    [
        ("gap", session_windows, {"gap": 0}),
        ("size", tumbling_windows, {"size": 0}),
        ("size", hopping_windows, {"size": 0, "advance": 1}),
        ("advance", hopping_windows, {"size": 4, "advance": 0}),
        ("advance", hopping_windows, {"size": 4, "advance": 5}),
        ("advance", hopping_windows, {"size": 2_000_001, "advance": 2}),
        ("offset", hopping_windows, {"size": 4, "advance": 4, "offset": "1 day"}),
    ],
)
def test_shapes_that_leave_gaps_or_nothing_are_refused(
    spark: SparkSession, parameter: str, function: Callable[..., object], wrong: dict[str, int | str]
) -> None:
    df = spark.createDataFrame([], SCHEMA)
    with pytest.raises(ParameterError) as refusal:
        function(df, key="k", time="t", aggregates={"n": count()}, **wrong)
    assert refusal.value.facts["parameter"] == parameter


def test_what_a_grace_leaves_out_is_a_dataframe_of_its_own(spark: SparkSession) -> None:
    rows = [("a", 4, 0), ("a", 1, 1), ("a", 2, 2), (None, 9, 3), ("a", -1, 4)]
    df = spark.createDataFrame(rows, "k string, t long, at long")
    parameters: dict[str, Any] = {
        "key": "k",
        "time": "t",
        "size": 1,
        "aggregates": {"n": count()},
        "grace": 2,
        "arrival": "at",
    }
    windows = {(row.window_start, row.window_end, row.n) for row in sliding_windows(df, **parameters).collect()}
    assert windows == {(1, 2, 2), (2, 3, 1), (3, 4, 1)}
    skipped = {tuple(row) for row in skipped_rows(df, "sliding", **parameters).collect()}
    assert skipped == {
        ("a", 1, 1, 0, 1, "late"),
        (None, 9, 3, None, None, "null_key"),
        ("a", -1, 4, None, None, "negative_time"),
    }
    counts = {"null_key": 1, "null_time": 0, "null_value": 0, "negative_time": 1, "late": 1, "late_row": 0}
    counts["repeated_id"] = 0
    assert skipped_counts(df, "sliding", **parameters) == counts
    alone = spark.createDataFrame([("a", 9, 0), ("a", 1, 1)], "k string, t long, at long")
    assert skipped_counts(alone, "sliding", **parameters) == dict.fromkeys(counts, 0) | {"late": 1, "late_row": 1}


def test_an_unknown_kind_of_windows_is_refused(spark: SparkSession) -> None:
    with pytest.raises(ParameterError) as refusal:
        skipped_rows(spark.createDataFrame([], SCHEMA), "jumping")
    assert refusal.value.facts["parameter"] == "kind"


def long_rows(seed: int, *, keys: int = 3, a_key: int = 150, times: int = 600) -> list[Event]:
    """Rows of one case: few keys with many rows each."""
    chance = random.Random(seed)
    return [
        (
            case,
            "a",
            chance.randrange(times) - times // 2,
            place // 2,
            chance.choice([1e16, 0.1, None, chance.gauss(0, 1)]),
        )
        for case in range(keys)
        for place in range(a_key)
    ]


def hot_of(df: DataFrame, kind: WindowKind, *, key: Sequence[str], rows_a_slice: int) -> tuple[HotKey, ...]:
    return spread(SampledFrame(df, key_hash(key), "t"), kind, rows_a_slice).hot


@pytest.mark.parametrize("rows_a_slice", [12, 60])
def test_hot_keys_cut_by_time_give_the_same_windows(spark: SparkSession, rows_a_slice: int) -> None:
    rows = [*long_rows(rows_a_slice), *((case, "b", 5, 0, 1.0) for case in range(CASES))]
    df = spark.createDataFrame(rows, SCHEMA).cache()
    hot = hot_of(df, Sliding(4, False), key=["case", "k"], rows_a_slice=rows_a_slice)
    assert [key.cells for key in hot] == [{12: 13, 60: 3}[rows_a_slice]] * 3
    shared: dict[str, Any] = {
        "key": ["case", "k"],
        "time": "t",
        "aggregates": AGGREGATES | EDGES,
        "rows_a_slice": rows_a_slice,
    }
    windows = sliding_windows(df, size=4, clip_at_zero=False, grace=3, arrival="at", stream="case", **shared)
    wanted = contents(rows, naive.sliding_windows, null_values="skip_row", grace=3, size=4, clip_at_zero=False)
    check(windows, wanted, by_arrival=True)
    windows = hopping_windows(df, size=5, advance=2, offset=1, **shared)
    check(windows, contents(rows, naive.hopping_windows, null_values="skip_value", size=5, advance=2, offset=1))
    windows = tumbling_windows(df, size=5, offset=1, **shared)
    check(windows, contents(rows, naive.hopping_windows, null_values="skip_value", size=5, advance=5, offset=1))
    hot = hot_of(df, Sessions(3), key=["case", "k"], rows_a_slice=rows_a_slice)
    # cells of 46 ticks have no break near their beginnings, those of some 195 have
    assert sum(at is not None for key in hot for at in key.breaks or ()) == {12: 0, 60: 5}[rows_a_slice]
    windows = session_windows(df, gap=3, **shared)
    check(windows, contents(rows, naive.session_windows, null_values="skip_value", gap=3))
    df.unpersist()


def test_sessions_without_a_break_are_not_cut(spark: SparkSession) -> None:
    df = spark.range(400).selectExpr("'a' AS k", "id AS t")
    assert hot_of(df, Sessions(1), key=["k"], rows_a_slice=50) == ()
    held = session_windows(df, key="k", time="t", gap=1, aggregates={"n": count()}, rows_a_slice=50).collect()
    assert [tuple(row) for row in held] == [("a", 0, 399, 400)]


@pytest.mark.parametrize("kind", ["bigint", "timestamp", "timestamp_ntz"])
def test_slices_hold_at_the_ends_of_time_and_for_each_type_of_it(spark: SparkSession, kind: str) -> None:
    times = {
        "bigint": [f"{2**63 - 1}L - id", f"-{2**63 - 1}L + id", "id"],
        "timestamp": ["timestamp '1900-01-01' + id * interval '1' day"],
        "timestamp_ntz": ["timestamp_ntz '1900-01-01' + id * interval '1' day"],
    }[kind]
    rows = [f"SELECT '{place}' AS k, {time} AS t FROM range(200)" for place, time in enumerate(times)]
    df = spark.sql(" UNION ALL ".join(rows))
    size = 4 if kind == "bigint" else datetime.timedelta(days=3)
    parameters: dict[str, Any] = {
        "key": "k",
        "time": "t",
        "size": size,
        "clip_at_zero": False,
        "aggregates": {"n": count()},
    }
    plain = sorted(tuple(map(str, row)) for row in sliding_windows(df, rows_a_slice=None, **parameters).collect())
    sliced = sorted(tuple(map(str, row)) for row in sliding_windows(df, rows_a_slice=40, **parameters).collect())
    assert sliced == plain


KINDS: dict[str, tuple[Callable[..., DataFrame], dict[str, Any], Callable[..., Content]]] = {
    "sliding": (sliding_windows, {"size": 4, "clip_at_zero": False}, naive.sliding_windows),
    "sessions": (session_windows, {"gap": 3}, naive.session_windows),
    "hopping": (hopping_windows, {"size": 10, "advance": 3}, naive.hopping_windows),
}


@pytest.mark.parametrize("kind", KINDS)
def test_windows_at_the_ends_of_int64_are_those_of_the_twin(spark: SparkSession, kind: str) -> None:
    function, parameters, twin = KINDS[kind]
    near = [place for end in (-(2**63), 2**63 - 1) for place in (end, end // 2, end - 7 * (end > 0) + 7 * (end < 0))]
    times = [*near, *near, -(2**63) + 2, 2**63 - 3, 0]
    windows = function(
        spark.createDataFrame([("a", time) for time in times], "k string, t long"),
        key="k",
        time="t",
        aggregates={"n": count()},
        **parameters,
    )
    told = parameters | ({"offset": 0} if kind == "hopping" else {})
    wanted = {(w.start, w.end, len(rows)) for w, rows in twin([NaiveRow("a", time) for time in times], **told).items()}
    assert {tuple(row)[1:] for row in windows.collect()} == wanted


@pytest.mark.parametrize("n", [10**6, pytest.param(10**7, marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", KINDS)
def test_millions_of_rows_at_one_time_are_in_the_windows_over_it(spark: SparkSession, kind: str, n: int) -> None:
    function, parameters, twin = KINDS[kind]
    df = spark.range(n).selectExpr("'a' AS k", "5L AS t", "id AS v")
    values = {"n": count(), "total": sum_("v"), "last": last("v")}
    found = function(df, key="k", time="t", aggregates=values, **parameters).collect()
    told = parameters | ({"offset": 0} if kind == "hopping" else {})
    bounds = {(w.start, w.end) for w in twin([NaiveRow("a", 5)], **told)}
    assert {(row.window_start, row.window_end) for row in found} == bounds
    assert {(row.n, row.total, row.last) for row in found} == {(n, n * (n - 1) // 2, n - 1)}


@pytest.mark.parametrize("kind", KINDS)
def test_any_number_of_tasks_and_any_cut_give_the_same_bits(spark: SparkSession, kind: str) -> None:
    function, parameters, _ = KINDS[kind]
    rows = long_rows(3)
    values = AGGREGATES | EDGES | {"spread": variance("v")}
    shared = {"key": ["case", "k"], "time": "t", "aggregates": values} | parameters
    found = set()
    tasks = spark.conf.get("spark.sql.shuffle.partitions")
    assert tasks is not None
    try:
        for partitions, shuffled, rows_a_slice in ((1, 1, None), (7, 5, 12), (3, 2, 60)):
            spark.conf.set("spark.sql.shuffle.partitions", shuffled)
            df = spark.createDataFrame(rows, SCHEMA).repartition(partitions)
            windows = function(df, rows_a_slice=rows_a_slice, **shared).collect()
            found.add(repr(sorted(map(repr, windows))))
            random.Random(partitions).shuffle(rows)
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", tasks)
    assert len(found) == 1


def test_a_small_budget_flushes_and_the_observation_tells_it(spark: SparkSession) -> None:
    df = spark.range(60_000).selectExpr("id % 7 AS k", "(id * 7919) % 60000 AS t", "rand(1) AS v")
    parameters: dict[str, Any] = {"key": "k", "time": "t", "size": 50, "aggregates": {"n": count(), "total": sum_("v")}}
    results = []
    for max_bytes in (2**20, 100 * 2**20):
        told = Observation()
        windows = sliding_windows(df, memory_max_bytes=max_bytes, metrics=told, **parameters)
        assert windows.columns == ["k", "window_start", "window_end", "n", "total"]
        results.append(sorted(map(tuple, windows.collect())))
        assert told.get["rows"] == 60_000
        assert (told.get["flushed_runs"] > 1) == (told.get["flushed_bytes"] > 0) == (max_bytes == 2**20)
        assert 0 < told.get["peak_bytes"] <= max_bytes
    assert results[0] == results[1]


@pytest.mark.parametrize(
    "wrong",
    [
        {"rows_a_slice": 0},
        {"rows_a_slice": 1.5},
        {"memory_max_bytes": 100},
        {"memory_max_bytes": None},
        {"metrics": "m"},
    ],
)
def test_how_to_run_is_checked_too(spark: SparkSession, wrong: dict[str, Any]) -> None:
    df = spark.createDataFrame([], SCHEMA)
    with pytest.raises(ParameterError) as refusal:
        sliding_windows(df, key="k", time="t", size=4, aggregates={"n": count()}, **wrong)
    assert refusal.value.facts["parameter"] == next(iter(wrong))
