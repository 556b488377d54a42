"""Settings: every knob of an installation, with its unit and the reason for its default.

A knob has the value of the first of these sources that gives one: arguments of `Settings`, the environment variable
`TIDEMARK_<NAME>`, the settings file `tidemark.toml`, a folder of secrets, the profile, the default. `Settings` is
frozen, so an instance can be shared and kept. Tidemark writes everything under `home`, unless a knob names another
place.
"""

from __future__ import annotations

import json
import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from pydantic import Field, SecretStr, ValidationError, ValidationInfo, field_validator
from pydantic_settings import SettingsConfigDict, SettingsError

from spark_jobs.errors import ConfigurationError
from spark_jobs.s3 import export_keys
from spark_jobs.settings.cluster import ClusterSettings
from spark_jobs.settings.file import (
    CHECKOUT,
    ENVIRONMENT_PREFIX,
    IS_CHECKOUT,
    PATHS,
    STORE_PATIENCE_S,
    VARIABLE,
    absolute,
    absolute_list,
    default_home,
    project_folder,
)
from spark_jobs.settings.paths import expect_readable_by_spark
from spark_jobs.settings.sources import (
    SECRETS,
    describe_problem,
    find_file_problems,
    find_secrets_fault,
)

SHIPPED = CHECKOUT if IS_CHECKOUT else Path(__file__).resolve().parent
"""The folder that has `dags`, `dbt`, `examples` and `docs/glossary.md`: the checkout, or an installed `spark_jobs`."""
SOURCES = "dags/sources" if IS_CHECKOUT else "sources"

QUERIES = "queries"  # the folder of the portal's saved queries in the home
PORTAL_PREFIX = "/tidemark"  # the path of the portal on Airflow's API server


