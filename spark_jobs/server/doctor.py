"""`doctor`: an examination of this installation, with a next step for each finding."""

from __future__ import annotations

import json
import shlex
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path

from spark_jobs.config import LAST_BACKUP, Settings
from spark_jobs.errors import TidemarkError
from spark_jobs.jvm.jars import needed_sets
from spark_jobs.jvm.java import find_java
from spark_jobs.model import Finding
from spark_jobs.server.control import lost_under_server
from spark_jobs.server.lake_lock import holder
from spark_jobs.server.ports import listener, wanted_ports
from spark_jobs.server.state import PartState
from spark_jobs.server.status import InstallationStatus, status
from spark_jobs.sources import read_sources

LEAST_FREE_BYTES = 2 * 1024**3
"""The free space that a disk should have. The sample's lake, logs and scratch space together need less than 1 GiB."""

VERSIONS = {"pyspark": "4.2.0", "delta-spark": "4.4.0", "apache-airflow": "3.3.2"}
"""The versions of packages that this code was tested with; the lock file pins all others."""


def examine(settings: Settings) -> list[Finding]:
    """The findings about everything but the lake's data; takes 2 to 5 s."""
    now = status(settings)
    looks: list[Callable[[], Iterator[Finding]]] = [
        _python,
        _java,
        lambda: _jars(settings),
        lambda: _disk(settings),
        lambda: _private(settings),
        lambda: _services(now),
        lambda: _folders(settings, now),
        lambda: _ports(settings, now),
        lambda: _writer(settings, now),
        lambda: _backup(settings),
        lambda: _sources(settings),
    ]
    return [finding for look in looks for finding in look()]


def _sources(settings: Settings) -> Iterator[Finding]:
    folder = read_sources(settings.sources)
    problems = folder.problems()
    for error in problems:
        first, more = error.problems[0], len(error.problems) - 1
        problem = f"{first['path'] or 'the file'}: expected {first['expected']}, found {first['found']}"
        others = f" and {more} more" if more else ""
        yield Finding(
            f"source file {error.file}", "wrong", f"{problem}{others}", "correct it; other sources run meanwhile"
        )
    if not problems:
        count = len(folder.sources)
        yield Finding("source files", "ok", f"{count} source{'' if count == 1 else 's'}")


def _python() -> Iterator[Finding]:
    for package, tested in VERSIONS.items():
        try:
            version = metadata.version(package)
        except metadata.PackageNotFoundError:
            yield Finding(package, "wrong", "not installed", "run `make setup`")
            continue
        if version == tested:
            yield Finding(package, "ok", version)
        else:
            yield Finding(package, "wrong", f"{version}, tested with {tested}", "run `make setup`")
    yield Finding("python", "ok", sys.version.split()[0])


def _java() -> Iterator[Finding]:
    try:
        java = find_java()
    except TidemarkError as refusal:
        yield Finding("java", "wrong", refusal.found, refusal.next_step)
    else:
        yield Finding("java", "ok", f"{java.version} ({java.executable})")


def _jars(settings: Settings) -> Iterator[Finding]:
    for jars in needed_sets(settings):
        folder = jars.folder(settings.jars)
        if wrong := jars.wrong(settings.jars):
            problem = f"missing or different in {folder}: {', '.join(wrong)}"
            yield Finding("jars", "wrong", problem, f"run `make {jars.target}`")
        else:
            yield Finding("jars", "ok", f"as pinned, in {folder}")


def _disk(settings: Settings) -> Iterator[Finding]:
    place = next(folder for folder in (settings.home, *settings.home.parents) if folder.exists())
    free = shutil.disk_usage(place).free
    space = f"{free / 1024**3:.1f} GiB free at {settings.home}"
    if free < LEAST_FREE_BYTES:
        yield Finding("disk", "wrong", space, "free some space, or set TIDEMARK_HOME to a place that has it")
    else:
        yield Finding("disk", "ok", space)
    yield from _writable(settings.home if settings.home.exists() else place)


