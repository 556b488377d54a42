"""Spark's settings for executors that are processes of their own: how they reach the driver, and what it sends them.

Spark sends each executor the jars and the code of this version (`spark.jars`, `spark.archives`). The machine of an
executor needs Java, Spark, and a Python with the packages that `code_version.worker_versions` lists. Spark unpacks an
archive in the executor's working folder, where Python looks for modules first.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from spark_jobs.code_version import PACKAGES, WORKER_VERSIONS, code_version, worker_versions
from spark_jobs.config import ENVIRONMENT_PREFIX, SHIPPED, Settings
from spark_jobs.errors import ConfigurationError
from spark_jobs.s3 import KEYS
from spark_jobs.settings.file import CHECKOUT, VARIABLE

_PLACES = ("AWS_ENDPOINT_URL", "AWS_REGION", "AWS_DEFAULT_REGION")
_ENVIRONMENT = "spark.executorEnv."
_STANDALONE = "spark://"
_MASTER_S = 1.0
"""The seconds that a master may take to accept a connection."""
LISTS = ("spark.jars", "spark.archives")
"""Settings of Spark to which `executors_conf` adds what the user has set, in place of giving way."""
KEY_SETTINGS = tuple(_ENVIRONMENT + name for name in KEYS)
"""Settings of Spark with keys, which no command line may show."""
_SOURCES = "tidemark_sources"
"""The name of the sources' folder in the working folder of an executor."""


def are_embedded(settings: Settings) -> bool:
    """True if the executors are threads of the driver, or processes that it starts on this machine."""
    return settings.master.startswith("local")


def executors_conf(settings: Settings, jars: Sequence[Path]) -> dict[str, str]:
    """Spark's settings for the executors. `jars`: those that come before Spark's own in a class path.

    Raises:
        ConfigurationError: the address at which executors reach the driver is not known.
    """
    if are_embedded(settings):
        given = {name: settings.spark_conf[name] for name in LISTS if name in settings.spark_conf}
        return {"spark.executor.extraClassPath": ":".join(map(str, jars)), "spark.driver.host": "127.0.0.1", **given}
    sizes = {
        "spark.executor.memory": settings.executor_memory,
        "spark.executor.memoryOverhead": settings.executor_overhead,
        "spark.executor.cores": settings.executor_cores,
    }
    return {
        "spark.driver.host": driver_host(settings),
        **_lists(settings, {"spark.jars": [jar.as_uri() for jar in jars], "spark.archives": _archives(settings)}),
        **{name: str(value) for name, value in sizes.items() if value is not None},
        **{_ENVIRONMENT + name: value for name, value in _environment(settings).items()},
    }


def driver_host(settings: Settings) -> str:
    """The name or address at which executors reach the driver.

    Raises:
        ConfigurationError: `bind_address` is all interfaces, and the master has no address to look from.
    """
    if settings.driver_host is not None:
        return settings.driver_host
    try:
        if not ip_address(settings.bind_address).is_unspecified:
            return settings.bind_address
    except ValueError:
        return settings.bind_address  # a name
    first = urlsplit(settings.master.split(",")[0])
    try:
        # nothing is sent: the kernel chooses the address from which it would
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((first.hostname or "", first.port or 0))
            address = str(probe.getsockname()[0])
    except (OSError, ValueError) as error:
        reason = str(error)
    else:
        if first.hostname and not ip_address(address).is_unspecified:
            return address
        reason = "no address of the master"
    raise ConfigurationError(
        expected="the address at which executors reach this machine",
        found=f"bind_address {settings.bind_address}, which is all interfaces, and {reason} ({settings.master})",
        consequence="Spark was not started: executors would not find the driver",
        next_step="set TIDEMARK_DRIVER_HOST to a name or an address of this machine",
    )


def master_answers(settings: Settings) -> bool:
    """True if one of the standalone masters accepts connections. Other masters are not asked."""
    if not settings.master.startswith(_STANDALONE):
        return True
    for address in settings.master.removeprefix(_STANDALONE).split(","):
        with contextlib.suppress(OSError, ValueError):
            host, _, port = address.rpartition(":")
            socket.create_connection((host, int(port)), _MASTER_S).close()
            return True
    return False


def _lists(settings: Settings, ours: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """The settings that are lists: our entries, and those that the user has set."""
    return {name: ",".join([*ours[name], *filter(None, [settings.spark_conf.get(name)])]) for name in LISTS}


def _environment(settings: Settings) -> dict[str, str]:
    """The environment variables of executors, which their Python workers inherit."""
    names = _PLACES + (KEYS if settings.executor_keys == "driver" else ())
    return {
        **{name: value for name in names if (value := os.environ.get(name))},
        VARIABLE: "",
        "LC_ALL": "C.UTF-8",  # else Java refuses names of files beyond ASCII
        f"{ENVIRONMENT_PREFIX}SOURCES": _SOURCES,
        f"{ENVIRONMENT_PREFIX}STORE_PATIENCE_S": f"{settings.store_patience_s:g}",
        WORKER_VERSIONS: json.dumps(worker_versions()),
    }


def _archives(settings: Settings) -> list[str]:
    """The addresses of archives with the code and the sources, each with the name of the folder to unpack it as."""
    version = code_version()
    folder = settings.server_dir / "code"
    folder.mkdir(parents=True, exist_ok=True)
    current = {folder / f"{package}-{version}.tar.gz": package for package in PACKAGES}
    for older in {*folder.glob("*.tar.gz")} - {*current}:
        older.unlink(missing_ok=True)
    for archive, package in current.items():
        if not archive.exists():
            place = CHECKOUT / package
            _pack(archive, place if place.is_dir() else SHIPPED / package)
    sources = folder / f"{_SOURCES}.tar.gz"
    _pack(sources, settings.sources)
    return [f"{archive.as_uri()}#{name}" for archive, name in {**current, sources: _SOURCES}.items()]


def _pack(archive: Path, folder: Path) -> None:
    """Write the files of a folder into an archive, Python's own caches left out.

    Times are exact: a compiled kernel counts only for a module of the same time (Numba)."""

    def keep(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        if entry.name.endswith(".pyc"):
            return None
        time_ns = (folder / entry.name).stat().st_mtime_ns
        entry.pax_headers = {"mtime": f"{time_ns // 10**9}.{time_ns % 10**9:09}"}
        return entry

    with (
        tempfile.NamedTemporaryFile(dir=archive.parent, delete=False) as file,
        tarfile.open(fileobj=file, mode="w:gz", format=tarfile.PAX_FORMAT, compresslevel=1) as packed,
    ):
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            packed.add(path, arcname=path.name, filter=keep)
    Path(file.name).replace(archive)