class Settings(ClusterSettings):
    """The knobs of one installation; see each field for its unit and reason. Raises pydantic's `ValidationError`."""

    model_config = SettingsConfigDict(env_prefix=ENVIRONMENT_PREFIX, frozen=True, extra="ignore", validate_default=True)

    # --- profile and secrets ----------------------------------------------------------------------------------------
    profile: Literal["embedded", "cluster"] = Field(
        default="embedded",
        description="whose defaults count: those for one machine, or for a Spark cluster, a bucket and PostgreSQL",
    )
    secrets: Path | None = Field(
        default=None,
        description="a folder of secrets, a file `tidemark_<name>` for each, such as `tidemark_tls_password`",
    )

    # --- places -----------------------------------------------------------------------------------------------------
    home: Path = Field(default_factory=default_home, description="the data directory: lake, state and logs")
    lake: str = Field(
        default_factory=lambda values: str(values["home"] / "lake"),
        description="the tables' root: an absolute path, or a URI such as s3a://bucket/lake (needs `make setup-s3`)",
    )
    landing: Path | str = Field(
        default_factory=lambda values: values["home"] / "landing",
        description="where sources' files arrive, one folder per source: a path, or a URI such as s3a://bucket/landing",
    )
    jars: Path = Field(
        default_factory=lambda: project_folder() / ".jars",
        description="the folder of Delta's jars, filled by `make setup`",
    )
    sources: Path = Field(
        default_factory=lambda: project_folder() / SOURCES, description="the folder of the sources' YAML files"
    )
    expectations: Path = Field(
        default=CHECKOUT / "expectations" / "custom",
        description="the folder of a team's own expectations and suites, Python that runs load or JSON",
    )
    dbt: Path | None = Field(
        default=None,
        description="a folder of a team's own dbt models, with `models`, `macros` and `tests`, or models alone",
    )
    plugins: Path | None = Field(
        default=None,
        description="a folder of a team's own Python: aggregates, formats of landed files, and DAGs in its `dags`",
    )
    connections: Path = Field(
        default_factory=lambda values: values["home"] / "connections.yml",
        description="the file that says how databases and Kafka are reached, readable by its owner alone;"
        " TIDEMARK_CONNECTION_<NAME>, a JSON object, goes before it",
    )
    jdbc_jars: str = Field(default="", description="further JDBC drivers for Spark: paths with a colon between them")
    dags: Path = Field(default=SHIPPED / "dags", description="the folder that Airflow reads DAGs from")

    # --- the lake server --------------------------------------------------------------------------------------------
    thrift_port: int = Field(default=10000, ge=1, le=65535, description="SQL over JDBC/ODBC; Hive's usual port")
    connect_port: int = Field(default=15002, ge=1, le=65535, description="Spark Connect; Spark's usual port")
    bind_address: str = Field(
        default="127.0.0.1",
        description="the interface of all ports; beyond the loopback SQL over JDBC needs TLS (tls_keystore)",
    )
    server_host: str = Field(default="127.0.0.1", description="how clients name the lake server")
    connect_socket: Path | None = Field(default=None, description="Spark Connect's Unix socket; by default under home")
    token: SecretStr | None = Field(
        default=None, description="Spark Connect's token; by default each start of the lake server generates one"
    )
    heap: str = Field(
        default="3g",
        pattern=r"^[1-9][0-9]*[mg]$",
        description="heap of the lake server's JVM; 3 GiB is measured: 1.7 GB resident after the sample's use",
    )
    java_options: str = Field(default="", description="further options of Spark's JVM, as java takes them")
    spark: Literal["auto", "connect", "classic"] = Field(
        default="auto",
        description="how jobs reach Spark: through the lake server (connect), in a JVM of their own (classic), or"
        " classic under spark-submit and connect elsewhere (auto)",
    )
    connect_timeout_s: float = Field(
        default=20.0, gt=0, description="seconds to wait for an answer; an idle server takes 0.1, an overloaded one 8"
    )
    startup_timeout_s: float = Field(
        default=300.0, gt=0, description="seconds until a part without an answer counts as failed; 15 to 40 are usual"
    )
    metrics_port: int | None = Field(
        default=None, ge=1, le=65535, description="loopback's port for figures as OpenMetrics, without a login or a row"
    )
    command_server: bool = Field(
        default=True,
        description="whether `tidemark up` keeps a process that has imported everything and forks commands (Linux):"
        " each is spared 6 s of a processor",
    )

    # --- SQL over JDBC: logins and limits ---------------------------------------------------------------------------
    login_provider: str = Field(
        default="file",
        description="who checks passwords of users that the file of logins gives none: nobody (file), ldap, or the name"
        " of a Java class, a PasswdAuthenticationProvider of Hive",
    )
    ldap_url: str = Field(default="", description="of login_provider=ldap, such as ldaps://directory.example.org")
    ldap_user_pattern: str = Field(
        default="", description="a user's name in the directory, such as uid=%s,ou=people,dc=example,dc=org"
    )
    tls_keystore: Path | None = Field(
        default=None, description="a Java keystore with the certificate of SQL over JDBC; with it JDBC speaks TLS"
    )
    tls_password: SecretStr | None = Field(default=None, description="the keystore's password")
    plaintext: bool = Field(
        default=False,
        description="let ports beyond the loopback go without TLS: where a container or a proxy keeps the network out",
    )
    reader_seconds: int = Field(
        default=300, ge=1, description="seconds from a reader's statement to its last row; then it is cancelled"
    )
    reader_rows: int = Field(
        default=1_000_000, ge=1, description="rows of one result of a reader; more belong into a table or a report"
    )
    reader_bytes: int = Field(default=256 * 1024**2, ge=1, description="bytes of one result of a reader, over the wire")
    reader_statements: int = Field(
        default=40, ge=1, description="statements that one reader may have open at a time, waiting ones included"
    )
    reader_sessions: int = Field(
        default=100, ge=1, description="sessions that one reader may have open at a time; all readers ten times as many"
    )
    reader_heap: int = Field(default=80, ge=10, le=100, description="percent of heap in use that ends readers' work")
    scratch_days: int = Field(default=7, ge=1, description="days until tables and folders of scratch databases go")

    # --- Airflow ----------------------------------------------------------------------------------------------------
    airflow_port: int = Field(default=8080, ge=1, le=65535, description="Airflow's UI and REST API")
    airflow_host: str | None = Field(
        default=None,
        description="the host of Airflow's API server if Airflow's processes are services of their own, as in"
        " containers; by default `tidemark up` runs them, and names them as `server_host`",
    )
    airflow_public_url: str | None = Field(
        default=None,
        pattern=r"^https?://[^/]+(/.*)?[^/]$",
        description="the address at which people open Airflow, for links and its login, such as"
        " https://airflow.example.org; by default that of its API server",
    )
    airflow_parallelism: int = Field(
        default_factory=lambda: min(max(4, 2 * (os.cpu_count() or 1)), 32),
        ge=1,
        description="the executor's workers, about 150 MB each; by default two a core, since they wait for Spark, and"
        " from 4 to Airflow's 32",
    )
    airflow_database_url: str | None = Field(
        default=None,
        description="SQLAlchemy URL of Airflow's metadata, such as sqlite:////srv/airflow.db; by default a PostgreSQL"
        " under home, which runs with Airflow",
    )

    # --- alerts -----------------------------------------------------------------------------------------------------
    smtp: SecretStr | None = Field(
        default=None,
        description="the server that sends what `dag.notify` asks for, such as smtp://user:password@mail.example.org:587;"
        " smtps:// for TLS from the start, else as soon as the server offers it",
    )
    smtp_from: str = Field(default="tidemark@localhost", description="the address that e-mail comes from")

    # --- lineage ----------------------------------------------------------------------------------------------------
    lineage: Path | None = Field(
        default=None,
        description="an openlineage.yml: where Airflow and the lake server tell what they read and write, by"
        " OpenLineage; needs `make setup-lineage`; nothing is told by default",
    )
    lineage_namespace: str = Field(default="tidemark", description="of the jobs of this installation in lineage")

    # --- maintenance ------------------------------------------------------------------------------------------------
    maintenance_schedule: str = Field(
        default="0 3 * * 0",
        description="when Airflow runs the maintenance: a cron expression in UTC, or manual; weekly by default",
    )
    file_retention_hours: int = Field(
        default=168,
        ge=1,
        description="hours that files stay which are out of use; more than the longest query takes that reads them",
    )
    result_retention_days: int = Field(
        default=400, ge=1, description="days that rows of quality.results stay: a year can be looked back on"
    )
    log_retention_days: int = Field(
        default=30,
        ge=1,
        description="days that logs, reports and kept plans stay once nobody writes them any more; Airflow's records of"
        " runs stay as long, and 30 days at least",
    )
    store_patience_s: float = Field(default=STORE_PATIENCE_S, gt=0, description="seconds that S3 may refuse requests")
    backup: str | None = Field(
        default=None, description="where maintenance adds a backup: a path, or a URI such as s3a://bucket/lake"
    )

    @field_validator(*PATHS)
    @classmethod
    def _absolute(cls, value: Path | str | None, of: ValidationInfo) -> Path | str | None:
        if value is None:
            return None
        text = absolute(str(value))
        return text if of.field_name in ("lake", "backup") or "://" in text else Path(text)

    @field_validator("jdbc_jars")
    @classmethod
    def _absolute_list(cls, value: str) -> str:
        return absolute_list(value)

    @field_validator("home", "lake", "jars")
    @classmethod
    def _readable_by_spark(cls, value: Path | str, of: ValidationInfo) -> Path | str:
        expect_readable_by_spark(str(of.field_name), str(value))
        return value

    @field_validator("secrets")
    @classmethod
    def _usable(cls, value: Path | None) -> Path | None:
        if value is not None and (fault := find_secrets_fault(value)):
            raise ValueError(fault)
        return value

    @property
    def lake_path(self) -> Path | None:
        """The lake's folder if the lake is on a local disk, else None."""
        return None if "://" in self.lake else Path(self.lake)

    @property
    def landing_folder(self) -> Path:
        """The landing directory as a folder of this machine.

        Raises:
            ConfigurationError: the landing directory is a URI.
        """
        if isinstance(self.landing, str):
            raise ConfigurationError(
                expected="a landing directory on this machine",
                found=self.landing,
                next_step="copy the files there with the store's own tools, or set TIDEMARK_LANDING to a path",
            )
        return self.landing

    @property
    def server_dir(self) -> Path:
        """The folder for the lake server's state, and its working directory: it must not contain Python modules."""
        return self.home / "server"

    @property
    def airflow_home(self) -> Path:
        """AIRFLOW_HOME: the folder of Airflow's configuration, database and secrets."""
        return self.home / "airflow"

    @property
    def logs_dir(self) -> Path:
        """The folder of the logs of all processes."""
        return self.home / "logs"

    @property
    def token_file(self) -> Path:
        """The file (mode 0600) of the token of Spark Connect that the start of the lake server generates."""
        return self.server_dir / "connect.token"

    @property
    def logins_file(self) -> Path:
        """The file (mode 0600) of the users of SQL over JDBC, with their roles and passwords."""
        return self.server_dir / "jdbc.logins"

    @property
    def file_retention(self) -> timedelta:
        """The time for which files that are out of use are kept."""
        return timedelta(hours=self.file_retention_hours)

    @property
    def python(self) -> str:
        """The Python interpreter of Spark's workers: `executor_python`, else that of this process."""
        return self.executor_python or sys.executable

    @property
    def jdbc_url(self) -> str:
        """The URL that `beeline`, DBeaver and other JDBC clients take."""
        tls = "/;ssl=true" if self.tls_keystore is not None else ""
        return f"jdbc:hive2://{self.server_host}:{self.thrift_port}{tls}"

    @property
    def airflow_url(self) -> str:
        """The root of Airflow's API, as other processes of this installation reach it."""
        return f"http://{self.airflow_host or self.server_host}:{self.airflow_port}"

    @property
    def airflow_page(self) -> str:
        """The root of Airflow's UI, as people open it."""
        return self.airflow_public_url or self.airflow_url

    def page_url(self, *parts: str) -> str:
        """The URL of a page of the portal. `parts` are the parts of its name, which may be any texts."""
        return f"{self.airflow_page}{PORTAL_PREFIX}/{'/'.join(quote(part, safe='') for part in parts)}.html"

    def connect_token(self) -> str | None:
        """The token of Spark Connect: the knob's, else the generated one, else None (the server never ran here)."""
        if self.token is not None:
            return self.token.get_secret_value()
        try:
            return self.token_file.read_text().strip() or None
        except FileNotFoundError:
            return None

    def environment(self) -> dict[str, str]:
        """The environment variables that give a child process these settings, whatever its folder. Those that are
        secrets are left out: a child inherits them, or reads them in the folder of secrets."""
        values = {
            name: value if isinstance(value, str) else json.dumps(value) for name, value in self.as_json().items()
        }
        return {VARIABLE: "", **{f"{ENVIRONMENT_PREFIX}{name.upper()}": value for name, value in values.items()}}

    def as_json(self) -> dict[str, Any]:
        """Knob -> value as JSON has it, without secrets and without knobs that are not set."""
        return self.model_dump(mode="json", exclude={*SECRETS}, exclude_none=True)


