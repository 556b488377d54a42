"""Modules and functions stay small enough to be read at once."""

from __future__ import annotations

import ast

from tests.architecture.source_tree import Module, module_of, modules

MAX_MODULE_LINES = 400
MAX_FUNCTION_LINES = 60


def long_modules(module: Module) -> list[str]:
    lines = len(module.text.splitlines())
    return [f"{module.path} has {lines} lines"] if lines > MAX_MODULE_LINES else []


def long_functions(module: Module) -> list[str]:
    """Functions whose signature and body are over the limit; a docstring makes a contract longer, not a function."""
    problems = []
    for node in module.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = _lines(node) - (_lines(node.body[0]) if ast.get_docstring(node) is not None else 0)
            if lines > MAX_FUNCTION_LINES:
                problems.append(f"{module.path}:{node.lineno} {node.name} has {lines} lines")
    return problems


def _lines(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def test_no_module_is_longer_than_the_limit() -> None:
    assert [problem for module in modules() for problem in long_modules(module)] == []


def test_no_function_is_longer_than_the_limit() -> None:
    assert [problem for module in modules() for problem in long_functions(module)] == []


def test_what_is_too_long_is_found() -> None:
    body = "\n".join("    x = 1" for _ in range(MAX_FUNCTION_LINES))
    module = module_of("spark_jobs/x.py", f"class A:\n  def f(self):\n{body}\n")
    assert len(long_functions(module)) == 1
    assert long_functions(module_of("spark_jobs/x.py", "def f():\n" + body.rpartition("\n")[0])) == []
    assert len(long_modules(module_of("spark_jobs/x.py", "\n" * (MAX_MODULE_LINES + 1)))) == 1
