"""Docstrings begin with the thing that they are about: its noun, or what it does."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.architecture.source_tree import Module, module_of, modules

HEADLESS = frozenset({"What", "Whether", "Those", "That", "Which", "How"})
"""First words of a clause without a noun: a reader learns at its end, if at all, what the thing is."""


def docstrings(tree: ast.Module) -> Iterator[ast.Constant]:
    """The docstrings of a module: its own, of classes and functions, and the texts below fields and constants."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value


def headless(module: Module) -> list[str]:
    """The docstrings that begin with one of the words in `HEADLESS`."""
    return [
        f"{module.path}:{docstring.lineno} {str(docstring.value).strip()[:60]}"
        for docstring in docstrings(module.tree)
        if str(docstring.value).strip().partition(" ")[0] in HEADLESS
    ]


def test_docstrings_begin_with_a_noun_or_a_verb() -> None:
    assert [
        problem for module in modules() if not module.path.startswith("tests") for problem in headless(module)
    ] == []


def test_a_headless_docstring_is_found() -> None:
    text = '"""A module."""\nROWS = 3\n"""What is read."""\ndef f():\n    """Whether it is."""\n'
    found = headless(module_of("spark_jobs/x.py", text))
    assert found == ["spark_jobs/x.py:3 What is read.", "spark_jobs/x.py:5 Whether it is."]
