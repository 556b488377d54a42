"""The lake server: one JVM that serves SQL (Thrift, JDBC) and Spark Connect from one catalog and one cache.

It is Spark's Thrift server with Spark Connect as a plugin. Both ports listen on `bind_address`. Spark Connect is for
the pipeline: it asks for a token, and a client with the token may do everything. SQL over JDBC asks for a user and a
password, and `guard` decides which statements a user may run. Token and passwords are in files of mode 0600, never on a
command line.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import subprocess
import tempfile
from pathlib import Path

import pyspark

from spark_jobs.config import Settings
from spark_jobs.errors import ConfigurationError
from spark_jobs.jvm.catalog import lost_catalog
from spark_jobs.jvm.class_archive import keep, note_use, options_to_write
from spark_jobs.jvm.java import Java
from spark_jobs.jvm.scala_code import EXTENSION, SERVER_CLASS, STATE_READS
from spark_jobs.model import NOTED_READS
from spark_jobs.server.connect_client import connect_socket
from spark_jobs.server.first_work_part import hold_readers, names_lacking_file
from spark_jobs.server.listeners import make_private_folder
from spark_jobs.server.logins import ensure_logins, server_conf
from spark_jobs.server.processes import Part
from spark_jobs.server.surroundings import executors_file
from spark_jobs.server.thrift_client import certificates_file
from spark_jobs.session import archive_of, classic_conf, first_jars, prepare_home, write_properties

NAME = "lake"
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"

GRACE_S = 30.0
"""The seconds that the server gets to end. An idle one takes 2 to 3; a commit under way may take longer."""

ARCHIVING_S = 90.0
"""The further seconds for a server that writes the archive of classes: 10 s or more, once per installation."""

_LOGGING = """\
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{yyyy-MM-dd'T'HH:mm:ss.SSS}{UTC}Z %p %c{1}: %m%n%ex
# a warning for each table of another format that Hive's catalog stores, and each query that Hive's statistics lack
logger.hive.name = org.apache.hadoop.hive
logger.hive.level = error
logger.catalog.name = org.apache.spark.sql.hive.HiveExternalCatalog
logger.catalog.level = error
# forty lines for each connection that comes to nothing, and anybody may open those: Notices has a line a second
logger.thrift.name = org.apache.thrift
logger.thrift.level = off
# a warning for each statement that ends without a job
logger.scheduler.name = org.apache.spark.scheduler.DAGScheduler
logger.scheduler.level = error
"""

_POOLS = """\
<?xml version="1.0"?>
<allocations>
  <pool name="default"><schedulingMode>FAIR</schedulingMode><weight>8</weight></pool>
  <pool name="readers"><schedulingMode>FAIR</schedulingMode><weight>1</weight></pool>
