"""`tidemark` without a command: the next thing to type, by what is on the disk, in each state that a newcomer meets."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import psutil
import pytest

from spark_jobs.cli.app import run
from spark_jobs.cli.next_steps import MOST_STEPS, Findings, Step, find
from spark_jobs.code_version import code_version
from spark_jobs.config import CHECKOUT, Settings
from spark_jobs.gates import GateFailed
from spark_jobs.jobs.request import Request
from spark_jobs.jobs.stage import attempt
from spark_jobs.server.state import PartState, SupervisorState, write_state
from spark_jobs.sources import load_source
from spark_jobs.storage.coordination.leases import take
from spark_jobs.storage.coordination.turns import Line, NoDriver, Turn, hold_turn
from spark_jobs.storage.descriptions.times import micros, parse_time
from spark_jobs.storage.lakes.file_lake import FileLake
from spark_jobs.trials.trial import try_files

READINGS = """id,meter,at,load
1,north,2024-03-01T09:10:00Z,5.0
2,north,2024-03-01T09:50:00Z,7.5
{wrong}"""


def commands(findings: Findings) -> list[str]:
    return [step.command for step in findings.steps]


@pytest.fixture
def tried(tmp_path: Path) -> Settings:
    """An installation that has published the drop of 1 March."""
    return installation(tmp_path, wrong="")


def installation(folder: Path, wrong: str) -> Settings:
    sample = folder / "readings" / "2024-03-01.csv"
    sample.parent.mkdir()
    sample.write_text(READINGS.format(wrong=wrong))
    return try_files([sample], folder / "tried").installation.settings


def let_come(settings: Settings, *days: str) -> None:
    """Put the file of 1 March into the landing folder as that of other days."""
    (file,) = (path for path in settings.landing_folder.rglob("*") if path.is_file())
    for day in days:
        path = Path(str(file).replace("2024-03-01", day))
        path.parent.mkdir(exist_ok=True)
        shutil.copy(file, path)


def let_run(settings: Settings, **otherwise: object) -> None:
    """Write the state of a supervisor of the lake server that is alive: this process."""
    me = psutil.Process(os.getpid())
    state = SupervisorState(me.pid, me.create_time(), code_version(), False, settings.environment(), ())
    write_state(settings, replace(state, **otherwise))  # type: ignore[arg-type]


def test_without_sources_it_is_a_trial_or_a_source_file(tmp_path: Path) -> None:
    for folder in ("none", "empty"):
        (tmp_path / "empty").mkdir(exist_ok=True)
        found = find(Settings(home=tmp_path / "home", sources=tmp_path / folder))
        assert commands(found) == ["try FILE...", f"init {tmp_path / folder} --from FILE"]
    assert not (tmp_path / "home").exists(), "looking makes nothing"


def test_in_a_new_checkout_it_is_a_trial_then_the_server_or_the_sample(settings: Settings) -> None:
    found = find(settings.model_copy(update={"sources": CHECKOUT / "dags" / "sources"}))
    assert commands(found) == ["try FILE...", "up --no-airflow", "demo"]
    assert ("servers", "down") in found.lines


@pytest.mark.slow
def test_with_the_server_down_it_is_up_and_then_what_waits(tried: Settings) -> None:
    assert commands(find(tried)) == ["up --no-airflow"]
    let_come(tried, "2024-03-02", "2024-03-03")
    found = find(tried)
    assert commands(found) == ["up --no-airflow", "run readings --from 2024-03-02 --to 2024-03-03"]
    assert found.lines[-1] == ("readings", "published up to 2024-03-01; 2 drops wait, 2024-03-02 to 2024-03-03")


@pytest.mark.slow
def test_a_server_that_only_writes_javas_archive_is_down(tried: Settings) -> None:
    lake = PartState(name="lake", condition="lingering", pid=1, started=0.0, restarts=0, log="", last_exit=None)
    let_run(tried, parts=(lake,))
    assert commands(find(tried))[0] == "up --no-airflow"


def test_with_all_published_it_is_a_look_at_it(tried: Settings) -> None:
    let_run(tried)
    found = find(tried)
    assert ("servers", "lake server runs") in found.lines
    assert commands(found) == ["sql", "open"]


@pytest.mark.slow
def test_what_needs_a_person_is_said_with_the_command(tmp_path: Path) -> None:
    settings = installation(tmp_path, wrong="x,south,nonsense,4.0\n")
    assert commands(find(settings)) == ["up --no-airflow", "quarantine list readings"], "a list needs the server"
    (settings.sources / "broken.yml").write_text("source: broken\n")
    failed = PartState("lake", "failed", None, 0.0, 5, "log", 1)
    let_run(settings, parts=(failed,))
    found = find(settings)
    assert commands(found) == ["check", "doctor", "quarantine list readings"]
    assert found.lines[-1] == ("readings", "published up to 2024-03-01; 1 record in quarantine")
    let_run(settings, code="older", airflow=True)
    assert commands(find(settings)) == ["check", "up", "quarantine list readings"]


def test_a_wrong_source_file_is_said_once_and_on_one_line(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path / "home", sources=tmp_path, landing=str(tmp_path / "landing"))
    (tmp_path / "broken.yml").write_text("source: broken\nentity: 5\n")
    (step, _) = find(settings).steps
    assert (step.command, step.reason.count("\n")) == ("check", 0)
    assert step.reason.startswith("broken.yml has ")
    assert "problems, the first at " in step.reason


@pytest.mark.slow
def test_a_failed_run_is_said_with_the_command_that_shows_its_checks(tried: Settings) -> None:
    file = tried.sources / "readings.yml"
    file.write_text(file.read_text() + "\nchecks:\n  load_low: {kind: between, column: load, max: 1}\n")
    let_come(tried, "2024-03-02")
    (come,) = tried.landing_folder.rglob("*2024-03-02*.csv")
    come.write_text(come.read_text().replace("1,north", "3,north"))
    source = load_source(file)
    lo_us, hi_us = source.drops.interval(source.drops.number_at(micros(parse_time("2024-03-02"))))
    with pytest.raises(GateFailed):
        attempt(
            *("land", source, tried, FileLake(Path(tried.lake))),
            lo_us=lo_us,
            hi_us=hi_us,
            run_id="failing",
            request=Request(accept_definition=True),
        )
    let_run(tried)
    (step,) = [step for step in find(tried).steps if step.weight == 0]
    assert step.command == "quality readings --run failing"
    assert "load_low" in step.reason


@pytest.mark.slow
def test_a_run_on_its_way_is_said_and_no_further_run_is_proposed_meanwhile(tried: Settings) -> None:
    let_run(tried)
    let_come(tried, "2024-03-02", "2024-03-03")
    land(tried, "2024-03-02", "cut-off")
    leases = tried.home / "leases"
    turn = Turn("cli-1", 0, "2024-03-02")
    with hold_turn(leases, "readings", turn, driver=NoDriver()):
        during = find(tried)
    assert commands(during) == ["status --drops readings"]
    assert during.steps[0].reason == "readings: a run is on its way: run cli-1 of 2024-03-02"
    # its process was killed: the note of its turn stays, and the lock is gone
    (leases / "readings.turn").write_text(json.dumps(asdict(turn)))
    after = find(tried)
    assert commands(after) == ["run readings --from 2024-03-02", "run readings --from 2024-03-03"]
    assert "was interrupted" in after.steps[0].reason


@pytest.mark.slow
def test_a_run_in_airflow_is_on_its_way_while_a_stage_works(tried: Settings) -> None:
    let_run(tried, airflow=True)
    let_come(tried, "2024-03-02")
    land(tried, "2024-03-02", "staged")
    leases = tried.home / "leases"
    line = Line(leases, "readings", Turn("staged", 0, "2024-03-02", staged=True), NoDriver())
    assert line.step() is None
    between = find(tried)
    assert commands(between) == ["status --drops readings"]
    assert "between two stages in Airflow, or was interrupted there" in between.steps[0].reason
    with take(leases, source="readings", run_id="staged", starts_run=False, wait_s=0):
        assert "a run is on its way: run staged" in find(tried).steps[0].reason


def land(settings: Settings, day: str, run_id: str) -> None:
    """Run the first stage of a run, as if it had been cut off there."""
    source = load_source(settings.sources / "readings.yml")
    lo_us, hi_us = source.drops.interval(source.drops.number_at(micros(parse_time(day))))
    attempt("land", source, settings, FileLake(Path(settings.lake)), lo_us=lo_us, hi_us=hi_us, run_id=run_id)


@pytest.mark.slow
def test_a_lake_that_can_not_be_read_hides_nothing_else(tried: Settings) -> None:
    for log in Path(tried.lake).rglob("_delta_log/*.json"):
        log.write_text("nonsense")
    found = find(tried)
    assert commands(found) == ["doctor", "up --no-airflow"]
    assert found.lines[-1][1].startswith("can't be read: ")


@pytest.mark.slow
def test_with_airflow_waiting_drops_are_a_backfill(tried: Settings) -> None:
    let_run(tried, airflow=True)
    let_come(tried, "2024-03-02")
    assert "backfill readings --only-missing" in commands(find(tried))


def test_the_command_prints_commands_that_can_be_typed(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in settings.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("spark_jobs.cli.next_steps.find", lambda _: Findings([("home", "h")], [Step("up", "why")] * 10))
    assert run([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines.count("  tidemark up") == MOST_STEPS
    assert "  and 2 more steps, once these are done" in lines


@pytest.mark.slow
def test_nothing_heavy_is_imported_before_anything_has_landed(settings: Settings) -> None:
    program = (
        "import sys; from spark_jobs.cli.app import run; run([]);"
        "print([name for name in ('pyspark', 'pyarrow', 'numba', 'airflow') if name in sys.modules])"
    )
    environment = {**os.environ, **settings.environment()}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.splitlines()[-1] == "[]"
