"""Airflow's four processes, with a local executor, bound to the loopback, with a login; their database is `postgres`.

`airflow standalone` is not used: if its process is ended, its scheduler, workers and API server stay behind.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from spark_jobs.config import Settings
from spark_jobs.server import postgres
from spark_jobs.server.processes import Part
from spark_jobs.server.state import write_json

LOGIN_COOKIE = "_token"
"""The cookie that has the token of a login to Airflow."""
MIGRATION = "airflow-migrate"
SCHEDULER = "airflow-scheduler"
API_SERVER = "airflow-api-server"
PARTS = (API_SERVER, SCHEDULER, "airflow-dag-processor", "airflow-triggerer")
"""Airflow's processes. They are ended from the last to the first: tasks report their end to the API server."""

ADMIN = "admin"

GRACE_S = 20.0
"""The seconds in which the scheduler lets running tasks end. Then they are killed, and Airflow retries them at the next
start."""

_IMPORTED_BY_TASKS = ("spark_jobs.jobs.stage", "great_expectations", "dbt.cli.main")
"""The modules that take a task seconds to import. The scheduler imports them, and the executor's workers, being its
forks, share its memory."""

_ARGUMENTS = {
    API_SERVER: ("api-server", "--workers", "1"),
    # the tasks' logs are on this disk; a server for them would listen on a port of its own, on all interfaces
    SCHEDULER: ("scheduler", "--skip-serve-logs"),
    "airflow-dag-processor": ("dag-processor",),
    "airflow-triggerer": ("triggerer", "--skip-serve-logs"),
    MIGRATION: ("db", "migrate"),
}


def airflow_part(settings: Settings, name: str) -> Part:
    """One of Airflow's processes (`PARTS`), or the step that brings its database up to date (`MIGRATION`)."""
    return Part(
        name=name,
        command=airflow_command(_ARGUMENTS[name]),
        environment=airflow_environment(settings),
        working_dir=settings.airflow_home,
        log_file=settings.logs_dir / f"{name}.log",
        grace_s=GRACE_S,
    )


def airflow_command(arguments: Sequence[str]) -> tuple[str, ...]:
    """The command line that runs Airflow with these arguments. A scheduler imports the modules of tasks beforehand."""
    program: tuple[str, ...] = ("airflow",)
    if arguments[:1] == _ARGUMENTS[SCHEDULER][:1]:
        program = ("spark_jobs.server.preloaded", *_IMPORTED_BY_TASKS, "--")
    return (sys.executable, "-m", *program, *arguments)