</allocations>
"""
"""The scheduler pools. Runs and writers are in `default`, and get eight cores for each core of the readers while both
have work."""


def lake_part(settings: Settings, java: Java, lock_descriptor: int) -> Part:
    """The lake server as a part. It inherits the lake's writer lock, so the lock is held as long as the server runs."""
    shutil.rmtree(settings.home / "tmp", ignore_errors=True)  # left by killed servers; unused, since we have the lock
    prepare_home(settings)
    _prepare_for_lost_catalog(settings)
    executors_file(settings).unlink(missing_ok=True)
    ensure_logins(settings)
    make_private_folder(settings, connect_socket(settings).parent)
    _write_certificates(settings, java)
    base, archive = classic_conf(settings), archive_of(settings, first_jars(settings))
    note_use(archive)
    # Java either reads or writes an archive, and does not start with options for both
    reads = "-XX:SharedArchiveFile" in base[_JAVA_OPTIONS]
    archiving = "" if reads else options_to_write(archive, settings.home, java.executable, settings.java_options)
    conf = _server_conf(settings, new_token(settings), base, archiving)
    properties = write_properties(settings, extra=conf)
    spark_home = Path(pyspark.__file__).parent
    _logging_file(settings).write_text(_LOGGING)
    _pools_file(settings).write_text(_POOLS)
    return Part(
        name=NAME,
        command=(
            str(spark_home / "bin" / "spark-submit"),
            *("--properties-file", str(properties)),
            *("--class", SERVER_CLASS),
            *("--name", "tidemark-lake"),
            "spark-internal",
        ),
        environment={
            **os.environ,
            **settings.environment(),
            "JAVA_HOME": str(java.executable.resolve().parents[1]),
            "SPARK_HOME": str(spark_home),
            # the same empty folder as in every other session: Java archives no class path with folders that have files
            "SPARK_CONF_DIR": str(spark_home / "conf"),
            "SPARK_LOCAL_IP": settings.bind_address,
            "PYSPARK_PYTHON": settings.python,
            "PYSPARK_DRIVER_PYTHON": settings.python,
            **({} if settings.lineage is None else {"OPENLINEAGE_CONFIG": str(settings.lineage)}),
        },
        working_dir=settings.server_dir,
        log_file=settings.logs_dir / "lake.log",
        grace_s=GRACE_S + ARCHIVING_S if archiving else GRACE_S,
        pass_fds=(lock_descriptor,),
        ended=lambda: keep(archive, settings.home),
        lost=lambda: lost_folders(settings),
        # the context removes its folders last, so nothing is committed any more
        lingers=lambda: bool(archiving) and not any(map(_blocks, _scratch_folders(settings))),
    )


def _logging_file(settings: Settings) -> Path:
    return settings.server_dir / "log4j2.properties"


def _pools_file(settings: Settings) -> Path:
    return settings.server_dir / "fairscheduler.xml"


def _prepare_for_lost_catalog(settings: Settings) -> None:
    """If the catalog is lost, make readers wait until its names are made anew from the lake, and remove its remains.

    Derby may have begun a new catalog, under the server that lost it or until it was killed, and cannot open that."""
    catalog = lost_catalog(settings)
    if catalog is not None:
        hold_readers(settings)
        if catalog.exists():
            shutil.rmtree(catalog)


def lost_folders(settings: Settings) -> list[Path]:
    """The folders of a running lake server that have been removed: Spark's scratch folders, and the embedded catalog.

    Only a new server makes them anew."""
    lost = [folder for folder in _scratch_folders(settings) if not _blocks(folder)]
    catalog = lost_catalog(settings)
    return lost if catalog is None else [*lost, catalog]


def _blocks(folder: Path) -> bool:
    """True if a running Spark has folders for blocks there."""
    return any(folder.glob("blockmgr-*"))


def _scratch_folders(settings: Settings) -> list[Path]:
    """The folders where Spark keeps blocks: `tmp` of the home, unless the user has configured others."""
    named = os.environ.get("SPARK_LOCAL_DIRS") or settings.spark_conf.get("spark.local.dir")
    return [Path(folder) for folder in named.split(",")] if named else [settings.home / "tmp"]


def new_token(settings: Settings) -> str:
    """The token of Spark Connect for a starting server: the knob's, else a new one, written to a file of mode 0600."""
    if settings.token is not None:
        return settings.token.get_secret_value()
    token = secrets.token_hex(32)
    settings.token_file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=settings.token_file.parent, delete=False) as file:
        file.write(token)
    Path(file.name).replace(settings.token_file)
    return token


