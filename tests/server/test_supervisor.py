"""The supervisor over programs that are no JVM: restarts, giving up, and no process left however it ends."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import psutil
import pytest

from spark_jobs.config import Settings
from spark_jobs.server import control, processes, starting
from spark_jobs.server.errors import StartFailed
from spark_jobs.server.health import Health
from spark_jobs.server.lake_lock import holder
from spark_jobs.server.liveness import Liveness
from spark_jobs.server.state import PartState, SupervisorState, running_supervisor, write_wish
from spark_jobs.server.status import status
from tests.installations import until

pytestmark = pytest.mark.server

SUPERVISE = """
import os, sys
from dataclasses import replace
from pathlib import Path
from spark_jobs.server import airflow_parts, first_work_part, lake, liveness, postgres, supervisor
from spark_jobs.server.processes import Part

def program(settings, name, script, *files):
    return Part(name, ("bash", "-c", script), dict(os.environ), settings.server_dir,
                settings.logs_dir / f"{name}.log", 1.0, files)

def first_work(settings):
    first_work_part.write_mended(settings, [])
    return program(settings, "first-work", sys.argv[2])

def lake_part(settings, java, lock):
    folder = settings.home / "scratch"
    part = program(settings, "lake", sys.argv[1], lock)
    # a file in its place fails to be listed, as a disk may
    lingers = settings.home / "lingers"
    return replace(
        part,
        lost=lambda: [] if folder.exists() and [*os.scandir(folder)] == [] else [folder],
        lingers=lingers.exists,
        grace_s=300.0 if "lingers" in sys.argv[1] else part.grace_s,
        ended=(settings.home / "ended").touch,
    )

def liveness_part(settings, server):
    liveness.death_file(settings).unlink(missing_ok=True)
    return program(settings, "liveness", sys.argv[3])

lake.lake_part = lake_part
liveness.liveness_part = liveness_part
first_work_part.first_work_part = first_work
airflow_parts.is_migrated = lambda settings: True
airflow_parts.airflow_part = lambda settings, name: program(settings, name, "sleep 300")
postgres.is_ready = lambda settings, pid: True
postgres.postgres_part = lambda settings: program(settings, postgres.NAME, "sleep 300")
supervisor.PAUSE_S = 0.05
supervisor.TICK_S = 0.02
sys.exit(supervisor.main())
"""

FAMILY = "sleep 300 & setsid sleep 300 & wait"
"""A part with a child of its own process group, as Spark's Python workers are."""

STUBBORN = "trap '' TERM; setsid bash -c 'trap \"\" TERM; while true; do sleep 1; done' & while true; do sleep 1; done"


Supervise = Callable[..., "subprocess.Popen[bytes]"]
"""Starts a supervisor whose lake server is the program that is its first argument."""


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Of a supervisor whose only part is the tests' own."""
    return settings.model_copy(update={"command_server": False})


@pytest.fixture
def supervise(settings: Settings) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    started = []

    def start(
        program: str, first_work: str = "true", liveness: str = "sleep 300", *, airflow: bool = False
    ) -> subprocess.Popen[bytes]:
        write_wish(settings, airflow=airflow, code="v1")
        environment = {**os.environ, **settings.environment(), processes.MARKER: str(settings.home)}
        command = [sys.executable, "-c", SUPERVISE, program, first_work, liveness]
        process = subprocess.Popen(command, env=environment, start_new_session=True)
        started.append(process)
        until(lambda: running_supervisor(settings) and members(settings))
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
    processes.end(processes.marked_processes(settings.home), grace_s=0.1)


def members(settings: Settings) -> list[psutil.Process]:
    """The living processes of the home, without the supervisor."""
    state = running_supervisor(settings)
    return [each for each in processes.marked_processes(settings.home) if state is None or each.pid != state.pid]


def wait_for_looks(supervisor: subprocess.Popen[bytes]) -> None:
    """Wait until the supervisor has slept and looked at its parts some times more, however slow the machine is."""
    process = psutil.Process(supervisor.pid)
    before = process.num_ctx_switches().voluntary
    until(lambda: process.num_ctx_switches().voluntary >= before + 6, 60)


