"""Turns: one run of a source at a time, in the order of drops, and none that died keeps the others waiting."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.storage.coordination import turns
from spark_jobs.storage.coordination.leases import SourceBusy
from spark_jobs.storage.coordination.turns import Line, NoDriver, Turn, end_turn, hold_turn
from tests.effort import SEED


class Runs:
    """What drives staged runs, as this test says."""

    def __init__(self, *on: str, earlier: str | None = None) -> None:
        self.on = set(on)
        self.earlier = earlier
        self.unsure = ""

    def is_on(self, run_id: str) -> bool:
        return run_id in self.on

    def remark(self) -> str:
        return self.unsure

    def earlier_run(self, lo_us: int) -> str | None:
        return self.earlier


def line(folder: Path, run_id: str, day: int = 0, driver: Any = None, *, staged: bool = False) -> Line:
    return Line(folder, "flights", Turn(run_id, day, f"day {day}", staged), driver or NoDriver())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def test_a_run_of_one_process_is_waited_for_by_name_until_it_ends(folder: Path) -> None:
    one, other = line(folder, "one", 1), line(folder, "other", 2)
    assert one.step() is None
    assert other.step() == "run one of day 1"
    one.end()
    assert other.step() is None


def test_who_waits_for_a_run_is_told_where_nobody_can_say_whether_it_is_on(folder: Path) -> None:
    runs = Runs("staged")
    assert line(folder, "staged", 1, runs, staged=True).step() is None
    waiting = line(folder, "other", 2, runs)
    assert waiting.step() == "run staged of day 1"
    runs.unsure = "its driver does not answer"
    assert waiting.step() == "run staged of day 1 (its driver does not answer)"


def _work(folder: Path, taken: Any) -> None:
    with hold_turn(folder, "flights", Turn("killed", 1, "day 1"), driver=NoDriver()):
        taken.set()
        signal.pause()


def test_a_run_that_was_killed_keeps_nobody_waiting(folder: Path) -> None:
    context = multiprocessing.get_context("fork")
    taken = context.Event()
    process = context.Process(target=_work, args=(folder, taken))
    process.start()
    assert taken.wait(60)
    with (
        pytest.raises(SourceBusy, match="run killed of day 1"),
        hold_turn(folder, "flights", Turn("next", 2, "day 2"), driver=NoDriver(), wait_s=0),
    ):
        pass
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    with hold_turn(folder, "flights", Turn("next", 2, "day 2"), driver=NoDriver(), wait_s=0):
        pass


def test_a_staged_run_has_its_turn_between_its_stages_for_as_long_as_its_driver_says(folder: Path) -> None:
    runs = Runs("staged")
    assert line(folder, "staged", 1, runs, staged=True).step() is None
    assert line(folder, "staged", 1, runs, staged=True).step() is None, "another attempt of the same run"
    other = line(folder, "other", 2, runs)
    assert other.step() == "run staged of day 1"
    runs.on.clear()
    assert other.step() is None


def test_a_staged_run_that_ends_frees_the_source_at_once(folder: Path) -> None:
    runs = Runs("staged", "other")
    assert line(folder, "staged", 1, runs, staged=True).step() is None
    end_turn(folder, "flights", "other")
    assert line(folder, "other", 2, runs, staged=True).step() is not None
    end_turn(folder, "flights", "staged")
    assert line(folder, "other", 2, runs, staged=True).step() is None


def test_those_in_line_go_in_the_order_of_their_drops(folder: Path) -> None:
    first = line(folder, "first", 0)
    assert first.step() is None
    waiting = {day: line(folder, f"of {day}", day) for day in random.sample(range(1, 9), 8)}
    for each in waiting.values():
        assert each.step() == "run first of day 0"
    first.end()
    went = []
    chance = random.Random(SEED)
    while waiting:
        for day in chance.sample(sorted(waiting), len(waiting)):
            if waiting[day].step() is None:
                went.append(day)
                waiting.pop(day).end()
    assert went == sorted(went)


def test_a_run_lets_an_earlier_one_of_the_driver_pass_and_keeps_nobody_waiting_meanwhile(folder: Path) -> None:
    runs = Runs(earlier="run of Monday")
    patient = line(folder, "patient", 5, runs)
    assert patient.step() == "run of Monday"
    later = line(folder, "later", 6)
    assert later.step() is None
    later.end()
    runs.earlier = None
    assert patient.step() is None


LONG_AGO, BEFORE_THE_BOOT = [turns._boot(), -1000.0], ["another boot", 1e12]


@pytest.mark.parametrize("seen", [LONG_AGO, BEFORE_THE_BOOT])
def test_who_gives_no_sign_of_life_leaves_the_line(folder: Path, seen: list[Any]) -> None:
    first = line(folder, "first", 0)
    assert first.step() is None
    assert line(folder, "gone", 1).step() is not None
    later = line(folder, "later", 2)
    first.end()
    assert later.step() == "run gone of day 1"
    (place,) = [place for place in (folder / "flights.line").iterdir() if "gone" in place.read_text()]
    # a clock that is set back makes a file look old, and throws nobody out of line
    os.utime(place, (0, 0))
    assert later.step() == "run gone of day 1"
    place.write_text(json.dumps({**json.loads(place.read_text()), "seen": seen}))
    assert later.step() is None


def test_a_sign_of_life_keeps_the_place_of_who_gives_it(folder: Path) -> None:
    first = line(folder, "first", 0)
    assert first.step() is None
    waiting = line(folder, "waiting", 1)
    assert waiting.step() is not None
    (place,) = (folder / "flights.line").iterdir()
    before = json.loads(place.read_text())
    waiting.keep_place()
    after = json.loads(place.read_text())
    assert (after["since"], after["seen"][0]) == (before["since"], before["seen"][0])
    assert after["seen"][1] > before["seen"][1]


def test_a_wait_that_ends_leaves_no_place_in_line(folder: Path) -> None:
    first = line(folder, "first", 0)
    assert first.step() is None
    told: list[str] = []
    with (
        pytest.raises(SourceBusy) as refusal,
        hold_turn(folder, "flights", Turn("x", 1, "day 1"), driver=NoDriver(), wait_s=0, on_wait=told.append),
    ):
        pass
    assert refusal.value.facts["holder"] == "run first of day 0"
    first.end()
    assert line(folder, "later", 2).step() is None


def _runs(folder: Path, seed: int, log: Any) -> None:
    dice = random.Random(seed)
    turns.POLL_S = 0.005
    for number in range(5):
        turn = Turn(f"{seed}-{number}", dice.randrange(100), "some day")
        with hold_turn(folder, "flights", turn, driver=NoDriver()):
            log.append((os.getpid(), "begins"))
            log.append((os.getpid(), "ends"))
            if dice.random() < 0.05:
                os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
def test_processes_that_want_the_source_at_once_have_it_one_after_the_other(folder: Path) -> None:
    context = multiprocessing.get_context("fork")
    with context.Manager() as manager:
        log = manager.list()
        processes = [context.Process(target=_runs, args=(folder, seed, log)) for seed in range(4)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        events = list(log)
    assert len(events) >= 8
    for begins, ends in zip(events[::2], events[1::2], strict=True):
        assert (begins[0], begins[1], ends[1]) == (ends[0], "begins", "ends")


def test_a_backfill_lets_a_run_go_first_whose_drops_follow_on(folder: Path) -> None:
    present = line(folder, "present slice", 1)
    assert present.step() is None
    following = line(folder, "next slice", 2)
    following.keep_place()
    skipping = line(folder, "leaves drops out", 9)
    daily = Line(folder, "flights", Turn("daily", 8, "day 8", first=True), NoDriver())
    for each in (skipping, daily):
        assert each.step() is not None
    present.end()
    assert skipping.step() == "run daily of day 8"
    assert following.step() == "run daily of day 8"
    assert daily.step() is None
    daily.end()
    assert skipping.step() == "run next slice of day 2"
    assert following.step() is None
    following.end()
    assert skipping.step() is None


def test_a_run_that_goes_first_lets_nobody_pass_who_is_not_in_line(folder: Path) -> None:
    runs = Runs(earlier="a backfill of Monday")
    assert Line(folder, "flights", Turn("daily", 8, "day 8", first=True), runs).step() is None


def test_an_attempt_has_the_turn_of_the_one_before_whatever_it_says_of_itself(folder: Path) -> None:
    runs = Runs("staged")
    turn = Turn("staged", 1, "day 1", staged=True, first=True)
    assert Line(folder, "flights", turn, runs).step() is None
    other = line(folder, "other", 0, runs)
    assert other.step() == "run staged of day 1"
    again = line(folder, "staged", 1, runs, staged=True)
    assert again.has_turn()
    assert again.step() is None
