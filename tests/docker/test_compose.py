"""The deployment's files: valid, pinned, healthy-checked, without root, on the loopback alone."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from spark_jobs.server import (
    airflow_parts,
    command_part,
    control,
    first_work_part,
    lake,
    liveness,
    metrics_part,
    postgres,
)
from tests.programs import find_program, reason_without

DOCKER = Path(__file__).parents[2] / "docker"
COMPOSE = DOCKER / "compose.yaml"
DOCKERFILE = (DOCKER / "Dockerfile").read_text()

SERVICE_KEYS = {
    *("build", "cap_drop", "command", "depends_on", "entrypoint", "environment", "healthcheck", "image", "mem_limit"),
    *("ports", "profiles", "restart", "security_opt", "stop_grace_period", "user", "volumes"),
}
"""Keys of a service that the Compose Specification knows, as far as this file uses them."""


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    return yaml.safe_load(COMPOSE.read_text())


@pytest.mark.skipif(find_program("docker-compose") is None, reason=reason_without("docker-compose"))
def test_docker_compose_accepts_the_file() -> None:
    compose = str(find_program("docker-compose"))
    command = [compose, "-f", str(COMPOSE), "--profile", "sample", "config", "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert sorted(json.loads(done.stdout)["services"]) == ["sample", "tidemark"]


def test_the_services_are_the_deployment_and_its_sample(compose: dict[str, Any]) -> None:
    assert sorted(compose["services"]) == ["sample", "tidemark"]
    assert set(compose) == {"name", "services", "volumes"}


def test_services_use_keys_of_the_specification_and_volumes_that_are_declared(compose: dict[str, Any]) -> None:
    for service in compose["services"].values():
        assert set(service) <= SERVICE_KEYS
        named = [volume.split(":")[0] for volume in service["volumes"] if not volume.startswith((".", "/"))]
        assert set(named) <= set(compose["volumes"])
        assert set(service.get("depends_on", {})) <= set(compose["services"])


def test_every_image_is_pinned_by_a_version(compose: dict[str, Any]) -> None:
    images = re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE) + [s["image"] for s in compose["services"].values()]
    assert len(images) == 4
    for image in images:
        assert re.search(r":\d+\.\d+\.\d+", image), image


def test_no_service_runs_as_root_or_keeps_capabilities(compose: dict[str, Any]) -> None:
    assert re.findall(r"^USER (\S+)", DOCKERFILE, re.MULTILINE) == ["10001"]
    for service in compose["services"].values():
        assert service["user"] == "10001"
        assert service["cap_drop"] == ["ALL"]
        assert "no-new-privileges:true" in service["security_opt"]


def test_ports_are_published_on_the_loopback_alone(compose: dict[str, Any]) -> None:
    ports = [port for service in compose["services"].values() for port in service.get("ports", [])]
    assert len(ports) == 3
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_what_stays_up_is_checked_for_health_and_what_needs_it_waits(compose: dict[str, Any]) -> None:
    lasting = {name for name, service in compose["services"].items() if service["restart"] != "no"}
    assert {name for name, service in compose["services"].items() if "healthcheck" in service} == lasting
    assert compose["services"]["sample"]["depends_on"] == {"tidemark": {"condition": "service_healthy"}}


def test_docker_waits_for_the_end_as_long_as_the_supervisor_may_take(compose: dict[str, Any]) -> None:
    lake_server = lake.GRACE_S + lake.ARCHIVING_S
    airflow = airflow_parts.GRACE_S * len((airflow_parts.MIGRATION, *airflow_parts.PARTS))
    others = command_part.GRACE_S + first_work_part.GRACE_S + liveness.GRACE_S + postgres.GRACE_S
    others += metrics_part.GRACE_S
    assert lake_server + airflow + others <= control.DOWN_TIMEOUT_S
    assert int(compose["services"]["tidemark"]["stop_grace_period"].removesuffix("s")) >= control.DOWN_TIMEOUT_S


def test_the_image_has_compiled_kernels_where_its_processes_look_for_them() -> None:
    build, _, image = DOCKERFILE.rpartition("\nFROM ")
    assert "python -m spark_jobs.jobs.rehearse" in build
    (built,) = re.findall(r"NUMBA_CACHE_DIR=(\S+)", build)
    assert re.findall(r"NUMBA_CACHE_DIR=(\S+)", image) == [built]
    assert f"COPY --from=build --chown=tidemark {built} {built}" in image


def test_the_image_holds_what_its_build_copies() -> None:
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE)
    allowed = {
        line[1:] for line in (DOCKER / "Dockerfile.dockerignore").read_text().splitlines() if line.startswith("!")
    }
    for name in " ".join(copied).split():
        assert (DOCKER.parent / name).exists(), name
        assert name in allowed, name


def test_the_command_lines_of_the_services_exist(compose: dict[str, Any]) -> None:
    from spark_jobs.jobs.prepare import _parser

    program = "from spark_jobs.cli.app import run; import sys; sys.exit(run(sys.argv[1:]))"
    command = [sys.executable, "-c", program, *compose["services"]["tidemark"]["command"], "--help"]
    told = subprocess.run(command, capture_output=True, text=True, check=True, cwd=DOCKER.parent).stdout
    assert "--foreground" in told
    assert _parser().parse_args(compose["services"]["sample"]["command"]).landing_root == "/var/lib/tidemark/landing"
