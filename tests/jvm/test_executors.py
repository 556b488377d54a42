"""Executors that are processes of their own: how they reach the driver, and what Spark sends them."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tarfile
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from spark_jobs.code_version import PACKAGES, WORKER_VERSIONS, code_version, worker_versions
from spark_jobs.config import CHECKOUT, Settings
from spark_jobs.errors import ConfigurationError
from spark_jobs.failures import WorkerDiffers, explain
from spark_jobs.jobs.worker_daemon import find_difference
from spark_jobs.jvm.executors import driver_host, executors_conf, master_answers
from tests.installations import ODD_NAME, free_port


@pytest.fixture
def clustered(settings: Settings, tmp_path: Path) -> Settings:
    """Settings of a standalone master, in a home with a name that addresses must escape."""
    return settings.model_copy(update={"master": "spark://127.0.0.1:7077", "home": tmp_path / ODD_NAME})


def test_embedded_executors_are_sent_nothing(settings: Settings) -> None:
    conf = executors_conf(settings, [Path("/jars/a.jar"), Path("/jars/b.jar")])
    assert conf == {"spark.executor.extraClassPath": "/jars/a.jar:/jars/b.jar", "spark.driver.host": "127.0.0.1"}
    assert not settings.home.exists()


@pytest.mark.parametrize(
    ("given", "host"),
    [
        ({"driver_host": "driver.example.org", "bind_address": "0.0.0.0"}, "driver.example.org"),
        ({"bind_address": "10.0.0.5"}, "10.0.0.5"),
        ({"bind_address": "driver.example.org"}, "driver.example.org"),
        ({"bind_address": "0.0.0.0"}, "127.0.0.1"),
        ({"bind_address": "::"}, "127.0.0.1"),
        ({"bind_address": "0.0.0.0", "master": "spark://127.0.0.1:7077,192.0.2.1:7077"}, "127.0.0.1"),
    ],
)
def test_the_driver_announces_an_address_that_executors_reach(
    clustered: Settings, given: dict[str, str], host: str
) -> None:
    assert driver_host(clustered.model_copy(update=given)) == host


@pytest.mark.parametrize("master", ["yarn", "k8s://https://[::1]:6443/x", "spark://no.such.host.invalid:7077"])
def test_an_address_that_nobody_knows_is_asked_for(clustered: Settings, master: str) -> None:
    with pytest.raises(ConfigurationError, match="TIDEMARK_DRIVER_HOST"):
        driver_host(clustered.model_copy(update={"bind_address": "0.0.0.0", "master": master}))


def test_a_master_answers_if_one_of_several_does(clustered: Settings) -> None:
    away, there = free_port(), socket.create_server(("127.0.0.1", 0))
    port = there.getsockname()[1]
    for master, answers in {
        "local[2]": True,
        "yarn": True,
        f"spark://127.0.0.1:{away}": False,
        "spark://nonsense": False,
        f"spark://127.0.0.1:{away},127.0.0.1:{port}": True,
    }.items():
        assert master_answers(clustered.model_copy(update={"master": master})) is answers, master
    there.close()


def test_sizes_keys_and_lists_are_those_of_the_settings(clustered: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a key")
    sizes = {"executor_memory": "4g", "executor_overhead": "700m", "executor_cores": 3}
    further = {"spark_conf": {"spark.jars": "/more.jar", "spark.archives": "/a.zip#a"}}
    conf = executors_conf(clustered.model_copy(update={**sizes, **further}), [Path("/jars/a b.jar")])
    assert conf["spark.jars"] == "file:///jars/a%20b.jar,/more.jar"
    assert conf["spark.archives"].endswith("#tidemark_sources,/a.zip#a")
    named = {name: conf[f"spark.executor.{name}"] for name in ("memory", "memoryOverhead", "cores")}
    assert named == {"memory": "4g", "memoryOverhead": "700m", "cores": "3"}
    assert conf["spark.executorEnv.AWS_REGION"] == "eu-west-1"
    assert conf["spark.executorEnv.AWS_SECRET_ACCESS_KEY"] == "a key"
    of_machine = executors_conf(clustered.model_copy(update={"executor_keys": "machine"}), [])
    assert of_machine["spark.executorEnv.AWS_REGION"] == "eu-west-1"
    assert [name for name in of_machine if "KEY" in name or name == "spark.executor.memory"] == []


def test_an_unpacked_archive_is_the_code_of_this_version_with_its_kernels(clustered: Settings, tmp_path: Path) -> None:
    conf = executors_conf(clustered, [])
    work = tmp_path / "work"
    for address in conf["spark.archives"].split(","):
        place, _, name = address.partition("#")
        # as Spark unpacks it, since Python's own reader rounds times otherwise
        (work / name).mkdir(parents=True)
        archive = unquote(urlsplit(place).path)
        subprocess.run(["tar", "-xzf", archive, "-C", str(work / name)], check=True)
        with tarfile.open(archive) as packed:
            assert [entry for entry in packed.getnames() if entry.endswith(".pyc")] == []
    assert code_version(work) == code_version()
    for package in PACKAGES:
        for module in (CHECKOUT / package).rglob("*.py"):
            copied = work / package / module.relative_to(CHECKOUT / package)
            assert copied.stat().st_mtime == module.stat().st_mtime, "a kernel is compiled anew for another time"
    told = subprocess.run(
        [sys.executable, "-m", "spark_jobs.jobs.worker_daemon"],
        cwd=work,
        env={**os.environ, WORKER_VERSIONS: json.dumps({**worker_versions(), "numba": "0.1"}), "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (told.returncode, told.stdout) == (1, "")
    assert "worker_differs: expected numba 0.1, found numba " in told.stderr


def test_a_worker_that_differs_is_named(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    same = worker_versions()
    assert find_difference(same) is None
    other = find_difference({**same, "python": "3.1", "tidemark": "of another day"})
    assert other is not None
    assert f"expected python 3.1, tidemark of another day, found python {same['python']}, tidemark" in other
    error = explain(RuntimeError(f"SparkException: Error from python worker:\n  {other}\n\tat x"), settings)
    assert isinstance(error, WorkerDiffers)
    assert other in error.found
    monkeypatch.setattr("spark_jobs.code_version._OF_WORKERS", ("no-such-package",))
    lacking = find_difference({**same, "no-such-package": "1.0"})
    assert lacking is not None and "expected no-such-package 1.0, found no-such-package none" in lacking
