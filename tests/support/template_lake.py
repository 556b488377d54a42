"""Lakes that tests begin with, made once a session and put back by copying: files, and the catalog's entries.

Creating twenty tables and as many names through Spark takes more processor time than most tests need for themselves.
The catalog's entries are put back as its own objects, without a statement and without a Spark job.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spark_jobs.config import Settings
from spark_jobs.definitions.catalog import ensure_source
from spark_jobs.jobs.names import names_follow
from spark_jobs.sources import read_sources
from spark_jobs.storage.coordination.lake_format import mark_format
from spark_jobs.storage.delta.places import lake_root
from spark_jobs.storage.descriptions.people_tables import DISMISSALS, ERASURES
from spark_jobs.storage.descriptions.quality_tables import QUALITY
from spark_jobs.storage.descriptions.tables import DATABASES, SHARED
from spark_jobs.storage.lakes.spark_lake import SparkLake
from tests.empty_lake import DATABASES as REMOVED
from tests.empty_lake import empty

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Listing = list[tuple[str, int]]
"""Path and size of each file of a lake, sorted."""


@dataclass
class Catalog:
    """Entries of Spark's catalog, by their names; the values are objects of the JVM.

    Args:
        databases: `CatalogDatabase` by name.
        tables: `CatalogTable` by database and name: tables and views.
        functions: `CatalogFunction` by database and name.
    """

    databases: dict[str, Any] = field(default_factory=dict)
    tables: dict[tuple[str, str], Any] = field(default_factory=dict)
    functions: dict[tuple[str, str], Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Template:
    """A lake that is put back: a copy of its files, its catalog, and the note that its source's names are defined."""

    files: Path
    catalog: Catalog
    note: str


class TemplateLakes:
    """The lakes that the tests of one Spark session begin with.

    A lake on an object store is emptied for each test, and nothing is copied.

    Args:
        spark: the classic session.
        folder: where copies are kept.
    """

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        self._root = lake_root(spark)
        self._templates: dict[str, Template] = {}
        self._catalog = ExternalCatalog(spark)
        self._unchanged: Listing = []

    @classmethod
    def of_session(cls, spark: SparkSession, folder: Path) -> TemplateLakes:
        """Those of the shared session, which `take_in` asks."""
        lakes = cls(spark, folder)
        _of_session.append(lakes)
        return lakes

    def begin(self) -> None:
        """Let the lake be one in which no source has run: the tables that all sources share, without rows."""
        if "://" in self._root:
            empty(self._spark)
        elif "" in self._templates:
            self._put_back(self._templates[""])
            self._unchanged = self._listing()
        else:
            empty(self._spark)
            lake = SparkLake(self._spark)
            lake.catalog.ensure(DATABASES, [*SHARED, *QUALITY, DISMISSALS, ERASURES])
            mark_format(lake)
            self._keep("")
            self._unchanged = self._listing()

    def take_in(self, settings: Settings, name: str) -> None:
        """Give the lake the tables and names of a source, if it is the only one and nothing has run since `begin`."""
        if not self._unchanged or self._listing() != self._unchanged:
            return
        self._unchanged = []
        folder = read_sources(settings.sources)
        if [*folder.sources] != [name]:
            return
        note = settings.home / "views" / f"{name}.definition"
        text = (settings.sources / folder.files[name]).read_text()
        if text in self._templates:
            self._put_back(self._templates[text])
            note.parent.mkdir(parents=True, exist_ok=True)
            note.write_text(self._templates[text].note)
        else:
            lake, source = SparkLake(self._spark), folder.sources[name]
            ensure_source(lake, source)
            names_follow(settings, lake, source)
            self._keep(text, note.read_text())

    def _keep(self, key: str, note: str = "") -> None:
        files = self._folder / str(len(self._templates))
        shutil.copytree(self._root, files)
        self._templates[key] = Template(files, self._catalog.entries(), note)

    def _put_back(self, template: Template) -> None:
        # dropping a table removes its folder, so files come last
        self._catalog.put_back(template.catalog)
        shutil.rmtree(self._root)
        shutil.copytree(template.files, self._root)
        self._catalog.forget_cached()

    def _listing(self) -> Listing:
        """Path and size of each file of the lake."""
        files = (path for path in Path(self._root).rglob("*") if path.is_file())
        return sorted((str(path), path.stat().st_size) for path in files)


