"""The surroundings of a running lake server: its catalog, the store of the lake, and its executors."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from spark_jobs.config import Settings
from spark_jobs.jvm.catalog import catalog_place
from spark_jobs.jvm.executors import are_embedded, master_answers
from spark_jobs.model import pluralize
from spark_jobs.server.health import Service, measure_health
from spark_jobs.server.thrift_client import thrift_query
from spark_jobs.storage.delta.places import object_files

DYNAMIC_ALLOCATION = "spark.dynamicAllocation.enabled"
_STORE_PATIENCE_S = 5.0


@dataclass(frozen=True, slots=True)
class Executor:
    """An executor of the lake server: its id, its host, and its cores. An embedded one is the driver."""

    id: str
    host: str
    cores: int


def executors_file(settings: Settings) -> Path:
    """The file that the lake server writes when its executors change; `read_executors` reads it."""
    return settings.server_dir / "executors.json"


def read_executors(settings: Settings) -> list[Executor] | None:
    """The present executors of the lake server; None if the server has not written them yet."""
    try:
        return [Executor(**entry) for entry in json.loads(executors_file(settings).read_text())]
    except FileNotFoundError:
        return None


def catalog_service(settings: Settings) -> Service:
    """The catalog: the lake server asks it for the names of databases."""
    return Service("catalog", catalog_place(settings), measure_health(lambda: _ask_catalog(settings), settings))


def store_service(settings: Settings) -> Service:
    """The store of the lake, asked from this process."""
    return Service("store", settings.lake, measure_health(lambda: _ask_store(settings), settings))


def executors_service(settings: Settings) -> Service:
    """The executors that the lake server has now, as it wrote them down."""
    return Service("executors", settings.master, measure_health(lambda: _ask_executors(settings), settings))


def _ask_catalog(settings: Settings) -> tuple[bool, str]:
    try:
        names = thrift_query(settings, "SHOW DATABASES", role="writer")
    except Exception as error:
        # of a session that the catalog gives no name Hive passes on many lines, and none of them has the cause
        if "`default` cannot be found" in str(error):
            return False, "the lake server gets no answer from it"
        raise
    return True, pluralize(len(names), "database")


def _ask_store(settings: Settings) -> tuple[bool, str]:
    if settings.lake_path is None:
        object_files(settings.lake, within_s=_STORE_PATIENCE_S).get_file_info("_homes")
        return True, "answers"
    return True, "a folder" if settings.lake_path.is_dir() else "a folder that does not exist yet"


def _ask_executors(settings: Settings) -> tuple[bool, str]:
    executors = read_executors(settings)
    if not master_answers(settings):
        left = pluralize(len(executors or ()), "executor")
        return False, f"the master does not answer; {left} left, and a lake server that starts waits for the master"
    if executors is None:
        return False, "the lake server has not said yet"
    cores = pluralize(sum(executor.cores for executor in executors), "core")
    if are_embedded(settings):
        return True, f"{cores} of the lake server"
    if executors:
        hosts = ", ".join(sorted({executor.host for executor in executors}))
        return True, f"{pluralize(len(executors), 'executor')} with {cores} on {hosts}"
    if settings.spark_conf.get(DYNAMIC_ALLOCATION) == "true":
        return True, "none now; Spark asks for some when there is work"
    return False, "none: work waits until the master gives this server some"
