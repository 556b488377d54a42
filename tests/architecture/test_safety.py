"""No call that runs what it reads, and no SQL with text in it that was not quoted."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.architecture.source_tree import Module, module_of, modules

FORBIDDEN_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal"}
"""Reading these formats runs code that is in the data."""

FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__", "yaml.load", "yaml.unsafe_load", "os.system", "os.popen"}
"""Calls that run text; `yaml.safe_load` does not."""

SQL_CALLS = {"sql", "run", "expr", "selectExpr", "where", "filter"}
"""Methods whose first argument Spark reads as SQL."""

QUOTING = {"name", "qualified", "literal", "whole"}
"""`storage.descriptions.sql`: the functions that make names and text fit for SQL."""

SQL_COMPOSERS = {
    "spark_jobs/engine/spark/windows/adapter.py": "names that `expressions` quoted, expressions over them",
    "spark_jobs/engine/spark/windows/hot_keys.py": "numbers",
    "spark_jobs/engine/spark/windows/stream_times.py": "numbers, names that `expressions` quoted, and expressions",
}
"""Modules that put queries together from parts, with what the parts are."""


def forbidden_calls(module: Module) -> Iterator[str]:
    """Imports and calls that run what they read, and processes started through a shell."""
    for node in module.nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            for name in names:
                if name.split(".")[0] in FORBIDDEN_MODULES:
                    yield f"{module.path}:{node.lineno} imports {name}"
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            shell = [k for k in node.keywords if k.arg == "shell" and not _is_false(k.value)]
            if called in FORBIDDEN_CALLS or shell:
                yield f"{module.path}:{node.lineno} calls {called}"


def unquoted_sql(module: Module) -> Iterator[str]:
    """SQL built in the call from anything but constants and quoted parts."""
    for node in module.nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in SQL_CALLS:
            for argument in node.args:
                if _is_text_operation(argument) and not _is_quoted(argument):
                    yield f"{module.path}:{node.lineno} {ast.unparse(argument)[:80]}"


def misled_reads(module: Module) -> Iterator[str]:
    """Filtered reads by `deltalake`'s dataset, which leaves out files without bounds (decision 0245)."""
    for node in module.nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            filtered = node.func.attr == "to_pyarrow_table" and any(k.arg == "filters" for k in node.keywords)
            if filtered or node.func.attr == "to_pyarrow_dataset":
                yield f"{module.path}:{node.lineno} calls {node.func.attr}: use `storage.delta.data_files.dataset_of`"


def _is_false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is False


def _is_text_operation(node: ast.expr) -> bool:
    """An f-string, `+` or `%` with text in it, or a call of `format`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mod):
        sides = (node.left, node.right)
        return any(_is_text_operation(s) or (isinstance(s, ast.Constant) and isinstance(s.value, str)) for s in sides)
    formats = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format"
    return isinstance(node, ast.JoinedStr) or formats


def _is_quoted(node: ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        return True
    if isinstance(node, ast.JoinedStr):
        return all(_is_quoted(part) for part in node.values)
    if isinstance(node, ast.FormattedValue):
        return _is_quoted(node.value)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _is_quoted(node.left) and _is_quoted(node.right)
    return isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in QUOTING


def test_nothing_runs_what_it_reads() -> None:
    assert [problem for module in modules() for problem in forbidden_calls(module)] == []


def test_tables_are_filtered_by_one_reader() -> None:
    assert [read for module in modules() for read in misled_reads(module)] == []
    misled = "t.to_pyarrow_dataset()\nt.to_pyarrow_table(filters=x)\nt.to_pyarrow_table(columns=['a'])"
    assert len([*misled_reads(module_of("read.py", misled))]) == 2


def test_sql_is_made_of_constants_and_quoted_parts() -> None:
    found = [problem for module in modules() if module.path not in SQL_COMPOSERS for problem in unquoted_sql(module)]
    assert found == []


def test_every_exemption_is_still_needed() -> None:
    by_path = {module.path: module for module in modules()}
    assert [path for path in SQL_COMPOSERS if path not in by_path or not list(unquoted_sql(by_path[path]))] == []


@pytest.mark.parametrize(
    "text",
    ["import pickle", "from pickle import loads", "eval('1')", "yaml.load(f)", "subprocess.run('ls', shell=True)"],
)
def test_a_call_that_runs_what_it_reads_is_found(text: str) -> None:
    assert len(list(forbidden_calls(module_of("spark_jobs/x.py", text)))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "spark.sql(f'SELECT * FROM {table}')",
        "spark.sql('SELECT * FROM ' + table)",
        "spark.sql('SELECT * FROM %s' % table)",
        "spark.sql('SELECT * FROM {}'.format(table))",
        "lake.spark.sql('DROP TABLE ' + name(a) + suffix)",
        "df.where(f'x = {value}')",
    ],
)
def test_unquoted_text_in_sql_is_found(text: str) -> None:
    assert len(list(unquoted_sql(module_of("spark_jobs/x.py", text)))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "spark.sql('SELECT 1')",
        "spark.sql(statement, args={'at': at})",
        "lake.spark.sql(f'SHOW TABLES IN {name(database)} LIKE {sql.literal(pattern)}')",
        "df.where(F.col('a') + 1)",
    ],
)
def test_constants_parameters_and_quoted_parts_pass(text: str) -> None:
    assert list(unquoted_sql(module_of("spark_jobs/x.py", text))) == []