def part_of(settings: Settings, name: str) -> PartState:
    part = state_of(settings).part(name)
    assert part is not None
    return part


def kill(part: PartState) -> None:
    assert part.pid is not None
    os.kill(part.pid, signal.SIGKILL)


def has_restarts(settings: Settings, restarts: int) -> bool:
    return part_of(settings, "lake").restarts == restarts


def state_of(settings: Settings) -> SupervisorState:
    state = running_supervisor(settings)
    assert state is not None
    return state


def test_down_ends_the_part_and_all_it_started(settings: Settings, supervise: Supervise) -> None:
    supervise(FAMILY)
    until(lambda: len(members(settings)) >= 3)
    assert control.down(settings).ran
    assert processes.marked_processes(settings.home) == []
    assert holder(settings) is None
    assert running_supervisor(settings) is None


LINGERING = "trap 'touch ../lingers; while [ ! -e ../enough ]; do sleep 0.05; done; exit 0' TERM; sleep 300 & wait"
"""A part that goes on after it was told to end, as Java that writes its archive of classes."""


def test_down_does_not_wait_for_a_part_that_serves_no_more(settings: Settings, supervise: Supervise) -> None:
    supervisor = supervise(LINGERING)
    assert control.down(settings) == control.Ended(ran=True, leftovers=(), lingers=True)
    assert supervisor.poll() is None
    report = status(settings)
    assert (report.supervisor, report.orphans) == (None, ())
    (settings.home / "enough").touch()
    assert supervisor.wait(30) == 0
    assert (settings.home / "ended").exists(), "what it left is kept"
    assert processes.marked_processes(settings.home) == []


