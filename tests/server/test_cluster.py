"""The lake server on a real standalone cluster: executors without the checkout, and a master that is lost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.installations import ODD_NAME, TIDEMARK, Installation
from tests.jobs.harness import Reading, write_drops, write_source
from tests.standalone import SECRET, Standalone, standalone

pytestmark = [pytest.mark.server, pytest.mark.long, pytest.mark.timeout(1800)]
DAYS = ("--from", "2024-01-01", "--to", "2024-01-02")
COUNT = "SELECT count(*) AS windows, count(DISTINCT meter) AS meters FROM silver.hourly"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    with standalone(tmp_path_factory.mktemp("cluster") / "spark") as running:
        yield running


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
    installed = installation(tmp_path / ODD_NAME.replace("#", "n"), cluster)
    with installed.serving("--no-airflow", timeout_s=900):
        around = installed.json("status")["surroundings"]
        assert around["executors"] == {**around["executors"], "ok": True, "url": cluster.master}
        assert "2 executors with 2 cores on 127.0.0.1" in around["executors"]["detail"]
        installed.json("run", "meters", *DAYS, wait_s=900)
        assert installed.sql(COUNT)[0]["meters"] == 3


def test_a_worker_with_other_packages_is_refused_by_name(tmp_path: Path, cluster: Standalone) -> None:
    other = {"spark.executorEnv.TIDEMARK_WORKER_VERSIONS": json.dumps({"numba": "0.1"})}
    installed = installation(tmp_path / "home", cluster, spark_conf=other)
    try:
        refused = installed.run(str(TIDEMARK), "up", "--no-airflow", timeout_s=900)
        assert refused.returncode != 0
        assert "worker_differs: expected numba 0.1, found numba" in " ".join(refused.stderr.split())
    finally:
        installed.run(str(TIDEMARK), "down")
