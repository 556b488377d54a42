"""The only builder of Spark sessions.

A job calls `open_session()` and gets a session of one of two kinds, with the same configuration and the same catalog:

- *connect*: a Spark Connect session on the lake server, without a JVM of its own (Airflow's tasks, `tidemark run`,
  `tidemark sql`);
- *classic*: a session with a driver of its own (`spark-submit`, tests). It first takes the lake's writer lock, see
  `server.lake_lock`.

`classic_conf` is the configuration of both, since the lake server is started with it too. Close a session with
`stop()` in a `finally`. Keep no state in temporary views, since an idle Connect session ends after an hour.
"""

from __future__ import annotations

import logging
import os
import re
import shlex
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

from spark_jobs.config import Settings, keep_private, load_settings
from spark_jobs.distribution import memory_conf
from spark_jobs.errors import ConfigurationError
from spark_jobs.jvm.catalog import CATALOG_URL, catalog_conf, complete_catalog
from spark_jobs.jvm.class_archive import class_archive, options_to_read
from spark_jobs.jvm.executors import KEY_SETTINGS, LISTS, are_embedded, executors_conf
from spark_jobs.jvm.jars import further_jars, needed_sets
from spark_jobs.jvm.java import find_java, java_path
from spark_jobs.jvm.scala_code import LOG_STORE, OVERWRITES, S3_LOG_STORE, SCANS, VIEWS, guard_jar
from spark_jobs.s3 import is_s3, spark_settings, with_scheme
from spark_jobs.server.connect_client import (
    channel_builder,
    connect_address,
    release_in_order,
    retry_briefly,
    unreachable,
)
from spark_jobs.server.errors import END_OF_SPARK, ServerUnreachable
from spark_jobs.server.lake_lock import LakeLock, interrupt_process

if TYPE_CHECKING:
    import grpc
    from pyspark.sql import SparkSession

DELTA_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"

_locks: dict[str, LakeLock] = {}
"""Lake -> the lock of it that this process took in classic mode. Like the JVM, it is kept until the process ends."""


def open_session(settings: Settings | None = None, app_name: str = "tidemark") -> SparkSession:
    """A Spark session for one job, of the kind that `session_kind` returns.

    Raises:
        ServerUnreachable: the kind is connect, and the lake server does not answer or refuses the token.
        LakeBusy: the kind is classic, and another process may write the lake.
        JarsMissing: the kind is classic, and jars are missing from the jars folder.
        JavaUnusable: the kind is classic, and there is no Java that Spark runs on.
        CatalogUnreachable: the kind is classic, and the catalog's database does not answer.
    """
    settings = settings or load_settings()
    return _connect(settings, app_name) if session_kind(settings) == "connect" else _classic(settings, app_name)


def session_kind(settings: Settings) -> Literal["connect", "classic"]:
    """The kind of session that `open_session` opens: the knob `spark`; `auto` is classic under spark-submit, else
    connect."""
    if settings.spark != "auto":
        return settings.spark
    return "classic" if "PYSPARK_GATEWAY_PORT" in os.environ else "connect"