@pytest.mark.usefixtures("answering")
@pytest.mark.parametrize("command", [control.down, control.up])
def test_whoever_comes_next_does_not_wait_either(
    settings: Settings, supervise: Supervise, command: Callable[[Settings], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor = supervise(LINGERING)
    assert control.down(settings).lingers
    # `up` has made room once it looks for the lake's jars
    monkeypatch.setattr(control, "LakeLock", Mock(acquire=Mock(side_effect=RoomWasMade)))
    with suppress(RoomWasMade):
        command(settings)
    assert supervisor.wait(30) == 0
    assert not (settings.home / "ended").exists(), "half of what it writes is not kept"
    assert processes.marked_processes(settings.home) == []


class RoomWasMade(Exception):
    """Raised in place of a start."""


def test_down_ends_parts_that_ignore_the_first_signal(settings: Settings, supervise: Supervise) -> None:
    supervise(STUBBORN)
    until(lambda: len(members(settings)) >= 3)
    control.down(settings)
    assert processes.marked_processes(settings.home) == []


def test_a_full_disk_ends_neither_the_supervisor_nor_its_parts(settings: Settings, supervise: Supervise) -> None:
    process = supervise(FAMILY)
    first = part_of(settings, "lake")
    # each write to a file fails, as on a disk without room
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    kill(first)
    until(lambda: [each for each in members(settings) if each.pid != first.pid])
    wait_for_looks(process)
    assert process.poll() is None
    assert part_of(settings, "lake").pid == first.pid, "what it could not write it has not written"
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    until(lambda: part_of(settings, "lake").restarts == 1)
    assert [path.name for path in settings.server_dir.iterdir() if path.name.startswith("tmp")] == []


def test_a_killed_part_is_restarted_and_what_it_left_is_ended(settings: Settings, supervise: Supervise) -> None:
    supervise(FAMILY)
    until(lambda: len(members(settings)) >= 3)
    before = members(settings)
    first = part_of(settings, "lake")
    kill(first)
    until(lambda: part_of(settings, "lake").restarts == 1 and part_of(settings, "lake").pid)
    again = part_of(settings, "lake")
    assert again.pid != first.pid
    assert again.last_exit == -signal.SIGKILL
    until(lambda: not any(process.is_running() for process in before))


def test_a_part_whose_folder_was_removed_is_started_again(settings: Settings, supervise: Supervise) -> None:
    scratch = settings.home / "scratch"
    # slower to make it than the supervisor is to miss one
    process = supervise(f"sleep 1; mkdir {scratch}; sleep 300")
    until(lambda: part_of(settings, "lake").pid)
    first = part_of(settings, "lake")
    until(scratch.exists)
    wait_for_looks(process)
    assert part_of(settings, "lake") == first
    scratch.rmdir()
    until(lambda: part_of(settings, "lake").restarts == 1 and part_of(settings, "lake").pid)
    assert first.pid is not None
    assert not psutil.pid_exists(first.pid)
    until(scratch.exists)


def test_a_part_whose_folder_is_removed_again_and_again_is_given_up(settings: Settings, supervise: Supervise) -> None:
    scratch = settings.home / "scratch"
    supervise(f"mkdir {scratch}; sleep 1; rmdir {scratch}; sleep 300")
    until(lambda: part_of(settings, "lake").condition == "failed")
    assert members(settings) == []


def test_a_disk_that_does_not_say_what_is_there_keeps_no_part_from_being_started_again(
    settings: Settings, supervise: Supervise
) -> None:
    scratch = settings.home / "scratch"
    process = supervise(f"touch {scratch}; sleep 300")
    until(lambda: scratch.exists() and part_of(settings, "lake").pid)
    first = part_of(settings, "lake")
    wait_for_looks(process)
    assert part_of(settings, "lake").pid == first.pid
    kill(first)
    # what it looks at after the lake server is looked at, too
    until(lambda: part_of(settings, "lake").pid not in (None, first.pid))
    until(lambda: part_of(settings, "first-work").condition == "finished")


def test_a_home_that_was_removed_is_not_made_anew(settings: Settings, supervise: Supervise) -> None:
    scratch = settings.home / "scratch"
    process = supervise(f"mkdir {scratch}; sleep 300")
    until(lambda: scratch.exists() and part_of(settings, "first-work").condition == "finished")
    part = psutil.Process(part_of(settings, "lake").pid)
    shutil.rmtree(settings.home)
    wait_for_looks(process)
    assert part.is_running()
    assert not settings.home.exists()


def test_a_part_that_ends_again_and_again_is_given_up_and_reported(settings: Settings, supervise: Supervise) -> None:
    supervise("sleep 0.3; exit 7")
    until(lambda: part_of(settings, "lake").condition == "failed")
    part = part_of(settings, "lake")
    assert (part.last_exit, part.pid) == (7, None)
    assert not status(settings.model_copy(update={"connect_timeout_s": 1.0})).ok


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `up` asks answers, and its code is that of `supervise`."""
    answer = Health(ok=True, detail="it answers", seconds=0.0)
    for service in ("sql_health", "connect_health"):
        monkeypatch.setattr(starting, service, lambda _: answer)
    monkeypatch.setattr(control, "code_version", lambda: "v1")


@pytest.mark.usefixtures("answering")
def test_a_part_that_was_given_up_is_started_once_up_wishes_for_it_again(
    settings: Settings, supervise: Supervise
) -> None:
    healed = settings.home / "healed"
    supervise(f"sleep 0.3; test -e {healed} && sleep 300; exit 7")
    until(lambda: part_of(settings, "lake").condition == "failed")
    healed.touch()
    control.up(settings, airflow=False)
    part = part_of(settings, "lake")
    assert (part.condition, part.restarts) == ("running", 0)
    kill(part)
    until(lambda: part_of(settings, "lake").restarts == 1)
    assert part_of(settings, "lake").condition != "failed", "what ended before counts no more"


def test_each_lake_server_has_a_first_work_of_its_own(settings: Settings, supervise: Supervise) -> None:
    done = settings.home / "done"
    # it is at work when the server ends that it was for
    supervise("sleep 300", f"echo begun >> {done}; test $(wc -l < {done}) -gt 1 && exit 0; sleep 300")
    until(lambda: done.exists() and part_of(settings, "first-work").pid)
    first = part_of(settings, "first-work")
    kill(part_of(settings, "lake"))
    until(lambda: part_of(settings, "first-work").condition == "finished")
    assert done.read_text() == "begun\n" * 2
    assert first.pid is not None
    assert not psutil.pid_exists(first.pid)
    assert part_of(settings, "lake").pid


@pytest.mark.usefixtures("answering")
def test_up_waits_for_the_first_work_and_says_what_it_mended(settings: Settings, supervise: Supervise) -> None:
    mended = settings.server_dir / "mended.json"
    healed = settings.home / "healed"
    supervise(
        f"test -e {healed} && sleep 300; exit 7", f"sleep 1; echo '[\"flights: mended: the catalog\"]' > {mended}"
    )
    until(lambda: part_of(settings, "lake").condition == "failed")
    healed.touch()
    messages: list[str] = []
    control.up(settings, airflow=False, progress=messages.append)
    assert messages == ["sql: it answers", "connect: it answers", "flights: mended: the catalog"]
    messages.clear()
    control.up(settings, airflow=False, progress=messages.append)
    assert messages == ["sql: it answers", "connect: it answers"], "that was another `up`"


@pytest.mark.usefixtures("answering")
def test_a_first_work_that_fails_again_and_again_fails_up(settings: Settings, supervise: Supervise) -> None:
    supervise("sleep 300", "exit 3")
    with pytest.raises(StartFailed, match="first-work to become healthy, found it ended again and again"):
        control.up(settings, airflow=False)
    assert part_of(settings, "lake").condition == "running"


class TestWaiting:
    """`up` waits as long as what it waits for works."""

    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        return settings.model_copy(update={"startup_timeout_s": 2.0})

    @pytest.fixture
    def answers_at(self, answering: Liveness, monkeypatch: pytest.MonkeyPatch) -> list[float]:
        """When SQL answers: never, unless a test says otherwise."""
        at = [float("inf")]
        silent = Health(ok=False, detail="no answer yet", seconds=0.0)
        there = Health(ok=True, detail="it answers", seconds=0.0)
        monkeypatch.setattr(starting, "sql_health", lambda _: there if time.monotonic() > at[0] else silent)
        # a busy machine leaves little of a processor even to who asks for all of it
        for name, value in (("LOOK_S", 0.3), ("TELL_S", 1.0), ("LEAST_LOAD", 0.005)):
            monkeypatch.setattr(starting, name, value)
        return at

    def test_a_lake_server_that_works_is_waited_for_and_named(
        self, settings: Settings, supervise: Supervise, answers_at: list[float]
    ) -> None:
        supervise("while true; do :; done")
        answers_at[0] = time.monotonic() + 6
        messages: list[str] = []
        control.up(settings, airflow=False, progress=messages.append)
        assert messages[-1] == "sql: it answers"
        assert [message for message in messages if "sql: no answer yet; lake is at work" in message]

    @pytest.mark.usefixtures("answers_at")
    def test_a_lake_server_that_does_nothing_is_given_up(self, settings: Settings, supervise: Supervise) -> None:
        supervise("sleep 300")
        with pytest.raises(StartFailed, match="nothing that it needs has worked for 2 s: sql: no answer yet"):
            control.up(settings, airflow=False)


def test_a_killed_supervisor_takes_its_parts_with_it(settings: Settings, supervise: Supervise) -> None:
    supervisor = supervise("sleep 300")
    until(lambda: members(settings))
    supervisor.kill()
    supervisor.wait()
    until(lambda: processes.marked_processes(settings.home) == [])
    # a process that ends lets go of its files last
    until(lambda: holder(settings) is None)


@pytest.mark.turns
def test_what_outlives_a_killed_supervisor_is_reported_and_ended_by_down(
    settings: Settings, supervise: Supervise
) -> None:
    supervisor = supervise(STUBBORN)
    until(lambda: len(members(settings)) >= 3)
    supervisor.kill()
    supervisor.wait()
    leftovers = {process.pid for process in processes.marked_processes(settings.home)}
    report = status(settings)
    assert report.supervisor is None
    assert not report.ok
    assert set(report.orphans) & leftovers
    ended = control.down(settings)
    assert not ended.ran
    assert set(ended.leftovers) & leftovers
    assert processes.marked_processes(settings.home) == []


@pytest.mark.usefixtures("answering")
def test_other_code_has_a_supervisor_of_its_own(
    settings: Settings, supervise: Supervise, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = supervise("sleep 300")
    messages: list[str] = []
    monkeypatch.setattr(control, "code_version", lambda: "v2")
    monkeypatch.setattr(control, "_preflight", lambda *_, **__: None)
    monkeypatch.setattr(control, "_SUPERVISOR", (sys.executable, "-c", SUPERVISE, "sleep 300", "true", "sleep 300"))
    control.up(settings, airflow=False, progress=messages.append)
    assert before.wait(10) == 0
    assert state_of(settings).code == "v2"
    assert messages[0].startswith("the settings, or Tidemark itself, have changed")
    control.down(settings)


def test_a_lake_server_that_does_not_answer_is_started_again_and_said_to_be(
    settings: Settings, supervise: Supervise
) -> None:
    asked = settings.home / "asked"
    says = f"echo -n 'statements fail' > {settings.server_dir}/death"
    dead = f"test -e {asked} && sleep 300; touch {asked}; {says}; exit 3"
    supervise("sleep 300", "true", dead)
    until(lambda: part_of(settings, "lake").restarts == 1 and part_of(settings, "lake").pid)
    part = part_of(settings, "lake")
    assert part.reason == "statements fail"
    until(lambda: part_of(settings, "liveness").pid, what="the next server has a probe of its own")


def test_a_lake_server_that_never_answers_is_given_up(settings: Settings, supervise: Supervise) -> None:
    supervise("sleep 300", "true", f"echo -n silent > {settings.server_dir}/death; exit 3")
    until(lambda: part_of(settings, "lake").condition == "failed")
    assert part_of(settings, "lake").reason == "silent"


SET_BACK = """
import pathlib, time
wall = time.time
# the clock of the wall is set back by a day as soon as the test has written this file
time.time = lambda: wall() - (86400 if pathlib.Path({moment!r}).exists() else 0)
"""


def test_a_clock_that_is_set_back_keeps_no_part_from_being_started_again(
    settings: Settings, supervise: Supervise, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    moment = tmp_path / "moment"
    monkeypatch.setattr(f"{__name__}.SUPERVISE", SET_BACK.format(moment=str(moment)) + SUPERVISE)
    supervise("sleep 300")
    until(lambda: part_of(settings, "lake").pid)
    moment.touch()
    for restarts in (1, 2):
        kill(part_of(settings, "lake"))
        until(partial(has_restarts, settings, restarts))
        until(lambda: part_of(settings, "lake").pid)


def test_a_second_supervisor_of_the_same_lake_is_refused(settings: Settings, supervise: Supervise) -> None:
    supervise("sleep 300")
    second = subprocess.run(
        [sys.executable, "-m", "spark_jobs.server.supervisor"],
        env={**os.environ, **settings.environment()},
        capture_output=True,
        text=True,
        check=False,
    )
    assert second.returncode == 1
    assert "lake_busy" in second.stderr
    assert str(part_of(settings, "lake").pid) in second.stderr


def test_a_state_file_of_a_process_that_ended_is_not_believed(settings: Settings, supervise: Supervise) -> None:
    supervisor = supervise("sleep 300")
    supervisor.kill()
    supervisor.wait()
    assert running_supervisor(settings) is None


def test_up_goes_on_without_a_supervisor_that_ends_while_it_is_asked(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a kill of all processes: it is still there when `up` looks, and gone a moment later."""
    process = psutil.Process()
    dying = SupervisorState(
        process.pid, process.create_time(), "v1", airflow=False, setup=settings.environment(), parts=(), wish="w"
    )
    monkeypatch.setattr(control, "running_supervisor", lambda _: dying)
    monkeypatch.setattr(control, "code_version", lambda: "v1")
    monkeypatch.setattr(control.os, "kill", lambda *_: None)
    launches = []
    monkeypatch.setattr(control, "_preflight", lambda *_, **__: launches.append("preflight"))
    monkeypatch.setattr(control.subprocess, "Popen", lambda *_, **__: pytest.fail("launched"))
    with pytest.raises(pytest.fail.Exception, match="launched"):
        control.up(settings, airflow=False)
    assert launches == ["preflight"]
