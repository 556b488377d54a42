"""Services of a compose file as processes of this machine, without containers: their own commands, environments and
health checks, with other paths, names and ports.

What a container adds is not tried: its user, its file system, its limits and its network.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from pyarrow import fs

from spark_jobs.config import Settings
from spark_jobs.jvm.jars import POSTGRESQL, S3
from spark_jobs.jvm.java import java_path
from spark_jobs.server.postgres import _demotion, programs
from tests.installations import CHECKOUT, TIDEMARK, free_port, until
from tests.moto import s3_server
from tests.programs import find_program

DOCKER = CHECKOUT / "docker"
FILE, MAKE_SECRETS = DOCKER / "cluster" / "compose.yaml", DOCKER / "cluster" / "make-secrets"
SECRETS = "/run/secrets"
PORTS = {
    "postgres": ("5432",),
    "store": ("7070",),
    "spark-master": ("7077", "8090"),
    "spark-worker": ("8081",),
    "lake": (),
    "airflow-api-server": ("8080",),
}
"""Service of the compose file of a cluster -> its ports in the file."""


def read_compose(path: Path) -> dict[str, Any]:
    """A compose file with its variables' defaults."""
    text = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", path.read_text())
    return dict(yaml.safe_load(text.replace("$$", "$")))


def image_environment(dockerfile: Path) -> dict[str, str]:
    """The environment variables of the image that a Dockerfile makes, without the path."""
    last = dockerfile.read_text().rpartition("\nFROM ")[2]
    block = re.search(r"^ENV (.*?[^\\])$", last, re.MULTILINE | re.DOTALL)
    assert block
    lines = [line for line in block.group(1).splitlines() if not line.strip().startswith("#")]
    return dict(re.findall(r"(\w+)=([^\s\\]+)", "\n".join(lines[1:])))


