"""Fixtures that every test may use. One Spark session serves all tests; tests that need it are marked `spark`."""

from __future__ import annotations

import gc
import os
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from pydantic import SecretStr

from spark_jobs.config import Settings
from tests.effort import SEED, SHARE, TURNS, share_of, tries
from tests.empty_lake import empty
from tests.long_tests import LongTests

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.file_session import FileSession
    from tests.support.template_lake import TemplateLakes


def pytest_configure(config: pytest.Config) -> None:
    """Seed all random cases by one number. xdist hands the option on to its workers. No settings file of the
    developer's counts, unless the environment names one."""
    os.environ.setdefault("TIDEMARK_CONFIG", "")
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = str(SEED)
    if not hasattr(config, "workerinput") and config.option.numprocesses is None:
        config.pluginmanager.register(LongTests(config))


def pytest_report_header() -> str:
    """What is needed to try the same random cases again."""
    shares = f"TIDEMARK_TEST_SHARE={SHARE} TIDEMARK_TEST_TURNS={TURNS} TIDEMARK_TEST_SEED={SEED}"
    return f"random cases, and tests in turns: {shares}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of the tests that are marked `turns`, leave the run's share. Those of a module that is marked as a whole, by
    `turns(together=True)`, share what they begin with, and go together."""
    groups: dict[str, list[pytest.Item]] = {}
    for item in items:
        mark = item.get_closest_marker("turns")
        if mark is not None:
            together = mark.kwargs.get("together", False)
            groups.setdefault(item.nodeid.partition("::")[0] if together else item.nodeid, []).append(item)
    waiting = {item for name in {*groups} - {*share_of(groups, TURNS)} for item in groups[name]} if groups else set()
    config.hook.pytest_deselected(items=[*waiting])
    items[:] = [item for item in items if item not in waiting]


hypothesis_settings.register_profile(
    "tidemark",
    max_examples=tries(100),
    # how long a loaded machine takes says nothing of what is tested
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
hypothesis_settings.load_profile("tidemark")


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Settings with a home of the test's own, and nothing of the developer's environment."""
    _forget_environment(monkeypatch)
    return Settings(home=tmp_path / "home")


@pytest.fixture(scope="session", autouse=True)
def closed_connect_clients() -> Iterator[None]:
    """Every Spark Connect client of the tests is closed: pyspark has an open one call its server once more when the
    process ends, and log at length that it is gone, to a stream that pytest has closed."""
    yield
    module = sys.modules.get("pyspark.sql.connect.client.core")
    if module is not None:
        clients = [each for each in gc.get_objects() if type(each) is module.SparkConnectClient]
        assert [client for client in clients if not client.is_closed] == []


@pytest.fixture(scope="session")
def spark_settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """Settings of the shared session: a lake that lives as long as the test run."""
    with pytest.MonkeyPatch.context() as patch:
        _forget_environment(patch)
        # a lake elsewhere, for a test that asks for it; `empty_lake` empties it, too
        lake: dict[str, Any] = {"lake": os.environ["TEST_LAKE"]} if "TEST_LAKE" in os.environ else {}
        yield Settings(
            home=tmp_path_factory.mktemp("tidemark"),
            **lake,
            spark="classic",
            # executors as processes of their own, for a test that asks for them
            master=os.environ.get("TEST_SPARK_MASTER", "local[2]"),
            # which those processes ask one another for
            spark_secret=SecretStr("secret of tests") if "TEST_SPARK_MASTER" in os.environ else None,
            heap="2g",
            shuffle_partitions=2,
            # a session of tests lasts long enough for Java's second compiler: creating a lake takes half as long then
            java_options="-XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC",
        )


@pytest.fixture(scope="session")
def spark(spark_settings: Settings) -> Iterator[SparkSession]:
    """The one classic session with Delta, `local[2]`; mark its tests with `pytest.mark.spark`."""
    from pyspark import SparkContext

    from spark_jobs.session import open_session

    session = open_session(spark_settings, "tidemark-tests")
    # generated code is tested through the lake server; compiling it for each small query takes most of a test's time
    session.conf.set("spark.sql.codegen.wholeStage", "false")
    session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    yield session
    session.stop()
    # while streams are open: what is left to be collected when the process ends logs that it closes
    gateway, SparkContext._gateway, SparkContext._jvm = SparkContext._gateway, None, None
    assert gateway is not None
    gateway.shutdown()


@pytest.fixture
def database(spark: SparkSession) -> Iterator[str]:
    """The name of an empty database of the test's own, gone afterwards."""
    name = f"t_{uuid.uuid4().hex[:12]}"
    spark.sql(f"CREATE DATABASE {name}")
    yield name
    spark.sql(f"DROP DATABASE {name} CASCADE")


@pytest.fixture(scope="session")
def template_lakes(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> TemplateLakes:
    """The lakes that tests of the shared session begin with."""
    # not where this file is imported: tests that start no JVM import it, too
    from tests.support.template_lake import TemplateLakes

    return TemplateLakes.of_session(spark, tmp_path_factory.mktemp("lakes"))


@pytest.fixture
def lake(
    request: pytest.FixtureRequest, spark_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SparkSession | FileSession]:
    """A lake in which no source has run. It is a lake of files; for tests that are marked `spark`, and for all others
    with TIDEMARK_TEST_LAKE=spark, it is the shared session's, with the tables that sources share.

    Runs and audits write no pages of the Data Docs, which take a tenth of a run: tests that look at them build them.
    """
    for module in ("jobs.publish", "audit.audit"):
        monkeypatch.setattr(f"spark_jobs.{module}.build_data_docs", lambda _settings: 0)
    if request.node.get_closest_marker("spark") or os.environ.get("TIDEMARK_TEST_LAKE") == "spark":
        request.getfixturevalue("template_lakes").begin()
        yield request.getfixturevalue("spark")
    else:
        from tests.support.file_session import open_file_session

        # where the settings say that the lake is, since some parts read its files there
        with open_file_session(Path(spark_settings.lake)) as session:
            yield session


@pytest.fixture(scope="module")
def file_lake(spark_settings: Settings) -> Iterator[FileSession]:
    """A lake of files in which no source has run, for a module, in the place of the shared session's lake."""
    from tests.support.file_session import open_file_session

    with open_file_session(Path(spark_settings.lake)) as session:
        yield session


@pytest.fixture
def empty_lake(spark: SparkSession) -> Iterator[SparkSession]:
    """The shared session over an empty lake: none of Tidemark's databases exists, before and after the test."""
    empty(spark)
    yield spark
    empty(spark)


def _forget_environment(patch: pytest.MonkeyPatch) -> None:
    import os

    for name in os.environ:
        if name.startswith("TIDEMARK_") and name not in ("TIDEMARK_JARS", "TIDEMARK_CONFIG"):
            patch.delenv(name)
