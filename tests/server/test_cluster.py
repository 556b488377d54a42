"""The lake server on a real standalone cluster: executors without the checkout, and a master that is lost."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.installations import ODD_NAME, TIDEMARK, Installation, until
from tests.jobs.harness import Reading, write_drops, write_source
from tests.standalone import SECRET, Standalone, standalone

pytestmark = [pytest.mark.server, pytest.mark.long, pytest.mark.timeout(1800)]
DAYS = ("--from", "2024-01-01", "--to", "2024-01-02")
COUNT = "SELECT count(*) AS windows, count(DISTINCT meter) AS meters FROM silver.hourly"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    with standalone(tmp_path_factory.mktemp("cluster") / "spark") as running:
        yield running


DECISIONS = """
import json
from spark_jobs.distribution import cores_of, is_local, process_memory
from spark_jobs.session import open_session
spark = open_session()
print(json.dumps([is_local(spark), cores_of(spark), process_memory(spark)]))
"""
"""A program that prints where a command's session lets work be done: a local master, the cores, its own memory."""


def installation(home: Path, cluster: Standalone, **others: Any) -> Installation:
    """A home whose lake server works on the cluster, on all interfaces of this machine, with a source and its files."""
    given = {"sources": home / "sources", "landing": home / "landing", "connect_timeout_s": 60, "heap": "1g"}
    of_cluster: dict[str, Any] = {"master": cluster.master, "spark_secret": SECRET, "executor_memory": "512m"}
    of_cluster |= {"executor_python": str(cluster.python), "bind_address": "0.0.0.0", "plaintext": True}
    installed = Installation(home, **{**given, **of_cluster, **others})
    installed.environment["TIDEMARK_SPARK_SECRET"] = SECRET
    write_source(installed.settings)
    write_drops(installed.settings, [Reading(drop, 1440 * drop + 7, meter, 5) for drop in (0, 1) for meter in "xyz"])
    return installed


def test_executors_get_the_code_and_an_address_from_the_driver(tmp_path: Path, cluster: Standalone) -> None:
    installed = installation(tmp_path / ODD_NAME.replace("#", "n"), cluster, process_memory="16m")
    with installed.serving("--no-airflow", timeout_s=900):
        around = installed.json("status")["surroundings"]
        assert around["executors"] == {**around["executors"], "ok": True, "url": cluster.master}
        assert "2 executors with 2 cores on 127.0.0.1" in around["executors"]["detail"]
        installed.json("run", "meters", *DAYS, wait_s=900)
        assert installed.sql(COUNT)[0]["meters"] == 3
        decisions = installed.run(sys.executable, "-c", DECISIONS)
        assert json.loads(decisions.stdout.splitlines()[-1]) == [False, 2, 16 << 20], decisions.stderr


def test_a_worker_with_other_packages_is_refused_by_name(tmp_path: Path, cluster: Standalone) -> None:
    other = {"spark.executorEnv.TIDEMARK_WORKER_VERSIONS": json.dumps({"numba": "0.1"})}
    installed = installation(tmp_path / "home", cluster, spark_conf=other)
    try:
        refused = installed.run(str(TIDEMARK), "up", "--no-airflow", timeout_s=900)
        assert refused.returncode != 0
        assert "worker_differs: expected numba 0.1, found numba" in " ".join(refused.stderr.split())
    finally:
        installed.run(str(TIDEMARK), "down")


def lake_part(installed: Installation) -> dict[str, Any]:
    """The lake server's part of what `status` says now."""
    status = installed.run(str(TIDEMARK), "status", "--wait", "0", "--json")
    return dict(json.loads(status.stdout)["parts"]["lake"])


def serves(installed: Installation) -> bool:
    return installed.run(str(TIDEMARK), "status", "--wait", "0").returncode == 0


def test_a_master_that_was_lost_and_came_back_costs_a_start_of_the_server(tmp_path: Path, cluster: Standalone) -> None:
    installed = installation(tmp_path / "home", cluster, executor_patience_s=20)
    with installed.serving("--no-airflow", timeout_s=900):
        installed.json("run", "meters", *DAYS, wait_s=900)
        rows = installed.sql(COUNT)
        cluster.kill("master")
        status = installed.run(str(TIDEMARK), "status", "--wait", "0", "--json")
        executors = json.loads(status.stdout)["surroundings"]["executors"]
        assert (status.returncode, executors["ok"]) == (1, False)
        assert "the master does not answer" in executors["detail"]
        cluster.start_master()
        until(lambda: lake_part(installed)["restarts"] == 1, 600, "the server was not started again")
        assert "it has no executor" in lake_part(installed)["reason"]
        until(lambda: serves(installed), 600, "the server does not serve again")
        assert installed.sql(COUNT) == rows

        # a server that ends meanwhile waits for the master, and is not given up
        cluster.kill("master")
        os.kill(lake_part(installed)["pid"], signal.SIGKILL)
        until(lambda: lake_part(installed)["condition"] == "restarting", 120, "the server was not ended")
        cluster.start_master()
        until(lambda: serves(installed), 600, "the server does not serve again")
        assert installed.sql(COUNT) == rows
    cluster.kill("master")
    refused = installed.run(str(TIDEMARK), "up", "--no-airflow")
    cluster.start_master()
    assert refused.returncode != 0 and "master_unreachable" in refused.stderr


def test_a_master_that_recovers_costs_nothing(tmp_path: Path) -> None:
    with standalone(tmp_path / "spark", workers=1, recovers=True) as cluster:
        installed = installation(tmp_path / "home", cluster)
        with installed.serving("--no-airflow", timeout_s=900):
            before = lake_part(installed)
            cluster.kill("master")
            cluster.start_master()
            until(lambda: serves(installed), 600, "the server does not serve again")
            assert installed.sql("SELECT sum(id) AS total FROM range(1000)") == [{"total": 499_500}]
            assert lake_part(installed) == before