@dataclass
class Services:
    """Services of a compose file, which run below a folder.

    Args:
        compose: the content of the file.
        ports: name of a service -> its port in the file -> its port here.
        others: environment variables that replace those of the file, for each service.
    """

    compose: dict[str, Any]
    folder: Path
    image: Mapping[str, str]
    ports: dict[str, dict[str, int]]
    others: Mapping[str, str]
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    absent: set[str] = field(default_factory=set)
    """Services that something else takes the place of."""

    @property
    def secrets(self) -> Path:
        return self.folder / "secrets"

    def make_secrets(self, program: Path) -> None:
        """Write the secrets as the deployment's own program does, for the addresses of this machine."""
        subprocess.run([str(program), str(self.secrets)], check=True)
        for file in self.secrets.iterdir():
            file.write_text(self._here(file.read_text()))

    def start(self, name: str, number: int = 0) -> None:
        """Start a service, or a further one of its replicas."""
        service, process = self.compose["services"][name], f"{name}-{number}"
        argv = [*service.get("entrypoint", []), *service.get("command", [])]
        environment = self.environment(name, number)
        with (self.folder / f"{process}.log").open("ab") as log:
            self.processes[process] = subprocess.Popen(
                self._argv(argv, name, number), env=environment, cwd=self._home(number), stdout=log, stderr=log
            )

    def run(self, name: str, *command: str, timeout_s: float = 600) -> subprocess.CompletedProcess[str]:
        """Run a command as `docker compose exec` does in a service."""
        return subprocess.run(
            self._argv(list(command), name),
            env=self.environment(name),
            cwd=self._home(0),
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def wait(self, name: str, number: int = 0, timeout_s: float = 900) -> None:
        """Wait until a service is healthy, or has ended in order if it has no health check."""
        process = self.processes[f"{name}-{number}"]
        check = self.compose["services"][name].get("healthcheck")
        if check is None:
            assert process.wait(timeout_s) == 0, self.log(name, number)
            return
        kind, *command = check["test"]
        assert kind == "CMD"

        def healthy() -> bool:
            assert process.poll() is None, self.log(name, number)
            environment = self.environment(name, number)
            answer = subprocess.run(
                self._argv(command, name, number), env=environment, capture_output=True, check=False
            )
            return answer.returncode == 0

        until(healthy, timeout_s, f"{name} did not become healthy: {self.log(name, number)}")

    def start_healthy(self, name: str) -> None:
        """Start all replicas of a service, and before it those that it needs, and wait until they are healthy."""
        service = self.compose["services"][name]
        if f"{name}-0" in self.processes or name in self.absent:
            return
        for other in service.get("depends_on", {}):
            self.start_healthy(other)
        numbers = range(int(service.get("deploy", {}).get("replicas", 1)))
        for number in numbers:
            self.start(name, number)
        for number in numbers:
            self.wait(name, number)

    def bucket_files(self) -> fs.S3FileSystem:
        """The objects of the store, by bucket and key."""
        environment = self.environment("lake")
        return fs.S3FileSystem(
            endpoint_override=environment["AWS_ENDPOINT_URL"],
            region=environment["AWS_REGION"],
            access_key=(self.secrets / "aws_access_key_id").read_text(),
            secret_key=(self.secrets / "aws_secret_access_key").read_text(),
            allow_bucket_creation=True,
        )

    def log(self, name: str, number: int = 0) -> str:
        return (self.folder / f"{name}-{number}.log").read_text()[-4000:]

    def stop(self) -> dict[str, int]:
        """End all processes, the last one first; name -> exit code of each that still ran."""
        codes = {}
        for name, process in reversed(self.processes.items()):
            if process.poll() is None:
                of_service = self.compose["services"].get(name.rpartition("-")[0], {})
                process.send_signal(signal.Signals[of_service.get("stop_signal", "SIGTERM")])
                try:
                    codes[name] = process.wait(150)
                except subprocess.TimeoutExpired:
                    process.kill()
                    codes[name] = process.wait()
        return codes

    def environment(self, name: str, number: int = 0) -> dict[str, str]:
        """The environment of a service: that of its image, of the file, and of this test."""
        service = self.compose["services"][name]
        of_image = self.image if str(service["image"]).startswith("tidemark:") else {}
        given = {**of_image, **service.get("environment", {})}
        # kernels of this checkout are beside their modules
        given.pop("NUMBA_CACHE_DIR", None)
        path = f"{TIDEMARK.parent}:{programs()}:{CHECKOUT / '.programs'}:/usr/bin:/bin:/usr/local/bin"
        here = {key: self._here(str(value), name, number) for key, value in given.items()}
        return {
            "PATH": path,
            "HOME": str(self._home(number)),
            "JAVA_HOME": str(java_path().resolve().parents[1]),
            "LC_ALL": "C.UTF-8",
            **here,
            **self.others,
        }

    def _home(self, number: int) -> Path:
        home = self.folder / f"cwd-{number}"
        home.mkdir(exist_ok=True)
        return home

    def _argv(self, argv: list[str], name: str, number: int = 0) -> list[str]:
        """A command with the paths, names and ports of this machine; tini, which only containers need, is left out."""
        if argv[:2] == ["tini", "--"] and shutil.which("tini") is None:
            argv = argv[2:]
        return [self._here(word, name, number) for word in argv]

    def _here(self, text: str, of: str = "", number: int = 0) -> str:
        """A text of the file with the paths, names and ports of this machine; `of` is the service that it is for."""
        for place, folder in {
            SECRETS: self.secrets,
            "/opt/tidemark": CHECKOUT,
            "/var/lib/tidemark": self.folder / "home",
            "/var/lib/spark": self.folder / f"spark-{number}",
            "/data": self.folder / "data",
        }.items():
            text = re.sub(rf"(?<![\w/]){place}(?![\w-])", str(folder), text)
        for name, ports in self.ports.items():
            # a name alone, or at the place of a host in an address
            text = re.sub(rf"(^|//|@){name}(?=$|[:/])", r"\g<1>127.0.0.1", text)
            for port, here in ports.items():
                text = re.sub(rf"(?<!\d){port}(?!\d)", str(here + number * (name == of)), text)
        return text


def ports_for(ports: Mapping[str, tuple[str, ...]]) -> dict[str, dict[str, int]]:
    """Free ports for those that services have in the file."""
    return {name: {port: free_port() for port in each} for name, each in ports.items()}


def initialise_postgres(services: Services, name: str, scripts: Path) -> None:
    """Make a database as the image of PostgreSQL does at its first start; the command becomes PostgreSQL's own."""
    service = services.compose["services"][name]
    given = services.environment(name)
    data = services.folder / "postgres"
    demoted: list[str] = []
    data.mkdir()
    if os.geteuid() == 0:
        shutil.chown(data, "nobody")
        demoted = _demotion(data.stat().st_uid)
    user, password = given["POSTGRES_USER"], given["POSTGRES_PASSWORD_FILE"]
    initdb = [*demoted, "initdb", f"--username={user}", f"--pwfile={password}", "--auth-host=scram-sha-256"]
    subprocess.run([*initdb, "--no-sync", "-D", str(data)], env=given, check=True, capture_output=True)
    statements = f"CREATE DATABASE {given['POSTGRES_DB']};\n{scripts.read_text()}"
    alone = [*demoted, "postgres", "--single", "-D", str(data), "postgres"]
    for statement in re.findall(r"^CREATE[^;]+", statements, re.MULTILINE):
        subprocess.run(alone, env=given, input=statement, text=True, check=True, capture_output=True)
    (port,) = services.ports[name].values()
    options = ["-c", "listen_addresses=127.0.0.1", "-c", f"port={port}", "-c", f"unix_socket_directories={data}"]
    service["command"] = [*demoted, str(programs() / "postgres"), "-D", str(data), *options]


@contextmanager
def deployed(folder: Path, others: Mapping[str, str], *names: str) -> Iterator[Services]:
    """The services of a cluster's compose file, healthy: those with these names and what they need, or all.

    Where versitygw or wget is not on this machine, moto takes the place of the store.
    """
    settings = Settings(home=folder / "jars")
    for jars in (S3, POSTGRESQL):
        jars.fetch(settings)
    here = ports_for(PORTS)
    of_test = {
        "TIDEMARK_THRIFT_PORT": str(free_port()),
        "TIDEMARK_CONNECT_PORT": str(free_port()),
        "TIDEMARK_AIRFLOW_PORT": str(here["airflow-api-server"]["8080"]),
        "TIDEMARK_EXECUTOR_MEMORY": "1g",
        "SPARK_WORKER_CORES": "1",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_HOSTNAME": "127.0.0.1",
        **others,
    }
    running = Services(read_compose(FILE), folder, image_environment(DOCKER / "Dockerfile"), here, of_test)
    running.make_secrets(MAKE_SECRETS)
    initialise_postgres(running, "postgres", DOCKER / "cluster" / "databases.sql")
    with s3_server(folder) as instead:
        if find_program("versitygw") is None or shutil.which("wget") is None:
            running.absent.add("store")
            running.others = {**of_test, "AWS_ENDPOINT_URL": instead["AWS_ENDPOINT_URL"]}
        try:
            for name in names or running.compose["services"]:
                running.start_healthy(name)
            place = running.environment("lake")["TIDEMARK_LANDING"].removeprefix("s3a://")
            running.bucket_files().create_dir(place.partition("/")[0])
            yield running
        finally:
            running.stop()
