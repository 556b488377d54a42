"""The catalog of table names: Hive's, in an embedded Derby of the home or in the database that `metastore_url` names.

Hive makes a table of its own in a database when it first needs it, in a connection beside its transaction. PostgreSQL
then waits for ever, since the new table refers to one that the transaction has written to. So `complete_catalog` makes
all of Hive's tables before Hive uses the database (`scala/catalog`).
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from urllib.parse import parse_qsl

import pyspark

from spark_jobs.config import Settings
from spark_jobs.jvm.errors import CatalogUnreachable
from spark_jobs.jvm.jars import POSTGRESQL, asks_for_postgresql, further_jars
from spark_jobs.jvm.java import find_java
from spark_jobs.jvm.scala_code import CATALOG_TABLES, guard_jar
from spark_jobs.settings.secret_texts import hide_secrets

_JDO = "spark.hadoop."
_URL, _DRIVER = "javax.jdo.option.ConnectionURL", "javax.jdo.option.ConnectionDriverName"

CATALOG_URL = _JDO + _URL
"""The setting of Spark with the URL of the catalog's database, which may have a password."""
CONNECT_S = 10
"""The most seconds that a connection to the catalog's database may take."""
ANSWER_S = 30
"""The most seconds that PostgreSQL may take for an answer. The driver itself waits for ever."""
_LIMITS = {"connectTimeout": CONNECT_S, "loginTimeout": CONNECT_S, "socketTimeout": ANSWER_S, "tcpKeepAlive": "true"}
"""Parameters of PostgreSQL's driver, unless the URL has them."""
_COMPLETE_S = 180
"""The most seconds for all tables. An idle machine takes 4, or 2 if the database has them."""


def embedded_catalog(settings: Settings) -> Path:
    """The folder of Hive's embedded catalog, which is used unless the settings name another one (`metastore_url`)."""
    return settings.home / "metastore"


def lost_catalog(settings: Settings) -> Path | None:
    """The folder of the embedded catalog if it is missing or incomplete; None if it is whole, or not embedded."""
    catalog = embedded_catalog(settings)
    return None if settings.metastore_url is not None or (catalog / "service.properties").exists() else catalog


def catalog_place(settings: Settings) -> str:
    """The place of the catalog for people: its folder, or the URL of its database without secrets."""
    return str(embedded_catalog(settings) if settings.metastore_url is None else hide_secrets(settings.metastore_url))


def catalog_conf(settings: Settings) -> dict[str, str]:
    """Spark's settings for the catalog."""
    url = settings.metastore_url
    if url is None:
        return {CATALOG_URL: f"jdbc:derby:;databaseName={embedded_catalog(settings)};create=true"}
    if not asks_for_postgresql(settings):
        return {CATALOG_URL: url}
    address, _, parameters = url.partition("?")
    missing = [f"{name}={value}" for name, value in _LIMITS.items() if name not in dict(parse_qsl(parameters, True))]
    joined = "&".join([*filter(None, [parameters]), *missing])
    return {CATALOG_URL: f"{address}?{joined}", _JDO + _DRIVER: "org.postgresql.Driver"}


def complete_catalog(settings: Settings) -> None:
    """Make the tables of Hive that the catalog's database lacks. Does nothing for an embedded catalog.

    Raises:
        CatalogUnreachable: the database does not answer, refuses the login, or has the tables of another Hive.
        JarsMissing: PostgreSQL's driver is missing.
    """
    if settings.metastore_url is None:
        return
    conf = {**catalog_conf(settings), **settings.spark_conf}
    lines = [f"{name.removeprefix(_JDO)}={value}\n" for name, value in conf.items() if name.startswith(f"{_JDO}javax")]
    drivers = [*(POSTGRESQL.files(settings) if asks_for_postgresql(settings) else []), *further_jars(settings)]
    classes = [str(jar) for jar in (guard_jar(settings), *drivers, Path(pyspark.__file__).parent / "jars" / "*")]
    command = [str(find_java().executable), "-Xmx256m", "-cp", ":".join(classes), CATALOG_TABLES, str(CONNECT_S)]
    try:
        # the URL may have a password, which a command line would show
        answer = subprocess.run(
            command, input="".join(lines), capture_output=True, text=True, check=False, timeout=_COMPLETE_S
        )
    except subprocess.TimeoutExpired:
        raise _unreachable(settings, f"no answer within {_COMPLETE_S} s") from None
    if answer.returncode:
        reason = (answer.stderr.strip() or "no reason").splitlines()[-1]
        raise _unreachable(settings, str(hide_secrets(reason)))


def _unreachable(settings: Settings, reason: str) -> CatalogUnreachable:
    place = catalog_place(settings)
    return CatalogUnreachable(
        expected=f"the catalog's database to answer at {place}",
        found=reason,
        consequence="nothing was started",
        next_step="see whether it runs and whether TIDEMARK_METASTORE_URL and its login are right, then do the same"
        " again; an empty database is enough",
        place=place,
    )
