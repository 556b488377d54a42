"""The search for the Java that Spark will run on, and an early refusal if Spark cannot run on it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from spark_jobs.jvm.errors import JavaUnusable

OLDEST_JAVA = 17
"""The oldest Java that Spark 4 runs on."""

NEEDED_MODULE = "jdk.incubator.vector"
"""The Java module that Spark needs to start its JVM. Trimmed Java distributions leave it out."""

INSTALL_HINT = "install a full JDK or JRE 17 or newer (Debian, Ubuntu: `apt-get install openjdk-17-jre-headless`)"


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that Spark runs on: its executable and version line."""

    executable: Path
    version: str


def find_java() -> Java:
    """The Java of JAVA_HOME, else the one on PATH, once it has been checked.

    Raises:
        JavaUnusable: there is none, it is older than 17, or it lacks a module that Spark needs.
    """
    executable = java_path()
    answer = _run(executable, "-version")
    version = answer.stderr.strip().splitlines()[0] if answer.stderr.strip() else "no answer"
    major = _major(version)
    if answer.returncode or major is None or major < OLDEST_JAVA:
        raise _unusable(f"{version} ({executable})", version)
    if _run(executable, "--add-modules", NEEDED_MODULE, "-version").returncode:
        raise _unusable(f"{version} without the module {NEEDED_MODULE} ({executable})", version)
    return Java(executable, version)


def java_path() -> Path:
    """The path of the Java that `find_java` checks, without the checks.

    Raises:
        JavaUnusable: there is none.
    """
    executable = _candidate()
    if executable is None:
        raise _unusable("none on PATH, and JAVA_HOME is not set", None)
    return executable


def _candidate() -> Path | None:
    home = os.environ.get("JAVA_HOME")
    if home:
        inside = Path(home) / "bin" / "java"
        if not inside.exists():
            raise _unusable(f"no bin/java in JAVA_HOME, which is {home}", None)
        return inside
    path = shutil.which("java")
    return Path(path) if path else None


def _run(executable: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([executable, *arguments], capture_output=True, text=True, check=False, timeout=60)


def _major(version_line: str) -> int | None:
    """The major version in a version line: 17 for `openjdk version "17.0.15"`, 8 for `java version "1.8.0_402"`."""
    match = re.search(r'"(?:1\.)?(\d+)', version_line)
    return int(match.group(1)) if match else None


def _unusable(finding: str, version: str | None) -> JavaUnusable:
    return JavaUnusable(expected=f"Java {OLDEST_JAVA} or newer", found=finding, next_step=INSTALL_HINT, version=version)
