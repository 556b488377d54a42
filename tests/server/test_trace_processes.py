"""Processes on the lake server: one killed at every commit point, two that write and compact one collection at once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.config import Settings
from spark_jobs.engine.arrangement import check_state
from spark_jobs.server import control
from spark_jobs.session import open_session
from spark_jobs.storage.lakes.lake import Lake
from spark_jobs.storage.lakes.spark_lake import SparkLake
from spark_jobs.trace import Arrangement, ArrowPlane, updates_table
from tests.trace import children
from tests.trace.scenario import EVENING, MORNING, NOON, SEAL, operations, shape

pytestmark = [pytest.mark.server, pytest.mark.long]

POINTS = 8
"""More than an operation has: it is then repeated to its end."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, installation: Callable[[Path], Settings]) -> Iterator[Settings]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("control", "status"):
            patch.setattr(f"spark_jobs.server.{name}.code_version", lambda: "the code of this test")
        settings = installation(tmp_path_factory.mktemp("lake-server") / "home")
        assert control.up(settings, airflow=False).ok
        yield settings
        control.down(settings)


@pytest.fixture
def lake(server: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lake]:
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    # pyspark sets it with the first Connect session, and takes all sessions of the process for such from then on
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
    spark = open_session(server)
    lake = SparkLake(spark)
    spark.sql("DROP DATABASE IF EXISTS procs CASCADE")
    spark.sql("CREATE DATABASE procs")
    for table in (children.updates_of("procs"), children.journal_of("procs")):
        lake.spark.sql(table.ddl())
    yield lake
    spark.stop()


def child(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, children.__file__, *arguments]
    return subprocess.Popen(command, env=dict(os.environ), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def expected_shapes() -> list[Any]:
    arrangement = Arrangement(ArrowPlane())
    shapes = [shape(arrangement.state)]
    for operation in operations(updates_table):
        operation(arrangement)
        shapes.append(shape(arrangement.state))
    return shapes


def test_killed_at_any_commit_point_a_collection_is_before_or_after_the_operation(lake: Lake) -> None:
    shapes = expected_shapes()
    kills = 0
    for index in range(len(shapes) - 1):
        for point in range(1, POINTS + 1):
            process = child("crash", "procs", str(index), str(point))
            _, complaint = process.communicate(timeout=120)
            assert process.returncode in (0, -signal.SIGKILL), complaint
            kills += process.returncode != 0
            found = shape(children.opened(lake, "procs").state)
            assert found in (shapes[index], shapes[index + 1]), f"operation {index}, point {point}"
            if found == shapes[index + 1]:
                break
        assert found == shapes[index + 1]
    assert kills >= 15
    arrangement = children.opened(lake, "procs")
    bag: Counter[tuple[str, str]] = Counter()
    for key, value, time, diff in MORNING + NOON + EVENING:
        bag[key, value] += diff if time <= SEAL else 0
    assert arrangement.sweep()
    assert arrangement.plane.stored().keys() == arrangement.state.handles()
    rows = arrangement.snapshot(SEAL).collect()
    assert {(row.key, row.value): row.diff for row in rows} == {data: n for data, n in bag.items() if n}


def test_two_processes_that_append_and_compact_lose_and_double_nothing(lake: Lake) -> None:
    writers = {name: child("write", "procs", name, "60") for name in ("left", "right")}
    answers = {}
    for name, process in writers.items():
        out, complaint = process.communicate(timeout=600)
        assert process.returncode == 0, complaint
        answers[name] = json.loads(out.splitlines()[-1])
    arrangement = children.opened(lake, "procs")
    check_state(arrangement.state)
    seal = arrangement.state.seal.time or 0
    arrangement.seal(seal + 1)
    rows = {(row.key, row.value): row.diff for row in arrangement.snapshot(seal).collect()}
    wanted = {(name, str(i)): 1 for name, answer in answers.items() for i in range(1, answer["appended"] + 1)}
    assert rows == wanted
    assert all(answer["appended"] > 1 for answer in answers.values())
    assert sum(answer["conflicts"] for answer in answers.values()) > 0
    assert sum(answer["merges"] for answer in answers.values()) > 0
