"""Every refusal of the trace, of corrections and of what people call says what to do next."""

from __future__ import annotations

import ast
from collections import Counter

from tests.architecture.source_tree import ROOT

PACKAGE = ROOT / "spark_jobs"

SPOKEN_BY = ("cli", "corrections", "jobs", "kernels/arrangement", "kernels/corrections", "restatement", "trace")


def test_every_refusal_says_what_to_do_next() -> None:
    silent = []
    n_refusals = 0
    for folder in SPOKEN_BY:
        for path in sorted((PACKAGE / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if not isinstance(node, ast.Call):
                    continue
                told = {keyword.arg for keyword in node.keywords}
                if {"expected", "found"} <= told:
                    n_refusals += 1
                    if "next_step" not in told:
                        silent.append(f"{path.relative_to(PACKAGE)}:{node.lineno}")
    assert n_refusals > 50
    assert silent == []


def codes(tree: ast.AST) -> list[str]:
    """The codes that the classes of a module declare as their own."""
    bodies = [node.body for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    assigned = [statement for body in bodies for statement in body if isinstance(statement, ast.Assign)]
    found = [a.value for a in assigned if [ast.unparse(target) for target in a.targets] == ["code"]]
    return [value.value for value in found if isinstance(value, ast.Constant)]


def test_a_code_is_that_of_one_class() -> None:
    declared = Counter(code for path in PACKAGE.rglob("*.py") for code in codes(ast.parse(path.read_text())))
    assert len(declared) > 80
    assert [code for code, classes in declared.items() if classes > 1] == []
    assert codes(ast.parse("class A:\n  code = 'a'\nclass B(A):\n  code = 'a'\nclass C(A):\n  pass")) == ["a", "a"]
