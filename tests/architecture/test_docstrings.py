"""Whatever other code may call says what it promises and what it returns."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.architecture.source_tree import Module, module_of, modules

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def public_definitions(tree: ast.Module | ast.ClassDef) -> Iterator[Definition]:
    """Public classes, functions and methods; what is nested in a function is nobody's interface."""
    for node in tree.body:
        if isinstance(node, Definition) and not node.name.startswith("_"):
            yield node
            if isinstance(node, ast.ClassDef):
                yield from public_definitions(node)


def undocumented(module: Module) -> list[str]:
    """Public definitions without a docstring; a method that overrides one (`@override`) inherits its contract."""
    missing = [
        f"{module.path}:{node.lineno} {node.name}"
        for node in public_definitions(module.tree)
        if ast.get_docstring(node) is None and not _overrides(node)
    ]
    if module.text.strip() and ast.get_docstring(module.tree) is None:
        missing.append(f"{module.path}:1 the module")
    return missing


def unannotated(module: Module) -> list[str]:
    """Public functions that do not say what they return."""
    return [
        f"{module.path}:{node.lineno} {node.name}"
        for node in public_definitions(module.tree)
        if not isinstance(node, ast.ClassDef) and node.returns is None
    ]


def echoing(module: Module) -> list[str]:
    """Docstrings of functions that only repeat the name."""
    found = []
    for node in public_definitions(module.tree):
        text = ast.get_docstring(node) or ""
        words = {word.strip(".,").lower() for word in text.split()} - {"the", "a", "an"}
        if text and words <= set(node.name.lower().split("_")):
            found.append(f"{module.path}:{node.lineno} {node.name}")
    return found


def _overrides(node: Definition) -> bool:
    return any(isinstance(mark, ast.Name) and mark.id in ("override", "overload") for mark in node.decorator_list)


def test_everything_public_has_a_docstring() -> None:
    assert [problem for module in modules("spark_jobs") for problem in undocumented(module)] == []


def test_every_public_function_says_what_it_returns() -> None:
    assert [problem for module in modules("spark_jobs") for problem in unannotated(module)] == []


def test_no_docstring_only_repeats_the_name() -> None:
    assert [problem for module in modules("spark_jobs") for problem in echoing(module)] == []


def test_what_is_missing_is_found() -> None:
    methods = "    def fold(self):\n        pass\n    def _own(self):\n        pass\n"
    text = '"""A module."""\nclass A:\n    """A."""\n' + methods
    module = module_of("spark_jobs/x.py", text)
    assert undocumented(module) == unannotated(module) == ["spark_jobs/x.py:4 fold"]
    assert echoing(module) == ["spark_jobs/x.py:2 A"]
    assert undocumented(module_of("spark_jobs/x.py", "x = 1")) == ["spark_jobs/x.py:1 the module"]
