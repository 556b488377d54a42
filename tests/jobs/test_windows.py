"""Windows of every kind and late policy in one source, on real Spark and Delta, against plain Python: whatever the
order in which days are run, once or twice, the published windows are those of the rows that have landed and are due."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.config import Settings
from spark_jobs.definitions.definition import Definition
from spark_jobs.restatement import late
from spark_jobs.sources import first_row_id, load_source, row_id
from spark_jobs.storage.descriptions.sql import name
from tests.jobs.harness import START, Session, path_of, run, write_lines, write_source
from tests.restatement.oracle import EPOCH, Row, Spec, action, expected

DAYS = 4
HOUR_US, DAY_US = 3_600_000_000, 86_400_000_000
START_US = (START - EPOCH) // timedelta(microseconds=1)
COLUMNS = {
    "id": "string", "site": "string", "unit": "int", "built": "date", "active": "bool", "since": "timestamp",
    "load": "int", "heat": "float", "label": "string", "at": "timestamp",
}  # fmt: skip
KEY = ("site", "unit", "built", "active", "since")
CALLS = {
    "n": "count()", "n_load": "count(load)", "total": "sum(load)", "mean": "avg(heat)", "low": "min(heat)",
    "high": "max(label)", "opening": "first(label)", "ending": "last(load)", "spread": "variance(load)",
    "labels": "count_distinct(label)", "median": "approx_quantile(load, 0.5, 0)", "sample": "collect(load, 3)",
    "sums": "vector_sum(load, heat)", "means": "vector_mean(load, heat)", "earliest": "min(at)",
}  # fmt: skip
LATE = {
    "reemit": "reemit",
    "within": {"policy": "reemit", "limit": "1 day"},
    "discard": "discard",
    "next_window": "next_window",
}
ADAPTIVE = {"target": 2, "min": HOUR_US, "max": 6 * HOUR_US, "reset": 12 * HOUR_US, "max_bytes": 200}
WINDOWS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    # what the source file says, what the oracle is told, the late policy
    "slid": ({"kind": "sliding", "size": "3 h"}, {"size": 3 * HOUR_US}, "within"),
    "sessions": ({"kind": "session", "gap": "4 h"}, {"gap": 4 * HOUR_US}, "discard"),
    "rotations": ({"kind": "session", "gap": "9 h"}, {"gap": 9 * HOUR_US}, "reemit"),
    "tumbled": (
        {"kind": "tumbling", "size": "6 h", "offset": "1 h"},
        {"size": 6 * HOUR_US, "offset": HOUR_US},
        "next_window",
    ),
    "fixed_ones": ({"kind": "fixed", "size": "5 h"}, {"size": 5 * HOUR_US}, "discard"),
    "hopped": (
        {"kind": "hopping", "size": "8 h", "advance": "3 h"},
        {"size": 8 * HOUR_US, "advance": 3 * HOUR_US},
        "next_window",
    ),
    "days": (
        {"kind": "calendar", "period": "1 day", "zone": "America/New_York"},
        {"period": (1, "day"), "zone": "America/New_York"},
        "next_window",
    ),
    "months": ({"kind": "calendar", "period": "1 month"}, {"period": (1, "month"), "zone": "UTC"}, "within"),
    "adapted": (
        {"kind": "adaptive", "target_batch_size": 2, "min": "1 h", "max": "6 h", "reset": "12 h",
         "memory": {"max_bytes": 200}, "triggers": ["time", "memory_pressure(0.9)", "count(3)"]},
        {**ADAPTIVE, "triggers": [("time", 0), ("memory_pressure", 0.9), ("count", 3)]},
        "within",
    ),
}  # fmt: skip
FEW = ("n", "mean", "ending", "sample")
OUTPUTS = {"slid": tuple(CALLS), "tumbled": tuple(CALLS)}


def source_text() -> str:
    windows = {
        window: {
            **written,
            "key": list(KEY),
            "aggregates": {output: CALLS[output] for output in OUTPUTS.get(window, FEW)},
            "late": LATE[policy],
        }
        for window, (written, _, policy) in WINDOWS.items()
    }
    document = {
        "source": "meters",
        "start": f"{START:%Y-%m-%d}",
        "landing": {"path": "meters/{date}/*", "format": "ndjson"},
        "columns": COLUMNS,
        "timelines": {"taken": "at"},
        "event_time": "taken",
        "entity": "site",
        "delta_id": "id",
        "windows": windows,
    }
    return json.dumps(document)


def spec_of(window: str) -> Spec:
    written, lengths, policy = WINDOWS[window]
    limit = DAY_US if policy == "within" else None
    kind = "tumbling" if written["kind"] == "fixed" else written["kind"]
    calls = []
    for output in OUTPUTS.get(window, FEW):
        function, _, inside = CALLS[output].removesuffix(")").partition("(")
        parts = [part.strip() for part in inside.split(",") if part.strip()]
        columns = tuple(part for part in parts if part in COLUMNS)
        calls.append((output, function, columns, tuple(float(part) for part in parts[len(columns) :])))
    return Spec(kind, lengths, {"within": "reemit"}.get(policy, policy), limit, calls)


@dataclass(frozen=True)
class Record:
    """One line of a file, and what it means to the oracle."""

    drop: int
    line: str
    row: Row


def records(seed: int, *, rows: int = 14) -> list[Record]:
    """Days of rows: some late by days, some future-dated, with ties of time and nulls in values and keys."""
    dice = random.Random(seed)
    made = []
    for drop in range(DAYS):
        for place in range(rows):
            hour = dice.choice([drop * 24 + dice.randint(0, 23)] * 3 + [dice.randint(-20, DAYS * 24)])
            at = START + timedelta(hours=hour, microseconds=dice.choice([0, 0, 0, -1, 1]))
            fields: dict[str, Any] = {
                "id": f"d{drop}-{place:03d}",
                "site": dice.choice("ab"),
                "unit": dice.choice([1, 1, 1, -(2**62), None]),
                "built": date(2020, 1, 1),
                "active": dice.choice([True, True, False]),
                "since": datetime(1969, 12, 31, 23, 0, 0, 1, tzinfo=UTC),
                "load": dice.choice([None, -3, 0, 7, 9]),
                "heat": dice.choice([None, 0.1, 1e16, -1e16, -0.0, 1 / 3]),
                "label": dice.choice([None, "x", "é"]),
                "at": at,
            }
            made.append(_record(drop, place, fields))
    return made


def _record(drop: int, place: int, fields: dict[str, Any]) -> Record:
    widths = {"int": 8, "float": 8, "timestamp": 8, "date": 4, "bool": 1}
    size = sum(
        len(value.encode()) if isinstance(value, str) else widths[COLUMNS[column]]
        for column, value in fields.items()
        if value is not None
    )
    key = tuple(_plain(fields[k]) for k in KEY)
    time = (fields["at"] - EPOCH) // timedelta(microseconds=1)
    values = {column: _plain(value) for column, value in fields.items()} | {"__bytes": size}
    row = Row(
        START_US + drop * DAY_US,
        time,
        key,
        row_id(first_row_id(drop, path_of(drop)), place + 1),
        values,
        fields["id"],
        fields["site"],
    )
    texts = {column: v.isoformat() if isinstance(v, date) else v for column, v in fields.items()}
    return Record(drop, json.dumps(texts), row)


def _plain(value: Any) -> Any:
    return (value - EPOCH) // timedelta(microseconds=1) if isinstance(value, datetime) else value


def published(spark: SparkSession, definition: Definition) -> list[str]:
    """The published windows, one line each: times as microseconds, floats to the last bit."""
    frame = spark.table(f"silver.{definition.name}").drop("revision", "known_from", "final")
    plain = [
        F.unix_micros(name(f.name)).alias(f.name) if f.dataType.typeName() == "timestamp" else F.col(name(f.name))
        for f in frame.schema
    ]
    return sorted(_line(row.asDict(recursive=True)) for row in frame.select(*plain).collect())


def _line(window: dict[str, Any]) -> str:
    return repr(sorted(window.items()))


def defined(window: str, rows: list[Row]) -> list[str]:
    """What `published` must give for these rows."""
    lines = []
    for (key, start, end, *number), outputs in expected(spec_of(window), rows).items():
        own = {"window_id": number[0]} if number else {}
        bounds = {"window_start": start, "window_end": end}
        lines.append(_line({**dict(zip(KEY, key, strict=True)), **bounds, **own, **outputs}))
    return sorted(lines)


@pytest.fixture
def home(spark_settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Settings of the shared session with landing, leases and quality of the test's own."""
    folder = tmp_path_factory.mktemp("home")
    settings = spark_settings.model_copy(update={"home": folder, "landing": folder / "landing"})
    return write_source(settings, source_text())


