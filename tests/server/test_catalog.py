"""The catalog in a PostgreSQL: an empty database is enough, and one that does not answer is named."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from spark_jobs.config import Settings
from spark_jobs.jvm.catalog import catalog_conf, catalog_place, complete_catalog
from spark_jobs.jvm.errors import CatalogUnreachable, JarsMissing
from spark_jobs.jvm.jars import DELTA, POSTGRESQL, needed_sets
from spark_jobs.session import lake_jars
from tests.installations import TIDEMARK, Installation, free_port
from tests.jobs.harness import Reading, write_drops, write_source
from tests.postgres import PASSWORD, USER, Postgres, postgres

HAS_DRIVER = pytest.mark.skipif(
    not POSTGRESQL.is_there(Settings()), reason="PostgreSQL's driver: make setup-postgresql"
)
_URL = "spark.hadoop.javax.jdo.option.ConnectionURL"


@pytest.fixture
def database() -> Iterator[Postgres]:
    """A server with an empty database."""
    with postgres() as server:
        yield server


def url_of(server: Postgres, password: str = PASSWORD) -> str:
    return f"{server.url}?user={quote(USER)}&password={quote(password)}"


def tables(server: Postgres) -> set[str]:
    return {name for (name,) in server.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")}


def test_an_embedded_catalog_needs_no_database(settings: Settings) -> None:
    complete_catalog(settings)
    assert catalog_conf(settings) == {_URL: f"jdbc:derby:;databaseName={settings.home}/metastore;create=true"}
    assert catalog_place(settings) == f"{settings.home}/metastore"
    assert not settings.home.exists()


@pytest.mark.parametrize(
    ("given", "limits"),
    [
        ("jdbc:postgresql://db/m", "?connectTimeout=10&loginTimeout=10&socketTimeout=30&tcpKeepAlive=true"),
        ("jdbc:postgresql://db/m?user=u", "&connectTimeout=10&loginTimeout=10&socketTimeout=30&tcpKeepAlive=true"),
        ("jdbc:postgresql://db/m?socketTimeout=5", "&connectTimeout=10&loginTimeout=10&tcpKeepAlive=true"),
        ("jdbc:mysql://db/m", ""),
    ],
)
def test_postgresql_gets_limits_that_the_url_does_not_have(settings: Settings, given: str, limits: str) -> None:
    conf = catalog_conf(settings.model_copy(update={"metastore_url": given}))
    assert conf[_URL] == given + limits
    assert ("spark.hadoop.javax.jdo.option.ConnectionDriverName" in conf) == ("postgresql" in given)


def test_the_driver_is_needed_as_soon_as_the_url_asks_for_it(settings: Settings) -> None:
    without = settings.model_copy(update={"jars": settings.home})
    asking = without.model_copy(update={"metastore_url": "jdbc:postgresql://db/m"})
    assert needed_sets(without) == [DELTA]
    assert needed_sets(asking) == [DELTA, POSTGRESQL]
    only_delta = settings.model_copy(update={"jars": settings.home, "metastore_url": "jdbc:postgresql://db/m"})
    settings.home.mkdir()
    for jar in DELTA.pinned_jars():
        (settings.home / jar.file_name).touch()
    with pytest.raises(JarsMissing, match="setup-postgresql"):
        lake_jars(only_delta)


@HAS_DRIVER
@pytest.mark.turns
def test_all_of_hives_tables_are_made_once(settings: Settings, database: Postgres) -> None:
    asking = settings.model_copy(update={"metastore_url": url_of(database)})
    complete_catalog(asking)
    present = tables(database)
    assert {"DBS", "TBLS", "TBL_PRIVS", "PARTITIONS", "FUNCS", "VERSION"} <= present
    version = database.execute('SELECT "SCHEMA_VERSION", "VERSION_COMMENT" FROM "VERSION"')
    assert version == [("2.3.0", "made by Tidemark")]

    # as a catalog is that Hive has filled lazily, or whose making was interrupted
    database.execute('DROP TABLE "TBL_PRIVS"')
    complete_catalog(asking)
    assert tables(database) == present
    assert database.execute('SELECT "SCHEMA_VERSION", "VERSION_COMMENT" FROM "VERSION"') == version

    database.execute('UPDATE "VERSION" SET "SCHEMA_VERSION" = \'3.1.0\'')
    database.execute('DROP TABLE "TBL_PRIVS"')
    with pytest.raises(CatalogUnreachable, match=r"version 3\.1\.0, where this Spark has those of 2\.3\.0"):
        complete_catalog(asking)
    assert tables(database) == present - {"TBL_PRIVS"}, "tables of another Hive stay as they are"


@HAS_DRIVER
@pytest.mark.turns
def test_a_database_that_refuses_or_is_silent_is_named_without_its_password(
    settings: Settings, database: Postgres
) -> None:
    nobody = settings.model_copy(update={"metastore_url": url_of(Postgres(free_port(), database.folder))})
    wrong = settings.model_copy(update={"metastore_url": url_of(database, "wrong-password")})
    right = settings.model_copy(update={"metastore_url": url_of(database) + "&loginTimeout=1&connectTimeout=1"})
    for asking, reason in ((nobody, "refused"), (wrong, "authentication failed")):
        with pytest.raises(CatalogUnreachable, match=reason) as refusal:
            complete_catalog(asking)
        assert "127.0.0.1" in refusal.value.facts["place"]
        assert "password" not in refusal.value.sentence().replace("password=…", "").replace("password auth", "")
    postmaster = int((database.folder / "data" / "postmaster.pid").read_text().split()[0])
    os.kill(postmaster, signal.SIGSTOP)
    try:
        with pytest.raises(CatalogUnreachable, match=r"(?i)time"):
            complete_catalog(right)
    finally:
        os.kill(postmaster, signal.SIGCONT)


@HAS_DRIVER
@pytest.mark.long
@pytest.mark.server
@pytest.mark.timeout(1500)
def test_an_empty_database_is_a_catalog_and_its_silence_is_named(tmp_path: Path, database: Postgres) -> None:
    home = tmp_path / "home"
    installed = Installation(
        home, sources=home / "sources", landing=home / "landing", metastore_url=url_of(database), connect_timeout_s=60
    )
    write_source(installed.settings)
    write_drops(installed.settings, [Reading(drop, 1440 * drop + 7, meter, 5) for drop in (0, 1) for meter in "xy"])
    count = "SELECT count(*) AS windows FROM silver.hourly"
    with installed.serving("--no-airflow"):
        installed.json("run", "meters", "--from", "2024-01-01", "--to", "2024-01-01")
        windows = installed.sql(count)
        assert windows != [{"windows": 0}]
        assert not (home / "metastore").exists()
    with installed.serving("--no-airflow"):
        assert installed.sql(count) == windows, "the names are those of before"
        database.stop()
        status = installed.run(str(TIDEMARK), "status", "--wait", "0", "--json")
        surroundings = json.loads(status.stdout)["surroundings"]
        assert status.returncode == 1
        assert (surroundings["catalog"]["ok"], surroundings["store"]["ok"]) == (False, True)
        assert PASSWORD not in status.stdout and quote(PASSWORD) not in status.stdout
        refused = installed.run(str(TIDEMARK), "sql", count)
        assert refused.returncode != 0 and "catalog_unreachable" in refused.stderr
        refused = installed.run(str(TIDEMARK), "run", "meters", "--from", "2024-01-02", "--to", "2024-01-02")
        assert refused.returncode != 0 and "catalog_unreachable" in refused.stderr
        database.start()
        installed.json("run", "meters", "--from", "2024-01-02", "--to", "2024-01-02")
        assert installed.json("status")["ok"]
    database.stop()
    refused = installed.run(str(TIDEMARK), "up", "--no-airflow")
    assert refused.returncode != 0 and "catalog_unreachable" in refused.stderr, "before anything is started"
    status = installed.run(str(TIDEMARK), "status", "--wait", "0", "--json")
    assert not json.loads(status.stdout)["running"]
