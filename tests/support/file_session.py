"""A lake of files that tests run sources on and ask by SQL, without a JVM.

Stages write it as `FileLake` does. DuckDB answers questions: it reads the tables, and the names that users read, whose
Spark SQL the lake keeps; `sqlglot` puts that SQL into DuckDB's.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import sqlglot
from deltalake import DeltaTable
from duckdb.sqltypes import DuckDBPyType
from pyspark.sql import Row
from sqlglot import exp

from spark_jobs.storage.lakes.file_lake import FileLake

SPARKS_FUNCTIONS = (
    "CREATE MACRO timestamp_micros(us) AS make_timestamptz(us)",
    "CREATE MACRO unix_micros(time) AS epoch_us(time)",
    "CREATE MACRO array_repeat(value, times) AS list_transform(range(times), lambda i : value)",
    "CREATE MACRO raise_error(text) AS error(text)",
    "CREATE MACRO get(list, place) AS list[place + 1]",
)
"""Functions of Spark that DuckDB calls otherwise and `sqlglot` leaves as they are."""


@dataclass(frozen=True)
class Relation:
    """The rows of a query, with the methods of Spark's frames that tests use. The text is Spark SQL."""

    session: FileSession
    text: str

    def where(self, condition: str) -> Relation:
        return Relation(self.session, f"SELECT * FROM ({self.text}) WHERE {condition}")

    def select(self, *columns: str) -> Relation:
        return Relation(self.session, f"SELECT {_listed(columns)} FROM ({self.text})")

    def selectExpr(self, *columns: str) -> Relation:
        return self.select(*columns)

    def drop(self, *columns: str) -> Relation:
        return self.select(*(name for name in self.columns if name not in columns))

    def distinct(self) -> Relation:
        return Relation(self.session, f"SELECT DISTINCT * FROM ({self.text})")

    def orderBy(self, *columns: str) -> Relation:
        return Relation(self.session, f"SELECT * FROM ({self.text}) ORDER BY {_listed(columns)}")

    @property
    def columns(self) -> list[str]:
        return self.session.answer(f"SELECT * FROM ({self.text}) LIMIT 0").columns

    def count(self) -> int:
        return int(self.session.answer(f"SELECT count(*) FROM ({self.text})").fetchall()[0][0])

    def collect(self) -> list[Row]:
        answer = self.session.answer(self.text)
        made = Row(*answer.columns)
        return [made(*map(_as_spark, values, answer.types)) for values in answer.fetchall()]

    def first(self) -> Row | None:
        return next(iter(self.collect()), None)

    def toArrow(self) -> pa.Table:
        return self.session.answer(self.text).to_arrow_table()


@contextmanager
def open_file_session(folder: Path) -> Iterator[FileSession]:
    """A session over a folder that is emptied before and after."""
    session = FileSession(folder)
    session.clear()
    try:
        yield session
    finally:
        session.close()
        session.clear()


class FileSession:
    """A lake of files, and SQL over it. `lake` is the lake that stages write."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.lake = FileLake(folder)
        self._loaded: dict[str, int] = {}
        self._duckdb = duckdb.connect()
        self._duckdb.execute("SET TimeZone = 'UTC'")
        for statement in SPARKS_FUNCTIONS:
            self._duckdb.execute(statement)

    def clear(self) -> None:
        """Remove all tables and names."""
        shutil.rmtree(self._folder)
        self._folder.mkdir()
        self.lake = FileLake(self._folder)
        self._loaded.clear()

    def close(self) -> None:
        """Close DuckDB."""
        self._duckdb.close()

    def sql(self, text: str) -> Relation:
        """The rows of a query in Spark SQL."""
        return Relation(self, text)

    def table(self, name: str) -> Relation:
        """The rows of a table or view."""
        return Relation(self, f"SELECT * FROM {name}")

    def answer(self, text: str) -> duckdb.DuckDBPyRelation:
        """DuckDB's relation for a query in Spark SQL."""
        query = sqlglot.parse_one(text, read="spark")
        assert isinstance(query, exp.Expression)
        self._define(query)
        return self._duckdb.sql(_of_duckdb(query))

    def _define(self, query: exp.Expression) -> None:
        """Define in DuckDB all that a query names, as it is now."""
        for database, name in dict.fromkeys(_names(query)):
            statement = self.lake.catalog.statement(database, name)
            if statement is None:
                self._load(database, name)
            else:
                self._create(database, name, statement)

    def _load(self, database: str, name: str) -> None:
        """Give DuckDB the rows of a table, unless it has the table's version."""
        table, key = DeltaTable(self.lake.folder.handle_of(database, name).uri), f'"{database}"."{name}"'
        if self._loaded.get(key) == table.version():
            return
        self._duckdb.register("rows_of_table", table.to_pyarrow_table())
        self._duckdb.execute(f'CREATE SCHEMA IF NOT EXISTS "{database}"')
        self._duckdb.execute(f"CREATE OR REPLACE TABLE {key} AS SELECT * FROM rows_of_table")
        self._duckdb.unregister("rows_of_table")
        self._loaded[key] = table.version()

    def _create(self, database: str, name: str, statement: str) -> None:
        """Create a view, or a function that returns a table, from the statement in Spark SQL."""
        created = sqlglot.parse_one(statement, read="spark")
        assert isinstance(created, exp.Create), statement
        select, of = created.expression, f'"{database}"."{name}"'
        self._define(select)
        self._duckdb.execute(f'CREATE SCHEMA IF NOT EXISTS "{database}"')
        text = _of_duckdb(select)
        if created.kind == "VIEW":
            self._duckdb.execute(f"CREATE OR REPLACE VIEW {of} AS {text}")
        else:
            self._duckdb.execute(f"CREATE OR REPLACE MACRO {of}({_parameters(created)}) AS TABLE {text}")