def classic_conf(settings: Settings) -> dict[str, str]:
    """The Spark configuration of server, tests and jobs: Delta, the catalog, sizes for one machine, UTC, loopback."""
    jars = first_jars(settings)
    first = ":".join(map(str, jars))
    scratch = settings.home / "tmp"
    return {
        "spark.master": settings.master,
        "spark.driver.memory": settings.heap,
        **memory_conf(settings.process_memory),
        "spark.sql.extensions": f"{SCANS},{OVERWRITES},{VIEWS},{DELTA_EXTENSION}",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        # not in spark.jars: SQL clients of the Thrift server would not see the classes
        "spark.driver.extraClassPath": first,
        # `deltalake` commits to the same tables, in other processes
        "spark.delta.logStore.file.impl": LOG_STORE,
        "spark.delta.logStore.s3a.impl": S3_LOG_STORE,
        "spark.sql.catalogImplementation": "hive",
        **(spark_settings(str(scratch / "s3a") if are_embedded(settings) else None) if is_s3(settings.lake) else {}),
        "spark.sql.warehouse.dir": with_scheme(settings.lake, "s3a")
        if settings.lake_path is None
        else f"file://{settings.lake_path}",
        **catalog_conf(settings),
        # each try takes 20 s if the catalog is lost; with Hive's default of ten, a command took many minutes to fail
        "spark.hadoop.hive.hmshandler.retry.attempts": "2",
        # Hadoop sets the modes of local files itself, whatever the umask
        "spark.hadoop.fs.permissions.umask-mode": "077",
        "spark.databricks.delta.snapshotPartitions": str(settings.snapshot_partitions),
        # other engines (DuckDB, delta-rs) read our tables too
        "spark.databricks.delta.properties.defaults.enableDeletionVectors": "false",
        "spark.databricks.delta.stats.collect": "true",
        # for each version Spark would run a query that lists all files: half the time of a new table
        "spark.databricks.delta.allFilesInCrc.enabled": "false",
        # before a write Spark would work out the size of each joined table from its whole log, for filters that help
        # joins of 10 GB and more
        "spark.sql.optimizer.runtime.bloomFilter.enabled": "false",
        # the default is a type of twelve bytes without statistics, by which no file could be skipped
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        # a task that keeps a file open per partition (eras, batches) need not sort its rows by partition
        "spark.sql.maxConcurrentOutputFileWriters": "8",
        "spark.sql.shuffle.partitions": str(settings.shuffle_partitions),
        "spark.sql.session.timeZone": "UTC",
        # `${env:…}` in a statement would read the server's environment
        "spark.sql.variable.substitute": "false",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.driver.bindAddress": settings.bind_address,
        **_authentication(settings),
        # Spark's UI listens on every interface and has no login
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.pyspark.python": settings.python,
        "spark.python.daemon.module": "spark_jobs.jobs.worker_daemon",
        "spark.local.dir": str(scratch),
        "spark.driver.extraJavaOptions": _java_options(settings, scratch, jars),
        **{f"spark.hadoop.{name}": str(scratch / "hive") for name in _HIVE_SCRATCH_KEYS},
        # one folder per session: Hive removes it when a session ends
        "spark.hadoop.hive.downloaded.resources.dir": str(scratch / "hive" / "${hive.session.id}_resources"),
        **executors_conf(settings, jars),
        **{name: value for name, value in settings.spark_conf.items() if name not in LISTS},
    }


def _authentication(settings: Settings) -> dict[str, str]:
    """Settings by which Spark's processes authenticate each other with a secret, and encrypt their messages. Without
    them, anybody on this machine could make the driver stop its executors.

    Spark generates the secret at each start and writes it to no file. For a standalone master the settings name the
    secret instead, since the master's processes were given theirs before.

    Raises:
        ConfigurationError: the master is a standalone one, and the settings have no secret for it.
    """
    if settings.spark_conf.get("spark.authenticate") == "false":
        return {}  # Spark refuses encryption without authentication
    conf = {_SECRET: settings.spark_secret.get_secret_value()} if settings.spark_secret else {}
    generated = settings.master.startswith(("local[", "yarn", "k8s:")) or settings.master == "local"
    if not generated and not conf:
        raise ConfigurationError(
            expected=f"the secret of the processes of {settings.master}",
            found="no TIDEMARK_SPARK_SECRET",
            consequence="Spark was not started: its ports would obey anybody who reaches them",
            next_step="give the master and its workers spark.authenticate=true and a spark.authenticate.secret, and set"
            ' TIDEMARK_SPARK_SECRET to it; or say {"spark.authenticate": "false"} in TIDEMARK_SPARK_CONF',
        )
    return {"spark.authenticate": "true", "spark.network.crypto.enabled": "true", **conf}


_SECRET = "spark.authenticate.secret"

_HIVE_SCRATCH_KEYS = (
    "hive.exec.scratchdir",
    "hive.exec.local.scratchdir",
    "hive.querylog.location",
)


def archive_of(settings: Settings, jars: list[Path]) -> Path | None:
    """The path of the archive of classes for a class path that begins with these jars; None if it has no place.

    The archive is beside the jars or else in the home; see `jvm.class_archive`.

    Raises:
        JavaUnusable: there is no Java that Spark runs on.
    """
    return class_archive([settings.jars / "classes", settings.home / "classes"], java_path(), jars, settings.heap)