def airflow_environment(settings: Settings) -> dict[str, str]:
    """The environment of all Airflow processes, and of calls of Airflow's command line for this installation."""
    keys = _secrets(settings)
    database = settings.airflow_database_url or postgres.database_url(settings)
    return {
        **os.environ,
        **settings.environment(),
        **_TELEMETRY_OFF,
        "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}",
        "NO_PROXY": ",".join(filter(None, [os.environ.get("NO_PROXY"), "localhost", "127.0.0.1"])),
        # Airflow's processes set their titles, which would otherwise overwrite their environment, the marker included
        "SPT_NOENV": "1",
        # a task ends without Python's cleanup of dbt's locks: nothing leaks, though Python warns
        "PYTHONWARNINGS": ",".join(filter(None, [os.environ.get("PYTHONWARNINGS"), "ignore:resource_tracker"])),
        "AIRFLOW_HOME": str(settings.airflow_home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(settings.dags),
        **_dags_of_plugins(settings),
        **_lineage(settings),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(settings.airflow_home / "plugins"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__EXECUTOR": "spark_jobs.scheduling.executor.ResumingExecutor",
        "AIRFLOW__CORE__PARALLELISM": str(settings.airflow_parallelism),
        "AIRFLOW__CORE__FERNET_KEY": keys["fernet_key"],
        "AIRFLOW__CORE__DEFAULT_TIMEZONE": "utc",
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{_execution_api(settings)}/execution/",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"{ADMIN}:admin",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(password_file(settings)),
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "False",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": database,
        "AIRFLOW__API__HOST": settings.bind_address,
        "AIRFLOW__API__PORT": str(settings.airflow_port),
        "AIRFLOW__API__BASE_URL": settings.airflow_page,
        "AIRFLOW__API__SECRET_KEY": keys["api_secret_key"],
        "AIRFLOW__API_AUTH__JWT_SECRET": keys["jwt_secret"],
        "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(settings.logs_dir / "airflow"),
        # seconds between two looks for tasks that can start; a run has five tasks, one after another (Airflow: 1)
        "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.2",
        # seconds until a task without a heartbeat counts as failed, and between two looks for tasks that a killed
        # scheduler had queued (Airflow: 300 each); so runs go on sooner after a crash or a reboot
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "60",
        "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "30",
        # Airflow makes the logs of tasks readable for its group, whatever the umask
        "AIRFLOW__LOGGING__FILE_TASK_HANDLER_NEW_FOLDER_PERMISSIONS": "0o700",
        "AIRFLOW__LOGGING__FILE_TASK_HANDLER_NEW_FILE_PERMISSIONS": "0o600",
        # seconds between two looks for new DAGs, so that a new source file soon has one (Airflow: 300)
        "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "20",
    }


def _execution_api(settings: Settings) -> str:
    """The root of the API that tasks call: on this machine, unless Airflow's processes are services of their own."""
    return settings.airflow_url if settings.airflow_host else f"http://127.0.0.1:{settings.airflow_port}"


def _dags_of_plugins(settings: Settings) -> dict[str, str]:
    """The setting by which Airflow also reads a team's own DAGs; empty if there is no folder of them."""
    folder = None if settings.plugins is None else settings.plugins / "dags"
    if folder is None or not folder.is_dir():
        return {}
    local = "airflow.dag_processing.bundles.local.LocalDagBundle"
    bundles = [
        {"name": "dags-folder", "classpath": local, "kwargs": {}},
        {"name": "plugins", "classpath": local, "kwargs": {"path": str(folder)}},
    ]
    return {"AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps(bundles)}


def _lineage(settings: Settings) -> dict[str, str]:
    """The settings of Airflow's own integration with OpenLineage; empty if lineage is not configured."""
    if settings.lineage is None:
        return {}
    return {
        "AIRFLOW__OPENLINEAGE__CONFIG_PATH": str(settings.lineage),
        "AIRFLOW__OPENLINEAGE__NAMESPACE": settings.lineage_namespace,
        # source code may be confidential, and has no information about data
        "AIRFLOW__OPENLINEAGE__DISABLE_SOURCE_CODE": "True",
    }


def is_migrated(settings: Settings) -> bool:
    """True if this version of Airflow has already migrated this database. Asking Airflow itself would take 10 s."""
    with contextlib.suppress(FileNotFoundError):
        return _migration_stamp(settings).read_text() == _migration_key(settings)
    return False


def note_migrated(settings: Settings) -> None:
    """Record that this version of Airflow has migrated this database."""
    _migration_stamp(settings).write_text(_migration_key(settings))


def _migration_stamp(settings: Settings) -> Path:
    return settings.airflow_home / "migrated"


def _migration_key(settings: Settings) -> str:
    """Airflow's version, and a hash of the database's URL or identity: a URL may contain a password."""
    database = settings.airflow_database_url or postgres.identity(settings)
    return f"{metadata.version('apache-airflow-core')} {hashlib.sha256(database.encode()).hexdigest()}"


_TELEMETRY_OFF: Mapping[str, str] = {
    "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
    "AIRFLOW__COSMOS__ENABLE_TELEMETRY": "False",
    "GX_ANALYTICS_ENABLED": "False",
    "DBT_SEND_ANONYMOUS_USAGE_STATS": "False",
    "DO_NOT_TRACK": "1",
}


def password_file(settings: Settings) -> Path:
    """The file of the UI's login: JSON (mode 0600), user → password."""
    return settings.airflow_home / "passwords.json"


def admin_password(settings: Settings) -> str:
    """The password of `ADMIN`, hexadecimal, generated at the first start."""
    path = password_file(settings)
    if not path.exists():
        write_json(path, {ADMIN: secrets.token_hex(16)})
    return str(json.loads(path.read_text())[ADMIN])


def set_up_at(settings: Settings) -> datetime | None:
    """The time at which Airflow was set up for this installation; None if it was not."""
    try:
        return datetime.fromtimestamp(_secrets_file(settings).stat().st_mtime, UTC)
    except FileNotFoundError:
        return None


def _secrets_file(settings: Settings) -> Path:
    return settings.airflow_home / "secrets.json"


def _secrets(settings: Settings) -> dict[str, str]:
    """Airflow's keys, the same for all its processes. They are generated at the first start and kept in a file of mode
    0600."""
    from cryptography.fernet import Fernet

    admin_password(settings)
    path = _secrets_file(settings)
    if not path.exists():
        keys = {
            "fernet_key": Fernet.generate_key().decode(),
            "api_secret_key": secrets.token_urlsafe(32),
            "jwt_secret": secrets.token_urlsafe(64),
        }
        write_json(path, keys)
    return dict(json.loads(path.read_text()))