_of_session: list[TemplateLakes] = []


def take_in(settings: Settings, name: str) -> None:
    """`TemplateLakes.take_in`, where the test began with such a lake."""
    for lakes in _of_session:
        lakes.take_in(settings, name)


class ExternalCatalog:
    """Spark's external catalog, reached past its SQL."""

    def __init__(self, spark: SparkSession) -> None:
        assert spark._jvm is not None
        self._jvm: Any = spark._jvm
        session = spark._jsparkSession
        self._catalog = session.sharedState().externalCatalog()
        self._session_catalog = session.sessionState().catalog()

    def entries(self) -> Catalog:
        """All that Tidemark's databases have."""
        catalog = Catalog()
        for database in self._databases():
            catalog.databases[database] = self._catalog.getDatabase(database)
            names = self._catalog.listTables(database)
            tables = self._iterate(self._catalog.getTablesByName(database, names))
            catalog.tables.update({(database, table.identifier().table()): table for table in tables})
            for function in self._iterate(self._catalog.listFunctions(database, "*")):
                catalog.functions[database, function] = self._catalog.getFunction(database, function)
        return catalog

    def put_back(self, wanted: Catalog) -> None:
        """Let the catalog have these entries of Tidemark's databases, and no others."""
        present = self.entries()
        for database, table in _other(present.tables, wanted.tables, _table_text):
            self._catalog.dropTable(database, table, True, True)
        for database, function in _other(present.functions, wanted.functions, _text):
            # by the session's catalog, which has it resolved, too
            self._session_catalog.dropFunction(self._identifier(database, function), True)
        for database in present.databases.keys() - wanted.databases:
            self._catalog.dropDatabase(database, True, True)
        for database in wanted.databases.keys() - present.databases:
            self._catalog.createDatabase(wanted.databases[database], True)
        for key in _other(wanted.tables, present.tables, _table_text):
            self._catalog.createTable(wanted.tables[key], True)
        for database, function in _other(wanted.functions, present.functions, _text):
            self._catalog.createFunction(database, wanted.functions[database, function])

    def forget_cached(self) -> None:
        """Forget what the session has cached of tables, views and functions, and Delta of logs."""
        self._session_catalog.invalidateAllCachedTables()
        self._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()

    def _identifier(self, database: str, function: str) -> Any:
        some = self._jvm.scala.Option.apply
        return self._jvm.org.apache.spark.sql.catalyst.FunctionIdentifier(
            function, some(database), some("spark_catalog")
        )

    def _databases(self) -> list[str]:
        names = self._iterate(self._catalog.listDatabases())
        return [name for name in names if name in REMOVED or "__" in name]

    def _iterate(self, sequence: Any) -> Iterator[Any]:
        return iter(self._jvm.scala.jdk.javaapi.CollectionConverters.asJava(sequence))


def _other(
    entries: dict[tuple[str, str], Any], others: dict[tuple[str, str], Any], text: Callable[[Any], str]
) -> Iterable[tuple[str, str]]:
    """The keys of `entries` that `others` lacks or has with another entry."""
    return [key for key, entry in entries.items() if key not in others or text(others[key]) != text(entry)]


def _table_text(table: Any) -> str:
    """All that makes a table or view what it is; times of creation and of access are left out."""
    parts = (table.viewText(), table.schema().json(), table.properties(), table.storage(), table.comment())
    return "\n".join(str(part) for part in parts)


def _text(function: Any) -> str:
    return str(function.toString())