def _names(query: exp.Expression) -> Iterator[tuple[str, str]]:
    """The database and name of each table, view and function that a query reads."""
    for table in query.find_all(exp.Table):
        if table.db:
            yield table.db, table.name or table.this.name


def _of_duckdb(query: exp.Expression) -> str:
    """The query in DuckDB's SQL.

    `sqlglot` leaves two things to do: the fields of zipped lists have the lists' names in Spark, and lists that
    `inline` and `explode` take apart after LATERAL VIEW are unnested in a joined subquery.
    """
    query = query.copy()
    for lateral in [*query.find_all(exp.Lateral)]:
        select, alias = lateral.find_ancestor(exp.Select), lateral.args["alias"]
        assert select is not None
        if isinstance(lateral.this, exp.Explode):
            lists, names = [lateral.this.this], [column.name for column in alias.args["columns"]]
        else:
            lists = _zipped(lateral.this)
            names = [each.name for each in lists]
        unnested = exp.select(*(exp.Explode(this=each.copy()) for each in lists)).subquery()
        columns = [exp.to_identifier(name, quoted=True) for name in names]
        unnested.set("alias", exp.TableAlias(this=exp.to_identifier(alias.name or "_exploded"), columns=columns))
        select.set("laterals", [each for each in select.args["laterals"] if each is not lateral])
        select.append("joins", exp.Join(this=unnested, kind="CROSS"))
    for read in query.find_all(exp.FromJson):
        assert read.expression.name == "ARRAY<STRUCT<handle: STRING>>", read
        read.set("expression", exp.Literal.string('[{"handle": "VARCHAR"}]'))
    for dot in [each for each in query.find_all(exp.Dot) if each.find(exp.FromJson)]:
        text = f"list_transform({dot.this.sql(dialect='duckdb')}, lambda each: each.{dot.expression.name})"
        dot.replace(sqlglot.parse_one(text, read="duckdb"))
    for function in [*query.find_all(exp.Inline)]:
        select = function.find_ancestor(exp.Select)
        assert select is not None
        others = [each for each in select.expressions if each is not function]
        lists = _zipped(function)
        select.set("expressions", [*others, *(exp.alias_(exp.Explode(this=each.copy()), each.name) for each in lists)])
    for zipped in [*query.find_all(exp.ArraysZip)]:
        lists = zipped.expressions
        fields = ", ".join(f"'{each.name}': {each.sql(dialect='duckdb')}[i + 1]" for each in lists)
        first = lists[0].sql(dialect="duckdb")
        text = f"list_transform(range(0, len({first})), lambda i : {{{fields}}})"
        zipped.replace(sqlglot.parse_one(text, read="duckdb"))
    return query.sql(dialect="duckdb")


def _zipped(function: exp.Expression) -> list[exp.Expression]:
    """The lists of `inline(arrays_zip(…))`, which are zipped by unnesting them beside each other."""
    return next(iter(function.find_all(exp.ArraysZip))).expressions


def _parameters(created: exp.Create) -> str:
    """The parameters of a function, with their defaults, in DuckDB's SQL."""
    parts = []
    for column in created.this.expressions:
        default = column.find(exp.DefaultColumnConstraint)
        parts.append(f'"{column.name}"' + (f" := {default.this.sql(dialect='duckdb')}" if default else ""))
    return ", ".join(parts)


def _listed(columns: Sequence[str]) -> str:
    return ", ".join(columns)


def _children(kind: DuckDBPyType) -> dict[str, DuckDBPyType]:
    """The types that a struct or a map is made of, by name."""
    return {name: of for name, of in kind.children if isinstance(of, DuckDBPyType)}


def _as_spark(value: Any, kind: DuckDBPyType) -> Any:
    """A value of DuckDB's type `kind` as Spark's `collect` gives it: times without a zone, structs as rows."""
    if value is None:
        return None
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).replace(tzinfo=None)
    if kind.id == "list":
        return [_as_spark(each, kind.child) for each in value]
    if kind.id == "struct":
        return Row(**{name: _as_spark(value[name], of) for name, of in _children(kind).items()})
    if kind.id == "map":
        keys, values = _children(kind).values()
        return {_as_spark(key, keys): _as_spark(each, values) for key, each in value.items()}
    return value