def _writable(folder: Path) -> Iterator[Finding]:
    probe = folder / ".tidemark-doctor"
    try:
        probe.touch()
        probe.unlink()
    except OSError as error:
        yield Finding(
            "data directory", "wrong", f"{folder}: {error.strerror}", "give yourself the right to write there"
        )


def _private(settings: Settings) -> Iterator[Finding]:
    if not settings.home.exists():
        return
    mode = stat.S_IMODE(settings.home.stat().st_mode)
    if mode & 0o077:
        finding = f"{settings.home} has mode {mode:04o}: other users may look into it"
        yield Finding("privacy", "wrong", finding, f"run `chmod 700 {shlex.quote(str(settings.home))}` as its owner")


def _folders(settings: Settings, now: InstallationStatus) -> Iterator[Finding]:
    for folder in lost_under_server(settings, now.supervisor) if now.supervisor else ():
        advice = "`tidemark up` starts the server again, and makes the names of a lost catalog anew"
        yield Finding("lake server", "wrong", f"{folder} was removed while it runs", advice)


def _services(now: InstallationStatus) -> Iterator[Finding]:
    if now.supervisor is None:
        yield Finding("services", "ok", "not running")
    for service in (*now.services, *now.surroundings):
        if service.health.ok:
            yield Finding(service.name, "ok", f"{service.health.detail} at {service.url}")
        else:
            advice = (
                "it is starting: look again in a minute"
                if now.starting
                else "read the logs, then `tidemark down` and `up`"
            )
            yield Finding(service.name, "wrong", service.health.detail, advice)
    for part in now.supervisor.parts if now.supervisor else ():
        if part.condition == "failed":
            yield Finding(part.name, "wrong", f"ended again and again, exit code {part.last_exit}", f"read {part.log}")
        elif part.restarts:
            yield Finding(part.name, "warning", f"restarted {part.restarts} times{_last(part)}", f"read {part.log}")
    if now.stale:
        yield Finding("code", "wrong", "the lake server runs older code than the files", "run `tidemark up`")
    if now.orphans:
        pids = ", ".join(map(str, now.orphans))
        yield Finding("processes", "wrong", f"left by a crash: {pids}", "run `tidemark down`")


def _last(part: PartState) -> str:
    return f", the last time because {part.reason}" if part.reason else ""


def _ports(settings: Settings, now: InstallationStatus) -> Iterator[Finding]:
    if now.supervisor is not None:
        return
    for knob, port in wanted_ports(settings, airflow=True).items():
        other = listener(settings.bind_address, port)
        if other is None:
            yield Finding(f"port {port}", "ok", "free")
        else:
            owner = f"process {other.pid} ({(other.command or '')[:80]})" if other.pid else "another user's process"
            advice = f"end it, or choose another port with {knob}"
            yield Finding(f"port {port}", "wrong", f"taken by {owner}", advice)


def _writer(settings: Settings, now: InstallationStatus) -> Iterator[Finding]:
    other = holder(settings)
    if other is None:
        yield Finding("writer", "ok", "no process may write the lake now")
    elif now.supervisor is not None:
        yield Finding("writer", "ok", f"process {other.pid} ({other.command}), since {other.since}")
    else:
        process = f"process {other.pid} ({other.command[:120]}), since {other.since}"
        yield Finding("writer", "warning", process, "`tidemark up` is refused until that process ends")


def _backup(settings: Settings) -> Iterator[Finding]:
    if settings.lake_path is not None and not settings.lake_path.exists():
        return
    try:
        last = json.loads((settings.home / LAST_BACKUP).read_text())
        yield Finding("backup", "ok", f"set {last['set']} in {last['place']}; `tidemark verify` reads it")
    except (OSError, ValueError, KeyError, TypeError):
        yield Finding("backup", "warning", "this home has never been backed up", "`tidemark backup` a folder or bucket")
