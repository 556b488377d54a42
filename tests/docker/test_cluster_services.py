"""The compose deployment of a cluster: its file, and its services as processes of this machine."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyarrow import fs

from spark_jobs.config import Settings
from spark_jobs.server import airflow_parts, control
from spark_jobs.settings.sources import IN_SECRET_FILES, REQUIRED
from tests.docker.services import DOCKER, FILE, SECRETS, Services, deployed, read_compose
from tests.jobs.harness import Reading, write_drops, write_source
from tests.programs import find_program, reason_without

THRIFT, AIRFLOW, STORE = "10000", "8080", "7070"
ONCE = {"airflow-migrate"}


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    return read_compose(FILE)


@pytest.mark.skipif(find_program("docker-compose") is None, reason=reason_without("docker-compose"))
def test_compose_accepts_the_file(tmp_path: Path) -> None:
    subprocess.run([DOCKER / "cluster" / "make-secrets", tmp_path], check=True)
    text = FILE.read_text().replace("./secrets/", f"{tmp_path}/")
    copy = tmp_path / "compose.yaml"
    copy.write_text(text)
    command = [str(find_program("docker-compose")), "-f", str(copy), "config", "--format", "json"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    services = json.loads(result.stdout)["services"]
    assert sorted(services) == sorted(yaml.safe_load(text)["services"])
    assert services["spark-worker"]["deploy"]["replicas"] == 2


def test_no_service_is_root_or_writes_its_root_or_keeps_capabilities(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        assert re.match(r"[1-9]\d*", service["user"]), name
        assert service["read_only"] is True, name
        assert (service["cap_drop"], service["security_opt"]) == (["ALL"], ["no-new-privileges:true"]), name
        runs_java = service["image"].startswith("tidemark:")
        assert ("/tmp:exec,mode=1777" if runs_java else "/tmp") in service["tmpfs"], name


def test_each_service_has_limits_and_is_checked_unless_it_ends(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        assert set(service["deploy"]["resources"]["limits"]) == {"cpus", "memory", "pids"}, name
        assert ("healthcheck" in service) != (name in ONCE), name
        assert service["restart"] == ("no" if name in ONCE else "unless-stopped"), name


def test_services_wait_for_what_they_need(compose: dict[str, Any]) -> None:
    for service in compose["services"].values():
        for other, wish in service.get("depends_on", {}).items():
            expected = "service_completed_successfully" if other in ONCE else "service_healthy"
            assert wish == {"condition": expected}
    for part in airflow_parts.PARTS:
        assert set(compose["services"][part]["depends_on"]) == {"airflow-migrate", "lake"}


def test_images_are_pinned_and_ports_are_on_the_loopback(compose: dict[str, Any]) -> None:
    store = re.findall(r"^FROM (\S+)", (DOCKER / "cluster" / "store.Dockerfile").read_text(), re.MULTILINE)
    for image in [*store, *(service["image"] for service in compose["services"].values())]:
        assert re.search(r":v?\d+\.\d+", image), image
    ports = {name: service["ports"] for name, service in compose["services"].items() if "ports" in service}
    assert {name: [port.rpartition(":")[2] for port in each] for name, each in ports.items()} == {
        "store": [STORE],
        "lake": [THRIFT],
        "airflow-api-server": [AIRFLOW],
    }
    assert all(port.startswith("127.0.0.1:") for each in ports.values() for port in each)
    assert {"postgres", "spark-master"} == {n for n, s in compose["services"].items() if s["networks"] == ["inside"]}
    assert compose["networks"]["inside"] == {"internal": True}


def test_secrets_are_files_that_the_program_writes(compose: dict[str, Any], tmp_path: Path) -> None:
    make = DOCKER / "cluster" / "make-secrets"
    subprocess.run([make, tmp_path], check=True)
    written = {file.name: file.read_text() for file in tmp_path.iterdir()}
    assert set(written) == set(compose["secrets"])
    subprocess.run([make, tmp_path], check=True)
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == written
    for name, secret in compose["secrets"].items():
        assert secret == {"file": f"./secrets/{name}"}
        assert name.removeprefix("tidemark_") in IN_SECRET_FILES or not name.startswith("tidemark_")
    # no secret is in an environment, which `docker inspect` shows
    for service in compose["services"].values():
        for key, value in service.get("environment", {}).items():
            assert not re.search("password|secret|key", key, re.IGNORECASE) or str(value).startswith(SECRETS), key
    assert tmp_path.stat().st_mode & 0o077 == 0


def test_the_settings_are_those_that_a_cluster_requires(compose: dict[str, Any]) -> None:
    given = {key for service in compose["services"].values() for key in service.get("environment", {})}
    named = {key.removeprefix("TIDEMARK_").lower() for key in given if key.startswith("TIDEMARK_")}
    assert named <= set(Settings.model_fields)
    secrets = {name.removeprefix("tidemark_") for name in compose["services"]["lake"]["secrets"]}
    assert set(REQUIRED["cluster"]) <= named | secrets
    assert int(compose["services"]["lake"]["stop_grace_period"].removesuffix("s")) >= control.DOWN_TIMEOUT_S
    for part in airflow_parts.PARTS:
        assert compose["services"][part]["environment"] == compose["services"]["lake"]["environment"]


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    """All services of the file, with a source of two days."""
    folder = tmp_path_factory.mktemp("services")
    settings = write_source(Settings(home=folder / "here"))
    write_drops(settings, [Reading(drop, 1440 * drop + 7, meter, 5) for drop in (0, 1) for meter in "xyz"])
    with deployed(folder, {"TIDEMARK_SOURCES": str(settings.sources)}) as running:
        landing = running.environment("lake")["TIDEMARK_LANDING"].removeprefix("s3a://")
        fs.copy_files(str(settings.landing), landing, destination_filesystem=running.bucket_files())
        yield running


RUNNING = [pytest.mark.server, pytest.mark.airflow, pytest.mark.long, pytest.mark.timeout(1800)]


class TestRunning:
    """Actions of people on the deployment."""

    pytestmark = RUNNING

    @pytest.mark.skipif(find_program("versitygw") is None, reason=reason_without("versitygw"))
    @pytest.mark.skipif(shutil.which("wget") is None, reason="wget, with which the store is asked, is not here")
    def test_the_store_has_the_bucket_and_wants_its_keys(self, services: Services) -> None:
        assert services.bucket_files().get_file_info("tidemark").type == fs.FileType.Directory
        assert (services.folder / "data" / "tidemark").is_dir()

    def test_a_backfill_goes_through_airflow_to_executors(self, services: Services) -> None:
        days = ("--from", "2024-01-01", "--to", "2024-01-02")
        result = services.run("lake", "tidemark", "backfill", "meters", *days, "--unpause", timeout_s=900)
        assert result.returncode == 0, result.stdout + result.stderr + services.log("airflow-scheduler")
        count = "SELECT count(*) AS windows, count(DISTINCT meter) AS meters FROM silver.hourly"
        answer = services.run("lake", "tidemark", "sql", count, "--json")
        assert answer.returncode == 0, answer.stderr
        assert json.loads(answer.stdout)["rows"][0]["meters"] == 3
        # the tables are in the bucket
        assert services.bucket_files().get_file_info(fs.FileSelector("tidemark/lake/silver.db"))

    def test_executors_of_both_workers_work_for_the_lake_server(self, services: Services) -> None:
        result = services.run("lake", "tidemark", "status", "--wait", "0", "--json")
        status = json.loads(result.stdout)
        assert result.returncode == 0, status
        assert status["surroundings"]["executors"]["detail"].startswith("2 executors with 2 cores")
        assert status["surroundings"]["catalog"]["url"].startswith("jdbc:postgresql://127.0.0.1")
        assert not {"airflow-scheduler"} & set(status["parts"])

    def test_services_end_in_order(self, services: Services) -> None:
        codes = services.stop()
        assert {name: code for name, code in codes.items() if code not in (0, -15, 143, 130, -2)} == {}