LAST_BACKUP = "last-backup.json"
"""The name of the file in the home that names the newest backup."""


def keep_private() -> None:
    """Set the umask so that only the user can read files that this process and its children write."""
    os.umask(0o077)


def load_settings(**overrides: Any) -> Settings:
    """The settings of this process: those of its environment and file, replaced by `overrides` where given.

    Keys of S3 in the folder of secrets become environment variables of this process: Spark, `deltalake` and Arrow read
    them there.

    Raises:
        ConfigurationError: some settings are wrong; the error lists each one, the value found and the values accepted.
    """
    problems = find_file_problems(Settings.model_fields)
    try:
        settings = Settings(**overrides)
    except ValidationError as error:
        # leave out the consequences of another wrong knob
        wrong = [problem for problem in error.errors() if problem["type"] != "default_factory_not_called"]
        problems += [describe_problem(problem, overrides) for problem in wrong]
    except SettingsError as error:
        problems.append(f"{ENVIRONMENT_PREFIX}SPARK_CONF (expected a JSON object of texts: {error.__cause__})")
    if problems:
        expected, next_step = "settings that can be used", "correct or remove these settings"
        finding = ", ".join(problems)
        raise ConfigurationError(expected=expected, found=finding, next_step=next_step, problems=problems)
    if settings.secrets is not None:
        export_keys(settings.secrets)
    return settings
