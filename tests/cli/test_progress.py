"""The steps of commands that take long: one line that is renewed on a terminal, a line each without one."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from spark_jobs import step_lines
from spark_jobs.backup import back_up, restore, verify
from spark_jobs.cli import progress
from spark_jobs.cli.output import note
from spark_jobs.cli.progress import working
from spark_jobs.config import Settings
from spark_jobs.jobs.stage import attempt
from spark_jobs.model import STAGES
from spark_jobs.server import control
from spark_jobs.server.state import PartState, SupervisorState, write_state
from spark_jobs.sources import load_source
from spark_jobs.storage.descriptions.times import micros, parse_time
from spark_jobs.storage.lakes.file_lake import FileLake
from spark_jobs.trials.trial import try_files
from tests.installations import CHECKOUT
from tests.terminal import Terminal

PROGRAM = """
from spark_jobs.cli.output import note
from spark_jobs.cli.progress import working

with working("maintain") as report_step:
    report_step("chunks [of] flights")
    note("a message")
    report_step("copying", 1, 2)
    input()
    report_step("copying", 2, 2)
print("done")
"""


def test_without_a_terminal_each_step_is_a_line_and_counts_of_one_step_are_not(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with working("backup") as report_step:
        report_step("copying", 0, 1200)
        report_step("copying", 1, 1200)
        report_step("logs of tables [0-9]")
    output = capsys.readouterr()
    assert output.err.splitlines() == ["backup: copying, 0 of 1,200", "backup: logs of tables [0-9]"]
    assert output.out == ""


def test_without_a_terminal_a_step_that_takes_long_has_further_lines_with_its_time(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_lines, "STILL_S", 0.01)
    still, written = threading.Event(), note

    def write(message: str) -> None:
        written(message)
        if message.endswith("so far"):
            still.set()

    monkeypatch.setattr(progress, "note", write)
    with working("run meters") as report_step:
        report_step("land: reading 2 files")
        still.clear()
        assert still.wait(60)
    assert "run meters: land: reading 2 files: 0 s so far" in capsys.readouterr().err.splitlines()
    assert step_lines._duration(725) == "12 min 5 s"


def test_on_a_terminal_it_is_one_line_that_goes_away_and_messages_stay() -> None:
    with Terminal([sys.executable, "-c", PROGRAM], env=dict(os.environ), cwd=CHECKOUT) as terminal:
        terminal.expect("a message")
        terminal.expect("maintain: copying, 1 of 2")
        terminal.type("\n")
        assert terminal.end() == 0
        assert terminal.text.splitlines()[-1] == "done"


ENDS_AFTER_ITS_PART = """
import signal, subprocess, sys

part = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])

def end(*_):
    part.terminate()
    part.wait()
    sys.exit()

signal.signal(signal.SIGTERM, end)
print(part.pid, flush=True)
signal.pause()
"""


def test_down_names_the_parts_that_it_waits_for(settings: Settings) -> None:
    supervisor = subprocess.Popen([sys.executable, "-c", ENDS_AFTER_ITS_PART], stdout=subprocess.PIPE, text=True)
    assert supervisor.stdout is not None
    part = PartState("lake", "running", int(supervisor.stdout.readline()), 0.0, 0, "log", None)
    gone = PartState("first-work", "finished", None, 0.0, 0, "log", 0)
    created = psutil.Process(supervisor.pid).create_time()
    write_state(settings, SupervisorState(supervisor.pid, created, "code", False, {}, (part, gone)))
    said: list[str] = []
    assert control.down(settings, progress=said.append).ran
    assert said[0] == "waits for lake to end"
    assert not psutil.pid_exists(part.pid or 0)
    assert supervisor.wait() == 0


class Steps:
    """The steps that were reported, each once, and the last counts of each."""

    def __init__(self) -> None:
        self.steps: dict[str, tuple[int, int]] = {}

    def __call__(self, step: str, n_done: int = 0, total: int = 0) -> None:
        self.steps[step] = n_done, total


@pytest.mark.slow
def test_a_backup_its_check_and_a_restore_tell_their_steps_up_to_the_last_file(tmp_path: Path) -> None:
    settings = tried(tmp_path)
    made, checked, restored = Steps(), Steps(), Steps()
    done = back_up(settings, str(tmp_path / "backup"), report_step=made)
    assert list(made.steps)[-3:] == ["data files", "logs of tables", "source files and a team's own"]
    assert made.steps["data files"][0] == made.steps["data files"][1] > 0
    verify(settings, str(tmp_path / "backup"), report_step=checked)
    assert list(checked.steps) == ["list of the backup's files", "reading files", "list of the lake's files"]
    assert checked.steps["reading files"][0] == checked.steps["reading files"][1] > 0
    other_home = tmp_path / "other"
    other = Settings(home=other_home / "home", sources=other_home / "sources", landing=str(other_home / "landing"))
    restore(other, str(tmp_path / "backup"), report_step=restored)
    assert list(restored.steps) == ["looking at what is there", "copying", "opening tables"]
    assert restored.steps["opening tables"][1] == len(done.backup_set.tables)


@pytest.mark.slow
def test_a_stage_tells_its_longer_steps(tmp_path: Path) -> None:
    settings = tried(tmp_path)
    source = load_source(settings.sources / "readings.yml")
    (file,) = (path for path in settings.landing_folder.rglob("*") if path.is_file())
    come = Path(str(file).replace("2024-03-01", "2024-03-02"))
    come.parent.mkdir(exist_ok=True)
    come.write_text("id,meter,at,load\n3,north,2024-03-01T09:55:00Z,3.0\n")
    lo_us = micros(parse_time("2024-03-02"))
    told: dict[str, list[str]] = {}
    for stage in STAGES:
        steps = Steps()
        attempt(
            *(stage, source, settings, FileLake(Path(settings.lake))),
            lo_us=lo_us,
            hi_us=lo_us + source.drops.every_us,
            run_id="a",
            report_step=steps,
        )
        told[stage] = list(steps.steps)
    assert told == {
        "land": ["looking for files", "reading 1 file", "checks"],
        "seal": ["checks"],
        "window": ["checks"],
        "compact": ["upkeep of trace and chunks"],
        "publish": ["verdicts and rows", "names in SQL"],
    }


def tried(folder: Path) -> Settings:
    """An installation of files that has published one drop."""
    sample = folder / "readings" / "2024-03-01.csv"
    sample.parent.mkdir()
    sample.write_text("id,meter,at,load\n1,north,2024-03-01T09:10:00Z,5.0\n2,north,2024-03-01T09:50:00Z,7.5\n")
    return try_files([sample], folder / "tried").installation.settings


def make(*arguments: str) -> str:
    return subprocess.run(["make", *arguments], cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
def test_set_up_says_each_step_and_what_to_type_next_but_not_within_another_target() -> None:
    steps = make("--dry-run", "--always-make", "setup")
    said = [line for line in steps.splitlines() if line.startswith(("echo", "printf"))]
    assert len(said) >= 4
    assert "tidemark try FILE..." in said[-1]
    assert "tidemark try FILE..." not in make("--dry-run", "--always-make", "lint")