def write(settings: Settings, found: list[Record]) -> None:
    for drop in range(DAYS):
        write_lines(settings, drop, [r.line for r in found if r.drop == drop])


def due(found: list[Record], drops: set[int]) -> list[Row]:
    """What counts once these drops have run: landed, and not future-dated."""
    reached = START_US + (max(drops) + 1) * DAY_US
    return [r.row for r in found if r.drop in drops and r.row.time is not None and r.row.time < reached]


def check(spark: SparkSession, settings: Settings, found: list[Record], drops: set[int]) -> None:
    source = load_source(settings.sources / "meters.yml")
    for window in WINDOWS:
        rows = due(found, drops)
        assert published(spark, Definition(source, window)) == defined(window, rows), window


@pytest.mark.spark
@pytest.mark.long
def test_windows_of_every_kind_are_what_the_landed_rows_define_whatever_the_order_of_days(
    lake: SparkSession, home: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(late, "ROWS_A_TASK", 10)
    found = records(seed=23)
    write(home, found)
    run(lake, home, 2, 2)
    check(lake, home, found, {2})
    summaries = run(lake, home, 0, 3)
    check(lake, home, found, {0, 1, 2, 3})
    accounts = summaries[2]["accounts"]
    assert set(accounts) == set(WINDOWS)
    assert all(account["astray"] == 0 for account in accounts.values())
    memory = summaries[2]["memory"]
    assert {window: used["rows"] > 0 for window, used in memory.items()} == dict.fromkeys(WINDOWS, True)
    assert all(0 < used["peak_bytes"] <= 100 << 20 for used in memory.values())
    assert all(used["flushed_runs"] == used["flushed_bytes"] == 0 for used in memory.values())
    wanted = {(window, r.row_id): action(spec_of(window), r) for window in WINDOWS for r in due(found, {0, 1, 2, 3})}
    listed = {(r.definition, r.row_id): r.action for r in lake.table("silver.late").collect()}
    assert listed == {place: done for place, done in wanted.items() if done is not None}
    assert set(listed.values()) == {"next_window", "discard", "reemit", "partial", "null_key"}


def _daily(spark: Session, settings: Settings) -> None:
    for day in range(DAYS):
        run(spark, settings, day, day)


def _at_once(spark: Session, settings: Settings) -> None:
    run(spark, settings, 0, DAYS - 1)


def _backwards_and_twice(spark: Session, settings: Settings) -> None:
    for first, last in ((3, 3), (1, 2), (1, 2), (0, 0)):
        run(spark, settings, first, last)


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("slicing", [_daily, _at_once, _backwards_and_twice])
def test_any_slicing_of_random_days_publishes_what_their_rows_define(
    lake: SparkSession, home: Settings, seed: int, slicing: Callable[[Session, Settings], None]
) -> None:
    found = records(seed=seed, rows=40)
    write(home, found)
    slicing(lake, home)
    check(lake, home, found, set(range(DAYS)))
