"""Topics of a real Kafka broker as drops: each offset once, in whatever order drops are run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_jobs.config import Settings
from spark_jobs.extraction.errors import OffsetsLost, OriginUnreachable, OriginUnsuitable
from spark_jobs.jvm.jars import KAFKA
from spark_jobs.reads.why import why
from spark_jobs.sources import find_source
from spark_jobs.storage.lakes.spark_lake import SparkLake
from tests.empty_lake import empty
from tests.extraction.harness import home_with, land, loads, run, time
from tests.jobs.harness import published
from tests.kafka import Broker, broker, broker_jars

pytestmark = [
    pytest.mark.turns,
    pytest.mark.spark,
    pytest.mark.skipif(not KAFKA.is_there(Settings()), reason="Kafka's jars: make setup-kafka"),
]
TOPIC = "landing: {kind: topic, connection: events, topic: T, format: ndjson}"
EXTRACTS = "SELECT seq_no, range, rows FROM bronze.extracts ORDER BY number"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    missing = broker_jars()
    if missing is not None:
        pytest.skip(f"no broker: {missing}")
    with broker(tmp_path_factory.mktemp("kafka") / "broker") as found:
        yield found


def value(name: str, drop: int, minute: int, load: int) -> bytes:
    at, seen = (f"{time(drop, m):%Y-%m-%dT%H:%M:%SZ}" for m in (minute, minute + 1))
    return json.dumps({"id": name, "meter": f"m-{name[0]}", "at": at, "seen": seen, "load": load, "heat": 0.1}).encode()


def message(name: str, drop: int, minute: int, load: int, partition: int = 0) -> tuple[Any, ...]:
    return partition, time(drop, minute), b"k", value(name, drop, minute, load)


def home(settings: Settings, tmp_path: Path, running: Broker, topic: str, more: str = "") -> Settings:
    landing = TOPIC.replace("T,", f"{topic},").replace("ndjson}", f"ndjson{more}}}")
    return home_with(settings, tmp_path, landing, {"events": {"servers": running.servers}})


def ranges(lake: SparkSession) -> dict[int, dict[str, list[int]]]:
    return {row.seq_no: json.loads(row.range) for row in lake.sql(EXTRACTS).collect()}


@pytest.mark.long
def test_a_topic_is_read_once_whatever_the_order_of_drops(
    lake: SparkSession, spark_settings: Settings, tmp_path: Path, running: Broker
) -> None:
    topic = "meters.of-1"
    running.create(lake, topic, 2)
    first = [message("a1", 0, 5, 1), message("a2", 0, 900, 2, 1), message("b1", 1, 0, 3), message("b2", 1, 30, 4, 1)]
    running.send(lake, topic, *first, message("a3", 0, 1000, 9), message("c1", 2, 5, 5))
    settings = home(spark_settings, tmp_path / "daily", running, topic)
    tables = ("silver.hourly", "gold.meters")
    for day in range(3):
        run(lake, settings, day, day)
    daily = {name: published(lake, name) for name in tables}
    assert all(daily.values())
    # a3 has a time of drop 0, and came after b1: its drop is the one whose offsets it is among
    expected = {0: {"0": [0, 1], "1": [0, 1]}, 1: {"0": [1, 3], "1": [1, 2]}, 2: {"0": [3, 4], "1": [2, 2]}}
    assert ranges(lake) == expected
    assert loads(lake) == [("a1", 1), ("a2", 2), ("a3", 9), ("b1", 3), ("b2", 4), ("c1", 5)]
    found = why(SparkLake(lake), find_source(settings.sources, "meters"), "meters", ["m-c"])
    place = {"topic": topic, "partition": 0, "offset": 3}
    assert [{name: delta[name] for name in place} for delta in found.deltas] == [place]

    running.send(lake, topic, message("c2", 2, 6, 6, 1))
    again = run(lake, settings, 0, 2)[0]
    assert again["known_files"] == 5
    run(lake, settings, 3, 3)
    assert ranges(lake)[3] == {"0": [4, 4], "1": [2, 3]}

    for order in ([2, 0, 1], None):
        empty(lake)
        other = home(spark_settings, tmp_path / str(order), running, topic)
        for day in order or []:
            run(lake, other, day, day, pass_gap=True)
        if order is None:
            run(lake, other, 0, 2)
        else:
            assert ranges(lake) == {**expected, 2: {"0": [3, 4], "1": [2, 3]}}
        assert ("c2", 6) in loads(lake)
        assert len(loads(lake)) == 7


def test_what_is_no_record_is_in_quarantine_with_its_offset(
    lake: SparkSession, spark_settings: Settings, tmp_path: Path, running: Broker
) -> None:
    running.create(lake, "poison")
    at = time(0, 1)
    good, aborted = message("a1", 0, 5, 1), message("x1", 0, 6, 1)
    running.send(lake, "poison", (0, at, None, b"no json\n\xff"), good, (0, at, b"gone", None), (0, at, None, b""))
    running.send(lake, "poison", aborted, commit=False)
    running.send(lake, "poison", message("a2", 0, 7, 2), commit=True)
    settings = home(spark_settings, tmp_path, running, "poison", ", metadata: [key, offset]")
    land(lake, settings, 0, 0)
    assert loads(lake) == [("a1", 1), ("a2", 2)]
    quarantine = lake.sql("SELECT file, line, raw FROM bronze.quarantine ORDER BY line").collect()
    assert [(row.file.rpartition("/")[2], row.line) for row in quarantine] == [
        ("topic-poison-0-0.ndjson.gz", line) for line in (1, 3, 4)
    ]
    extra = {r.delta_id: r.extra for r in lake.sql("SELECT delta_id, extra FROM bronze.meters_deltas").collect()}
    assert extra["a1"] == {"_key": "k", "_offset": "1"}
    assert extra["a2"] == {"_key": "k", "_offset": "6"}, "the aborted message and its mark have lines, and no rows"
    ids = {r.delta_id: r.row_id for r in lake.sql("SELECT delta_id, row_id FROM bronze.meters_deltas").collect()}
    assert ids["a2"] - ids["a1"] == 5


def test_lost_offsets_a_missing_topic_and_an_absent_broker_have_names(
    lake: SparkSession, spark_settings: Settings, tmp_path: Path, running: Broker
) -> None:
    running.create(lake, "short")
    running.send(lake, "short", message("a1", 0, 5, 1), message("b1", 1, 5, 2), message("b2", 1, 6, 3))
    settings = home(spark_settings, tmp_path, running, "short")
    land(lake, settings, 0, 0)
    running.expire(lake, "short", 0, 2)
    with pytest.raises(OffsetsLost, match="lost_offsets: skip") as refusal:
        land(lake, settings, 1, 1, pass_gap=True)
    assert refusal.value.facts["lost"] == {"0": [1, 1]}
    skipping = home(spark_settings, tmp_path, running, "short", ", lost_offsets: skip")
    land(lake, skipping, 1, 1, pass_gap=True)
    assert loads(lake) == [("a1", 1), ("b2", 3)]

    with pytest.raises(OriginUnsuitable, match="no such topic"):
        land(lake, home(spark_settings, tmp_path / "1", running, "absent"), 0, 0, reread=True)
    absent = home_with(spark_settings, tmp_path / "2", TOPIC, {"events": {"servers": "127.0.0.1:1"}})
    with pytest.raises(OriginUnreachable, match=r"127\.0\.0\.1:1"):
        land(lake, absent, 0, 0, reread=True)
