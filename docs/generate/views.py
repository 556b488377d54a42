"""The page of the names that people query: views and functions of all sources, of the shipped ones, and their marts."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import yaml

from docs.generate.documents import ROOT
from docs.generate.markdown import code, prose, section, table, whole_page
from docs.generate.tables import shipped_sources, stored_tables
from spark_jobs.definitions.catalog import name_definitions
from spark_jobs.storage.descriptions.tables import DATABASES
from spark_jobs.storage.names.chain_views import chain_views

_LITERAL = r"'(?:[^'\\]|\\.)*'"
_COLUMN = re.compile(rf"`(?P<name>[^`]+)`(?: (?P<type>[^'`]+?))? COMMENT (?P<comment>{_LITERAL})")
_COLUMNS = rf"(?:`[^`]+`[^'`]* COMMENT {_LITERAL}(?:, )?)*"
_STATEMENT = re.compile(
    rf"CREATE OR REPLACE (?P<kind>VIEW|FUNCTION) `(?P<database>\w+)`\.`(?P<name>\w+)`\s*\((?P<first>{_COLUMNS})\)"
    rf"(?: RETURNS TABLE \((?P<second>{_COLUMNS})\))? COMMENT (?P<comment>{_LITERAL})"
)
_INTRODUCTION = """
These names show what is published, and nothing else: one commit publishes all of them. The names of a source and of its
windows come from its source file; here they are those of the shipped sources, `flights` and `weather`. A function whose
name ends in `_as_of` reads as of a visible time. Behind the names are [stored tables](tables.md).
"""


@dataclass(frozen=True)
class Name:
    """A view or a function: its parameters if it is a function, and its columns, each as name, type and comment."""

    database: str
    name: str
    is_function: bool
    comment: str
    parameters: tuple[tuple[str, str, str], ...]
    columns: tuple[tuple[str, str, str], ...]

    @property
    def qualified(self) -> str:
        """`database.name`."""
        return f"{self.database}.{self.name}"


def page() -> str:
    """The page, with a section for each database."""
    by_database: dict[str, list[Name]] = {database: [] for database in DATABASES}
    for name in names():
        by_database[name.database].append(name)
    sections = [_database(database, of_it) for database, of_it in by_database.items() if of_it]
    return whole_page("Views and functions", _INTRODUCTION.strip(), *sections, _marts())


@functools.cache
def names() -> list[Name]:
    """The views and functions of all sources and of the shipped ones, each once."""
    statements = [s for source in shipped_sources() for s in name_definitions(source)]
    return [_parse_statement(statement) for statement in dict.fromkeys([*statements, *chain_views()])]


def _parse_statement(statement: str) -> Name:
    match = _STATEMENT.match(statement)
    assert match is not None, f"a statement of another form: {statement[:100]}"
    first, second = _columns(match["first"]), _columns(match["second"] or "")
    is_function = match["kind"] == "FUNCTION"
    parameters, columns = (first, second) if is_function else ((), first)
    return Name(match["database"], match["name"], is_function, _text(match["comment"]), parameters, columns)


def _columns(text: str) -> tuple[tuple[str, str, str], ...]:
    return tuple((m["name"], m["type"] or "", _text(m["comment"])) for m in _COLUMN.finditer(text))


def _text(literal: str) -> str:
    """The text of an SQL literal."""
    return re.sub(r"\\(.)", lambda match: "\n" if match[1] == "n" else match[1], literal[1:-1])


@functools.cache
def _types() -> dict[str, str]:
    """The type of a column by its comment, where one comment has one type: the definition of a view names no types."""
    kinds: dict[str, set[str]] = {}
    for comment, kind in [*_typed_by_tables(), *_typed_by_functions()]:
        kinds.setdefault(comment, set()).add(kind)
    return {comment: next(iter(several)) for comment, several in kinds.items() if len(several) == 1} | dict(
        _typed_by_code()
    )


def _typed_by_tables() -> Iterator[tuple[str, str]]:
    return ((column.short_comment, column.type) for described in stored_tables() for column in described.columns)


def _typed_by_functions() -> Iterator[tuple[str, str]]:
    return ((comment, kind) for name in names() if name.is_function for _, kind, comment in name.columns)


def _typed_by_code() -> Iterator[tuple[str, str]]:
    """Yield comment and type of the columns that the code of the views writes out."""
    for file in sorted((ROOT / "spark_jobs" / "storage" / "names").glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "Column":
                given = [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
                if len(given) == len(node.args) and given[1]:
                    yield str(given[2]), str(given[1])


def _database(database: str, of_it: Iterable[Name]) -> str:
    return section(2, f"{database} {{#{database}}}", prose(DATABASES[database]), *map(_section, of_it))


def _section(name: Name) -> str:
    arguments = ", ".join(parameter for parameter, _, _ in name.parameters)
    heading = f"`{name.qualified}{f'({arguments})' if name.is_function else ''}` {{#{name.qualified}}}"
    parameters = table(["parameter", "type", "meaning"], [_row(name, *parameter) for parameter in name.parameters])
    columns = table(["column", "type", "meaning"], [_row(name, *column) for column in name.columns])
    return section(3, heading, prose(name.comment), parameters, columns)


def _row(of: Name, column: str, kind: str, comment: str) -> list[str]:
    column_type = kind or _types().get(comment.removeprefix("Of the update: ")) or _type_in_changelog(of, column)
    return [code(column), code(column_type) if column_type else "", prose(comment)]


def _type_in_changelog(causes: Name, column: str) -> str:
    """The type of a column of the row that changed, which is a column of the changelog, too."""
    changelog = f"{causes.qualified.removesuffix('_causes')}_changes"
    columns = [c for name in names() if name.qualified == changelog for c in name.columns if c[0] == column]
    return _types().get(columns[0][2], "") if columns else ""


def _marts() -> str:
    models = [
        model
        for file in sorted((ROOT / "dbt" / "models" / "marts").glob("*.yml"))
        for model in yaml.safe_load(file.read_text(encoding="utf-8"))["models"]
    ]
    return section(2, "marts {#marts}", prose(DATABASES["marts"]), *map(_mart, models))


def _mart(model: dict[str, object]) -> str:
    listed = model.get("columns")
    columns = listed if isinstance(listed, list) else []
    rows = [[code(c["name"]), code(c.get("data_type", "")), prose(c.get("description", ""))] for c in columns]
    heading = f"`marts.{model['name']}` {{#marts.{model['name']}}}"
    return section(3, heading, prose(str(model.get("description", ""))), table(["column", "type", "meaning"], rows))
