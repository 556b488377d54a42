"""The writer lock: one holder, told by name; held by whoever inherited it; gone with its process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from spark_jobs.config import Settings
from spark_jobs.server.errors import LakeBusy
from spark_jobs.server.lake_lock import LakeLock, holder

pytestmark = pytest.mark.server

HOLD = """
import sys, time
from spark_jobs.config import load_settings
from spark_jobs.server.lake_lock import LakeLock
lock = LakeLock.acquire(load_settings())
print("held", flush=True)
time.sleep(60)
"""


def started(settings: Settings, program: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", program], env={**os.environ, **settings.environment()}, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_second_writer_is_told_who_holds_the_lake(settings: Settings) -> None:
    process = started(settings, HOLD)
    try:
        with pytest.raises(LakeBusy) as refusal:
            LakeLock.acquire(settings)
        assert refusal.value.facts["pid"] == process.pid
        assert "LakeLock.acquire" in refusal.value.facts["command"]
        assert refusal.value.facts["since"].startswith("20")
        found = holder(settings)
        assert found is not None
        assert found.pid == process.pid
    finally:
        process.kill()
        process.wait()


def test_a_killed_holder_leaves_no_lock(settings: Settings) -> None:
    process = started(settings, HOLD)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert holder(settings) is None
    LakeLock.acquire(settings).release()


def test_a_child_that_inherited_the_lock_keeps_it_when_the_launcher_is_gone(settings: Settings) -> None:
    lock = LakeLock.acquire(settings)
    child = subprocess.Popen(["sleep", "60"], pass_fds=(lock.descriptor,))
    lock.record(child.pid, "sleep")
    lock.release()
    try:
        found = holder(settings)
        assert found is not None
        assert found.pid == child.pid
    finally:
        child.kill()
        child.wait()
    assert holder(settings) is None


def test_asking_who_holds_the_lake_does_not_refuse_a_writer(settings: Settings) -> None:
    LakeLock.acquire(settings).release()
    asking = started(settings, HOLD.split("lock =", maxsplit=1)[0] + ASK)
    try:
        for _ in range(50):
            LakeLock.acquire(settings).release()
            time.sleep(0.002)
    finally:
        asking.kill()
        asking.wait()


ASK = """
from spark_jobs.server.lake_lock import holder
print("held", flush=True)
while True:
    holder(load_settings())
"""


def test_without_a_lake_nobody_holds_it(settings: Settings) -> None:
    assert holder(settings) is None
    assert not settings.home.exists()
