"""The command server: a command that it runs is the user's command, in what it says, how it ends and what ends it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from spark_jobs.cli.forward import LENGTH, SOCKET, STATUS, in_folder, receive_exactly
from spark_jobs.config import Settings
from spark_jobs.storage.coordination.turns import Line, NoDriver, Turn
from tests.cli.test_command_line import METERS
from tests.installations import ODD_NAME, TIDEMARK, until

pytestmark = pytest.mark.server

IMPORTED_S = 60.0
"""Seconds in which the server has imported what it does on a busy machine."""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Of an installation whose path is longer than a socket's may be; no lake server runs."""
    folder = tmp_path_factory.mktemp(ODD_NAME) / ("long " * 20)
    (folder / "sources").mkdir(parents=True)
    (folder / "sources" / "meters.yml").write_text(METERS)
    settings = Settings(home=folder / "home", sources=folder / "sources", connect_port=1)
    settings.server_dir.mkdir(parents=True)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TIDEMARK_")}
    return {**inherited, **settings.environment()}


@pytest.fixture(scope="module")
def server(environment: dict[str, str]) -> Iterator[psutil.Process]:
    process = subprocess.Popen([sys.executable, "-m", "spark_jobs.cli.command_server"], env=environment)
    until((home(environment) / "server" / SOCKET).is_socket, IMPORTED_S)
    yield psutil.Process(process.pid)
    process.terminate()
    process.wait()


def home(environment: dict[str, str]) -> Path:
    return Path(environment["TIDEMARK_HOME"])


def start(environment: dict[str, str], *arguments: str, folder: Path | None = None) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [TIDEMARK, *arguments], env=environment, cwd=folder, stdin=pipe, stdout=pipe, stderr=pipe, text=True
    )


@pytest.fixture
def waiting(
    environment: dict[str, str], server: psutil.Process
) -> Iterator[tuple[subprocess.Popen[str], psutil.Process]]:
    """A run that waits for its turn, as the user started it, and as the server forked it."""
    # who was killed while it waited stays in line for a while
    shutil.rmtree(home(environment) / "leases", ignore_errors=True)
    (home(environment) / "leases").mkdir()
    line = Line(home(environment) / "leases", "meters", Turn("holder", 0, "an earlier day"), NoDriver())
    assert line.step() is None
    client = start(environment, "run", "meters", "--from", "2026-01-01", "--to", "2026-01-01")
    assert client.stderr is not None
    assert "waits for run holder" in client.stderr.readline()
    yield client, server.children()[0]
    line.end()
    client.kill()
    client.communicate()


def expect_service(environment: dict[str, str], server: psutil.Process) -> None:
    """The server runs the next command."""
    before = server.cpu_times().children_user
    assert start(environment, "no-such-command").wait() == 2
    assert server.cpu_times().children_user > before