def _java_options(settings: Settings, scratch: Path, jars: list[Path]) -> str:
    options = {
        "user.timezone": "UTC",
        "java.io.tmpdir": str(scratch),
        "derby.system.home": str(settings.home),
        "derby.stream.error.file": str(settings.logs_dir / "derby.log"),
    }
    # in quotation marks, which Spark removes: a folder's name may have blanks
    properties = [f'"-D{name}={value}"' for name, value in options.items()]
    options_of_archive = options_to_read(archive_of(settings, jars))
    # of two equal options Java takes the last: the user's
    return " ".join([*properties, options_of_archive, _collector(settings), *_COMPILER, settings.java_options]).strip()


_COMPILER = (
    "-XX:Tier4InvocationThreshold=20000",
    "-XX:Tier4MinInvocationThreshold=2400",
    "-XX:Tier4CompileThreshold=60000",
)
"""Options that make Java's second compiler take a method only after four times as many calls as by default. Planning a
query runs much code, none of it often. A loop over rows reaches the limit at once, or is compiled as it loops (0224).
"""


def _collector(settings: Settings) -> str:
    """Java's option for the garbage collector; empty if the settings name one, since Java accepts only one.

    G1, Java's default, marks the whole heap anew whenever a task asks for memory in large arrays, which is all the
    time. The parallel collector stops for some tenths of a second instead, and takes half of the processor time
    (decision 0223).
    """
    return "" if _NAMES_COLLECTOR.search(settings.java_options) else "-XX:+UseParallelGC"


_NAMES_COLLECTOR = re.compile(r"-XX:\+Use(Serial|Parallel|G1|Z|Shenandoah|Epsilon)GC\b")


def first_jars(settings: Settings) -> list[Path]:
    """The jars that come before Spark's own in a class path.

    Raises:
        JarsMissing: the jars folder lacks one.
    """
    return [*lake_jars(settings), *further_jars(settings), guard_jar(settings)]


def lake_jars(settings: Settings) -> list[Path]:
    """The pinned jars that an installation needs (`jvm.jars.needed_sets`): Delta's, and others such as those of S3.

    Raises:
        JarsMissing: the jars folder lacks one.
    """
    return [jar for jars in needed_sets(settings) for jar in jars.files(settings)]


def prepare_home(settings: Settings) -> None:
    """Create the folders that Spark expects to exist.

    From here on only the user can read files that this process and its children write, whatever the umask was."""
    keep_private()
    folders = [settings.home, settings.home / "tmp", settings.logs_dir, settings.server_dir]
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
    for folder in (settings.home, settings.server_dir):
        # the volume may belong to another user; `tidemark doctor` then shows what to do
        with suppress(PermissionError):
            folder.chmod(0o700)


def _classic(settings: Settings, app_name: str) -> SparkSession:
    from pyspark.sql import SparkSession

    conf = classic_conf(settings)
    find_java()
    prepare_home(settings)
    complete_catalog(settings)
    if settings.lake not in _locks:
        _locks[settings.lake] = LakeLock.acquire(settings).keep_claim(interrupt_process)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = settings.python
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if [name for name in (_SECRET, CATALOG_URL, *KEY_SETTINGS) if conf.pop(name, None) is not None]:
        # pyspark would put them on Java's command line
        properties = shlex.quote(str(write_properties(settings)))
        os.environ["PYSPARK_SUBMIT_ARGS"] = f"--properties-file {properties} pyspark-shell"
    session = SparkSession.builder.appName(app_name).config(map={**conf}).getOrCreate()
    session.sparkContext.setLogLevel("WARN")
    return session


@contextmanager
def working_session(settings: Settings, name: str) -> Iterator[SparkSession]:
    """A session as `open_session` gives it, for the work of the block: `work_on` it, and stopped with the block."""
    session = open_session(settings, name)
    try:
        with work_on(session, settings):
            yield session
    finally:
        session.stop()


