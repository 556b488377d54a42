"""The writer lock: one holder, told by name; held by whoever inherited it; gone with its process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from threading import Event

import pytest

from spark_jobs.config import Settings
from spark_jobs.errors import TidemarkError
from spark_jobs.server.errors import LakeBusy
from spark_jobs.server.lake_lock import LakeLock, holder
from spark_jobs.server.status import status
from spark_jobs.storage.coordination import lake_claims
from spark_jobs.storage.coordination.lake_claims import LakeClaimed
from tests.moto import BUCKET, s3_server

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


def test_a_lake_in_s3_has_one_home_and_a_home_that_was_passed_over_ends_its_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lake_claims, "BEAT_S", 0.1)
    monkeypatch.setattr(lake_claims, "_LOOK_S", 0.5)
    with s3_server(tmp_path) as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        lake = f"s3a://{BUCKET}/lake"
        one, other = (Settings(home=tmp_path / name, lake=lake) for name in ("one", "other"))
        lost, is_lost = [], Event()

        def end_work(claim_lost: TidemarkError) -> None:
            lost.append(claim_lost)
            is_lost.set()

        lock = LakeLock.acquire(one)
        lock.keep_claim(end_work)
        with pytest.raises(LakeClaimed) as refusal:
            LakeLock.acquire(other)
        assert refusal.value.facts["home"] == str(one.home)
        assert holder(other) is None, "the refused home has no lock left"
        lock.release()
        LakeLock.acquire(other).release()
        lock = LakeLock.acquire(one)
        lock.keep_claim(end_work)
        # as if the other home had found no sign of life
        monkeypatch.setattr(lake_claims, "LOST_AFTER_S", 0.0)
        LakeLock.acquire(other)
        assert is_lost.wait(60)
        assert "another home has taken it over" in lost[0].found
        assert status(one).loss == lost[0].sentence()
        lock.release()
        LakeLock.acquire(one)
        assert status(one).loss is None


ASK = """
from spark_jobs.server.lake_lock import holder
print("held", flush=True)
while True:
    holder(load_settings())
"""


def test_without_a_lake_nobody_holds_it(settings: Settings) -> None:
    assert holder(settings) is None
    assert not settings.home.exists()
