"""What people see of a backfill: what is done, how fast, and how long it takes still."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from dataclasses import replace

import pytest

from spark_jobs.cli.app import run
from spark_jobs.cli.backfill_progress import STOPPED, BackfillPace, stopping
from spark_jobs.cli.commands import backfill as command
from spark_jobs.config import Settings
from spark_jobs.server import backfill
from spark_jobs.server.backfill import Backfill, BackfillFailed, BackfillSlice, SliceRun
from spark_jobs.server.errors import ServerUnreachable
from spark_jobs.sources import find_source
from spark_jobs.storage.coordination.turns import PRESENT_S, Line, NoDriver, Turn


def slice_run(number: int, state: str, rows: int | None = None, *, drops: int = 10, size: int = 90) -> SliceRun:
    return SliceRun(
        BackfillSlice(f"2015-{number:02}-01", f"2015-{number:02}-10", drops, size), f"r{number}", state, 1.0, rows
    )


def test_a_line_says_drops_rows_per_second_and_time_left() -> None:
    now = 1000.0
    pace = BackfillPace("meters", clock=lambda: now)
    before = slice_run(1, "success", 5_000_000)
    assert pace.line([before, slice_run(2, "running"), slice_run(3, "waiting")]) == (
        "meters: 10 of 30 drops done, 10 running, 0 failed"
    )
    now += 100.0
    line = pace.line([before, slice_run(2, "success", 200_000), slice_run(3, "running")])
    assert line == "meters: 20 of 30 drops done, 10 running, 0 failed, 2,000 rows/s, 1 min 40 s left"
    now += 40.0
    line = pace.line([before, slice_run(2, "success", 200_000), slice_run(3, "failed")])
    assert line.endswith("0 running, 10 failed, 2,000 rows/s, 1 min 0 s left")


def test_the_first_interrupt_asks_to_stop_and_the_second_one_leaves(capsys: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGINT)
    with stopping("meters") as stop:
        assert not stop()
        os.kill(os.getpid(), signal.SIGINT)
        assert stop()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before
    assert "tidemark backfill meters --resume" in " ".join(capsys.readouterr().err.split())


def test_a_failed_run_is_told_of_also_where_the_lake_server_cannot_say_why(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = Backfill("flights", (BackfillSlice("2013-01-02", "2013-01-03", 2, 9),), identity="now")

    def carry_out(*_: object, **__: object) -> None:
        raise BackfillFailed(expected="a", found="b", runs={work.run_id(0): "failed"})

    def session(*_: object) -> None:
        raise ServerUnreachable(expected="a", found="b")

    monkeypatch.setattr(backfill, "carry_out", carry_out)
    monkeypatch.setattr(command, "server_session", session)
    with pytest.raises(BackfillFailed):
        command.through_airflow(settings, find_source(settings.sources, "flights"), work)


def test_a_run_that_airflow_has_no_room_for_keeps_no_place_in_line_for_the_one_after_it(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    slices = tuple(BackfillSlice(f"2013-01-0{day}", f"2013-01-0{day}", 1, 9) for day in (2, 3, 4))
    work = Backfill("flights", slices, identity="now")
    leases = settings.home / "leases"
    scheduled = Line(leases, "flights", Turn("scheduled", 10**18, "a later day", staged=True), NoDriver())

    def gone_stale() -> None:
        for place in (leases / "flights.line").iterdir():
            waiting = json.loads(place.read_text())
            boot, _ = waiting["seen"]
            place.write_text(json.dumps({**waiting, "seen": [boot, -PRESENT_S]}))

    def carry_out(*_: object, on_look: Callable[[list[SliceRun]], None], **__: object) -> list[SliceRun]:
        waiting = [SliceRun(each, work.run_id(number)) for number, each in enumerate(slices)]

        def look(*states: str) -> None:
            on_look([replace(each, state=state) for each, state in zip(waiting, states, strict=True)])

        look("queued", "waiting", "waiting")
        look("running", "waiting", "waiting")
        look("success", "waiting", "waiting")
        look("success", "queued", "waiting")
        assert str(scheduled.step()).startswith(f"run {work.run_id(1)} "), "it is about to begin"
        gone_stale()
        look("success", "queued", "waiting")
        # it is what keeps Airflow from beginning the queued one
        assert scheduled.step() is None
        scheduled.end()
        look("success", "running", "waiting")
        assert str(scheduled.step()).startswith(f"run {work.run_id(2)} ")
        return waiting

    monkeypatch.setattr(backfill, "carry_out", carry_out)
    command.through_airflow(settings, find_source(settings.sources, "flights"), work)
    assert scheduled.step() is None


@pytest.mark.parametrize("presses", [1, 2])
def test_who_stops_a_backfill_is_told_to_resume_it_and_nothing_else(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], presses: int
) -> None:
    for name, value in settings.environment().items():
        monkeypatch.setenv(name, value)
    work = backfill.new_backfill("flights", [BackfillSlice("2013-01-02", "2013-01-02", 1, 9)], pass_gap=False)
    monkeypatch.setattr(backfill, "last_backfill", lambda *_: work)

    def carry_out(*_: object, **__: object) -> list[SliceRun]:
        for _press in range(presses):
            os.kill(os.getpid(), signal.SIGINT)
        return [SliceRun(work.slices[0], work.run_id(0))]

    monkeypatch.setattr(backfill, "carry_out", carry_out)
    assert run(["backfill", "flights", "--resume"]) == STOPPED
    printed = " ".join(capsys.readouterr().err.split())
    assert printed.count("continue with: tidemark backfill flights --resume") == 1
    assert "interrupted" not in printed
