"""A standalone Spark cluster of a test's own: a master and workers, each a process with its own folder and environment.

The workers' Python has the packages of this one, and not the checkout: what executors run is sent to them.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyspark

from spark_jobs.jvm.java import java_path
from tests.installations import free_port, listens, until

SECRET = "of-a-test"
_HOME = Path(pyspark.__file__).parent


@dataclass
class Standalone:
    """The cluster: its folder, the master's port, and its processes by name."""

    folder: Path
    port: int = field(default_factory=free_port)
    recovers: bool = False
    """True if the master keeps its applications in files, and a master that starts again goes on with them."""
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def master(self) -> str:
        return f"spark://127.0.0.1:{self.port}"

    @property
    def python(self) -> Path:
        """A Python that imports the packages of this one. Of an editable checkout it has no path."""
        return self.folder / "python" / "bin" / "python"

    def make_python(self) -> None:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(self.folder / "python")], check=True)
        (own,) = (self.folder / "python").glob("lib/python*/site-packages")
        (own / "packages.pth").write_text(f"{_HOME.parent}\n")

    def start_master(self) -> None:
        self._start("master", "org.apache.spark.deploy.master.Master", "--port", str(self.port))
        until(lambda: listens(self.port), 120, "the master does not listen")

    def start_worker(self, name: str) -> None:
        work = ("--work-dir", str(self.folder / name / "work"))
        options = ("--port", "0", "--cores", "1", "--memory", "1536m", *work)
        self._start(name, "org.apache.spark.deploy.worker.Worker", *options, self.master)

    def kill(self, name: str) -> None:
        process = self.processes.pop(name)
        process.kill()
        process.wait()

    def _start(self, name: str, program: str, *options: str) -> None:
        recovery = f" -Dspark.deploy.recoveryMode=FILESYSTEM -Dspark.deploy.recoveryDirectory={self.folder}/recovery"
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        environment = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(folder),
            "JAVA_HOME": str(java_path().resolve().parents[1]),
            "SPARK_HOME": str(_HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(folder),
            "SPARK_NO_DAEMONIZE": "1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": f"-Dspark.authenticate=true -Dspark.authenticate.secret={SECRET}"
            + (recovery if self.recovers else ""),
        }
        command = [str(_HOME / "bin" / "spark-class"), program, "--host", "127.0.0.1", "--webui-port", "0", *options]
        with (folder / "log").open("ab") as log:
            self.processes[name] = subprocess.Popen(command, env=environment, cwd=folder, stdout=log, stderr=log)


@contextmanager
def standalone(folder: Path, workers: int = 2, *, recovers: bool = False) -> Iterator[Standalone]:
    """A master with workers of one core each, which end with the block."""
    folder.mkdir()
    cluster = Standalone(folder, recovers=recovers)
    cluster.make_python()
    try:
        cluster.start_master()
        for number in range(workers):
            cluster.start_worker(f"worker-{number}")
        yield cluster
    finally:
        for process in cluster.processes.values():
            process.terminate()
        for process in cluster.processes.values():
            process.wait(60)