@contextmanager
def work_on(session: SparkSession, settings: Settings) -> Iterator[None]:
    """Interrupt the work that the block began on the session, when the block fails or is itself interrupted.

    Raises:
        ServerUnreachable: the block failed since the lake server was lost; it replaces the block's error.
    """
    try:
        yield
    except BaseException as failure:
        if hasattr(session, "interruptAll"):
            # a server that is gone has nothing left to interrupt, and the error at hand is the better one
            with suppress(Exception):
                session.interruptAll()
        if is_lost_server(failure):
            raise _server_lost(settings) from failure
        raise


_LOST = ("NO_ACTIVE_SESSION", "INVALID_HANDLE", "RESPONSE_ALREADY_RECEIVED")
"""The prefixes of the conditions that pyspark names when its session, one of its statements, or the server itself has
ended."""


def is_lost_server(error: BaseException) -> bool:
    """True if `error`, or one of its causes, means that the lake server no longer answers, or is about to end."""
    import grpc
    from pyspark.errors import PySparkException

    link: BaseException | None = error
    while link is not None:
        if isinstance(link, grpc.Call) and _lost_its_server(link):
            return True
        if isinstance(link, PySparkException) and (link.getCondition() or "").startswith(_LOST):
            return True
        link = link.__cause__ or link.__context__
    return False


def _lost_its_server(call: grpc.Call) -> bool:
    import grpc

    if call.code() is grpc.StatusCode.CANCELLED:
        # a server that ends in order resets calls without an answer; Spark itself answers INTERNAL, as to an interrupt
        return not (isinstance(call, grpc.Future) and call.cancelled())
    lost = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNAUTHENTICATED)  # the next server has another token
    return call.code() in lost or END_OF_SPARK.search(call.details() or "") is not None


def _server_lost(settings: Settings) -> ServerUnreachable:
    address = connect_address(settings)
    return ServerUnreachable(
        expected=f"the lake server at {address} to answer until the work is done",
        found="it ended, or ended this session or its work",
        consequence="published tables read as the last publication left them; later writes of a run are not visible",
        next_step="look at `tidemark status` and the lake server's log, start it with `tidemark up`, and do the same"
        " again: a run continues where it ended",
        address=address,
    )


def connect_version(settings: Settings) -> str:
    """Spark's version, asked of the lake server through Spark Connect; uses no session of this process.

    Raises:
        ServerUnreachable: the lake server does not answer, or refuses the token.
    """
    builder = channel_builder(settings)

    import grpc
    from pyspark.errors import PySparkException
    from pyspark.sql.connect.client import SparkConnectClient

    client = SparkConnectClient(builder, retry_policy={"max_retries": 1})
    try:
        version = client._analyze(method="spark_version").spark_version
        client.release_session()
        return str(version)
    except (PySparkException, grpc.RpcError) as error:
        raise unreachable(settings, _first_detail(error)) from None
    finally:
        client.close()


def _first_detail(error: Exception) -> str:
    """The server's own message, taken from gRPC's text of many lines."""
    details = re.search(r'details = "([^"]*)"', str(error))
    return details.group(1) if details else f"{type(error).__name__}: {str(error)[:200]}"


def _connect(settings: Settings, app_name: str) -> SparkSession:
    connect_version(settings)
    builder = channel_builder(settings, app_name)

    from pyspark.sql.connect.session import SparkSession as ConnectSession

    # pyspark logs every refused statement with the server's whole stack; the caller gets the error anyway
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    # pyspark itself does so for an address: from here on its functions are those of Spark Connect
    os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"
    session = cast("SparkSession", ConnectSession.builder.channelBuilder(builder).create())
    for name, value in memory_conf(settings.process_memory).items():
        session.conf.set(name, value)  # the memory of this process, which the server does not know
    retry_briefly(session.client)
    release_in_order(session.client)
    return session


def write_properties(settings: Settings, extra: dict[str, str] | None = None) -> Path:
    """Write `classic_conf` as a file (mode 0600) for `spark-submit --properties-file`; returns its path."""
    prepare_home(settings)
    path = settings.server_dir / ("spark-submit.conf" if extra is None else "server.conf")
    lines = [f"{name} {value}\n" for name, value in sorted({**classic_conf(settings), **(extra or {})}.items())]
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:  # created with mode 0600
        file.writelines(lines)
    Path(file.name).replace(path)
    return path