def _write_certificates(settings: Settings, java: Java) -> None:
    """Write the keystore's certificates for our own clients, which accept no others from this server.

    Raises:
        ConfigurationError: the keystore cannot be read, so the server could not read it, either.
    """
    certificates_file(settings).unlink(missing_ok=True)
    if settings.tls_keystore is None:
        return
    password = settings.tls_password.get_secret_value() if settings.tls_password else ""
    answer = subprocess.run(
        [
            *(str(java.executable.with_name("keytool")), "-list", "-rfc", "-keystore", str(settings.tls_keystore)),
            *("-storepass:env", "KEYSTORE_PASSWORD"),
        ],
        env={**os.environ, "KEYSTORE_PASSWORD": password},
        capture_output=True,
        text=True,
        check=False,
    )
    certificates = re.findall(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", answer.stdout, re.DOTALL)
    if answer.returncode or not certificates:
        raise ConfigurationError(
            expected=f"a keystore with a certificate in {settings.tls_keystore}",
            found=(answer.stdout + answer.stderr).strip()[:300] or "none",
            consequence="the lake server was not started",
            next_step="correct TIDEMARK_TLS_KEYSTORE or TIDEMARK_TLS_PASSWORD",
        )
    certificates_file(settings).write_text("\n".join([*certificates, ""]))


def _server_conf(settings: Settings, token: str, base: dict[str, str], archiving: str) -> dict[str, str]:
    """The settings of the server that are not in `base`, or replace those in `base`.

    `archiving` are Java's options that write an archive of classes."""
    logging = f'"-Dlog4j2.configurationFile={_logging_file(settings).as_uri()}"'
    return {
        **server_conf(settings),
        "spark.tidemark.executors.file": str(executors_file(settings)),
        "spark.tidemark.names.lacking": str(names_lacking_file(settings)),
        "spark.tidemark.names.seconds": str(round(settings.startup_timeout_s)),
        "spark.sql.extensions": f"{base['spark.sql.extensions']},{EXTENSION}",
        _JAVA_OPTIONS: " ".join(filter(None, (logging, archiving, base[_JAVA_OPTIONS]))),
        "spark.sql.queryExecutionListeners": STATE_READS,
        "spark.tidemark.reads": str(settings.home / NOTED_READS),
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.address": settings.bind_address,
        "spark.connect.grpc.binding.port": str(settings.connect_port),
        "spark.connect.authenticate.token": token,
        "spark.tidemark.connect.socket": str(connect_socket(settings)),
        "spark.hadoop.hive.server2.thrift.bind.host": settings.bind_address,
        "spark.hadoop.hive.server2.thrift.port": str(settings.thrift_port),
        "spark.hadoop.hive.server2.logging.operation.enabled": "false",
        # statements wait for a seat in these threads, and a run's statements need a thread, too; Hive's default is 100
        "spark.hadoop.hive.server2.async.exec.threads": "500",
        # SQL clients and jobs share the cores, so a query need not wait for the end of a run, see _POOLS
        "spark.scheduler.mode": "FAIR",
        "spark.scheduler.allocation.file": str(_pools_file(settings)),
        # after this the work of a killed client ends (Spark: 5 minutes); a living client reattaches within 10 s
        "spark.connect.execute.manager.detachedTimeout": "30s",
        **_ends_of_tasks(settings),
        **lineage_conf(settings),
    }


def _ends_of_tasks(settings: Settings) -> dict[str, str]:
    """Settings for tasks that run out of memory, or go on after they were cancelled (see `Stopping` in `guard`).

    In a cluster, the executor ends and another replaces it. An embedded executor is the server itself, and stays.
    """
    if settings.master.startswith("local"):
        return {"spark.executor.killOnFatalError.depth": "0"}
    return {"spark.task.reaper.enabled": "true", "spark.task.reaper.killTimeout": "120s"}


def lineage_conf(settings: Settings) -> dict[str, str]:
    """The settings of Spark's own integration with OpenLineage; empty if lineage is not configured.

    The address for events is in the file that the settings name, not here: any client can read Spark's settings."""
    if settings.lineage is None:
        return {}
    ours = {
        "spark.extraListeners": "io.openlineage.spark.agent.OpenLineageSparkListener",
        "spark.openlineage.namespace": settings.lineage_namespace,
        "spark.openlineage.appName": "tidemark_lake",
        # a statement can contain confidential values: an entity that is to be erased, a password
        "spark.openlineage.facets.sql.disabled": "true",
    }
    return ours | {name: value for name, value in settings.spark_conf.items() if name in ours}