def test_a_command_has_its_users_arguments_folder_streams_and_environment(
    environment: dict[str, str], server: psutil.Process, tmp_path: Path
) -> None:
    (tmp_path / "rows.csv").write_text("id,at,value\na,2026-01-01T00:00:00Z,1\nb,2026-01-01T01:00:00Z,2\n")
    arguments = ("init", "rows.csv", "--json")
    alone = subprocess.run(
        [TIDEMARK, *arguments],
        env={**environment, "TIDEMARK_HOME": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    before = server.cpu_times().children_user
    done = start(environment, *arguments, folder=tmp_path)
    out, err = done.communicate()
    assert (done.returncode, out, err) == (alone.returncode, alone.stdout, alone.stderr)
    assert server.cpu_times().children_user > before, "the server ran it"
    other = start({**environment, "TIDEMARK_THRIFT_PORT": "many"}, "sql", "SELECT 1")
    assert "TIDEMARK_THRIFT_PORT='many'" in other.communicate()[1]
    assert other.returncode == 2


def test_the_home_of_a_settings_file_has_the_server_of_its_commands(
    environment: dict[str, str], server: psutil.Process, tmp_path: Path
) -> None:
    below = tmp_path / "project" / "sub"
    below.mkdir(parents=True)
    file = tmp_path / "project" / "tidemark.toml"
    file.write_text(f"home = {json.dumps(environment['TIDEMARK_HOME'])}\nthrift_port = 'many'")
    without = {name: value for name, value in environment.items() if not name.startswith("TIDEMARK_")}
    before = server.cpu_times().children_user
    command = start(without, "sql", "SELECT 1", folder=below)
    assert f"thrift_port = 'many' in {file}" in " ".join(command.communicate()[1].split())
    assert command.returncode == 2
    assert server.cpu_times().children_user > before, "the server ran it"


def test_tidemark_alone_says_the_same_as_without_it(environment: dict[str, str], server: psutil.Process) -> None:
    program = "from spark_jobs.cli.app import run; run([])"
    alone = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    before = server.cpu_times().children_user
    done = start(environment)
    assert done.communicate() == (alone.stdout, alone.stderr)
    assert done.returncode == 0
    assert "tidemark up --no-airflow" in alone.stdout
    assert server.cpu_times().children_user > before, "the server ran it"


def test_refusals_end_as_they_do_without_it(environment: dict[str, str], server: psutil.Process) -> None:
    done = start(environment, "sql", "SELECT 1", "--json")
    assert json.loads(done.communicate()[0])["error"]["code"] == "server_unreachable"
    assert done.returncode == 1
    assert start(environment, "no-such-command").wait() == 2


def test_of_other_code_or_another_python_the_command_is_run_by_its_user(
    environment: dict[str, str], server: psutil.Process
) -> None:
    before = server.cpu_times().children_user
    assert start({**environment, "PYTHONUTF8": "1"}, "no-such-command").wait() == 2
    assert server.cpu_times().children_user == before
    expect_service(environment, server)


def test_an_interrupt_reaches_the_command(waiting: tuple[subprocess.Popen[str], psutil.Process]) -> None:
    client, fork = waiting
    client.send_signal(signal.SIGINT)
    assert "interrupted" in client.communicate()[1]
    assert client.returncode == 130
    assert not fork.is_running()


def test_a_command_that_is_killed_ends_its_users_process_the_same_way(
    waiting: tuple[subprocess.Popen[str], psutil.Process],
) -> None:
    client, fork = waiting
    fork.kill()
    assert client.wait() == -signal.SIGKILL


def test_a_command_ends_with_its_users_process(waiting: tuple[subprocess.Popen[str], psutil.Process]) -> None:
    client, fork = waiting
    client.kill()
    client.wait()
    until(lambda: not fork.is_running())


def test_the_server_outlives_what_is_no_request(environment: dict[str, str], server: psutil.Process) -> None:
    for content in (b"", b"short", b"\xff" * 8, b"\x04" + b"\0" * 7 + b"{}"):
        with socket.socket(socket.AF_UNIX) as connection, in_folder(home(environment) / "server") as path:
            connection.connect(path)
            socket.send_fds(connection, [content], [0, 1, 2]) if content else None
    expect_service(environment, server)


def test_the_server_outlives_a_command_and_its_users_process_that_end_at_once(
    environment: dict[str, str], waiting: tuple[subprocess.Popen[str], psutil.Process], server: psutil.Process
) -> None:
    client, fork = waiting
    server.suspend()
    client.kill()
    fork.kill()
    client.wait()
    server.resume()
    until(lambda: not fork.is_running())
    expect_service(environment, server)


def test_who_lost_a_backfill_with_the_server_is_told_to_resume_it(environment: dict[str, str], tmp_path: Path) -> None:
    """The server of this test dies as soon as it has begun with the command."""
    (tmp_path / "server").mkdir()
    with socket.socket(socket.AF_UNIX) as listener, in_folder(tmp_path / "server") as path:
        listener.bind(path)
        listener.listen()
        client = start({**environment, "TIDEMARK_HOME": str(tmp_path)}, "backfill", "meters", "--failed")
        connection, _ = listener.accept()
        with connection:
            (size,) = LENGTH.unpack(receive_exactly(connection, LENGTH.size))
            receive_exactly(connection, size)
            connection.sendall(STATUS.pack(client.pid))
    refusal = " ".join(client.communicate()[1].split())
    assert "`tidemark up`, then `tidemark backfill SOURCE --resume`" in refusal


def test_commands_end_with_the_server_and_say_so(
    environment: dict[str, str], waiting: tuple[subprocess.Popen[str], psutil.Process], server: psutil.Process
) -> None:
    client, fork = waiting
    server.kill()
    refusal = client.communicate()[1]
    assert "command_server_gone" in refusal
    assert "tidemark up" in refusal
    assert client.returncode == 1
    until(lambda: not fork.is_running() or fork.status() == psutil.STATUS_ZOMBIE)
    # its socket is still there
    assert start(environment, "no-such-command").wait() == 2
