"""Every refusal of the trace, of corrections and of what people call says what to do next."""

from __future__ import annotations

import ast
from collections import Counter

from tests.architecture.source_tree import Module, module_of, modules

SPOKEN_BY = ("cli", "engine/arrangement", "engine/corrections", "engine/updates", "jobs", "restatement", "trace")


def test_every_refusal_says_what_to_do_next() -> None:
    silent = []
    n_refusals = 0
    for module in modules(*(f"spark_jobs/{folder}" for folder in SPOKEN_BY)):
        for node in module.nodes:
            if not isinstance(node, ast.Call):
                continue
            arguments = {keyword.arg for keyword in node.keywords}
            if {"expected", "found"} <= arguments:
                n_refusals += 1
                if "next_step" not in arguments:
                    silent.append(f"{module.path}:{node.lineno}")
    assert n_refusals > 50
    assert silent == []


def codes(module: Module) -> list[str]:
    """The codes that the classes of a module declare as their own."""
    bodies = [node.body for node in module.nodes if isinstance(node, ast.ClassDef)]
    assigned = [statement for body in bodies for statement in body if isinstance(statement, ast.Assign)]
    values = [a.value for a in assigned if [ast.unparse(target) for target in a.targets] == ["code"]]
    return [value.value for value in values if isinstance(value, ast.Constant) and isinstance(value.value, str)]


def test_a_code_is_that_of_one_class() -> None:
    declared = Counter(code for module in modules("spark_jobs") for code in codes(module))
    assert len(declared) > 80
    assert [code for code, classes in declared.items() if classes > 1] == []
    module = module_of("x.py", "class A:\n  code = 'a'\nclass B(A):\n  code = 'a'\nclass C(A):\n  pass")
    assert codes(module) == ["a", "a"]
