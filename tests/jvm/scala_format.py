"""scalafmt over Tidemark's Scala code: `python -m tests.jvm.scala_format` rewrites it, with `--test` it only checks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark

from spark_jobs.config import load_settings
from spark_jobs.jvm.jars import SCALAFMT
from spark_jobs.jvm.java import find_java
from spark_jobs.jvm.scala_code import SCALA

RULES = Path(__file__).parents[2] / ".scalafmt.conf"
FORMATTER = "org.scalafmt.cli.Cli"


def main(options: list[str]) -> int:
    """Run scalafmt with these options. Returns its exit code: 1 if `--test` is given and a file is not formatted."""
    libraries = [
        jar
        for name in ("library", "reflect")
        for jar in (Path(pyspark.__file__).parent / "jars").glob(f"scala-{name}-*")
    ]
    path = os.pathsep.join(map(str, [*SCALAFMT.files(load_settings()), *libraries]))
    command = (str(find_java().executable), "-cp", path, FORMATTER, "--non-interactive", "--config", str(RULES))
    return subprocess.run([*command, *options, str(SCALA)], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
