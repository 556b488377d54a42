"""The page of error codes: every class of `spark_jobs` that is a `TidemarkError`, read from the source code.

The code is parsed and not imported: so no package has to be installed that only some modules need.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from docs.generate.documents import ROOT
from docs.generate.markdown import as_sentence, code, prose, section, table, whole_page

BASE, WRONG_INPUT = "spark_jobs.errors.TidemarkError", "spark_jobs.errors.ConfigurationError"
_NEXT_STEP, _CLASS = "next_step=", re.compile(r"^class \w+\(", re.MULTILINE)
_FACTS = re.compile(r"(?:^|(?<=[.;]\s))Facts?:?\s+(.*)$", re.DOTALL)
_INTRODUCTION = """
A refusal or failure has a code, which never changes, and a sentence with four parts: the expected, the found, the
consequence and the next step. With `--json`, a command prints it as `{"error": {"code": …, "message": …}}` with its
facts beside them; in Python each fact is an attribute of the error. In a next step, `…` stands for what the error says
of the case at hand.
"""


@dataclass
class ErrorClass:
    """A class of errors: its code if it has one of its own, its bases, and the next steps that its errors name."""

    module: str
    name: str
    bases: list[str]
    docstring: str
    own_code: str | None
    next_steps: list[str] = field(default_factory=list)

    @property
    def qualified(self) -> str:
        """`module.name`."""
        return f"{self.module}.{self.name}"

    @property
    def cause(self) -> str:
        """The docstring up to its facts."""
        return _FACTS.sub("", self.docstring.partition("\n\nArgs:")[0]).strip()

    @property
    def facts(self) -> str:
        """The part of the docstring that names the facts."""
        match = _FACTS.search(self.docstring)
        return match[1] if match else ""


@dataclass
class Module:
    """A module: its name, its tree, and the nodes of the tree that are looked at."""

    name: str
    tree: ast.Module
    nodes: list[Any]

    @functools.cached_property
    def names(self) -> dict[str, str]:
        """The qualified names of the classes and modules that the module defines or imports."""
        imported = [node for node in self.nodes if isinstance(node, ast.ImportFrom)]
        names = {alias.asname or alias.name: f"{node.module}.{alias.name}" for node in imported for alias in node.names}
        classes = {node.name: f"{self.name}.{node.name}" for node in self.tree.body if isinstance(node, ast.ClassDef)}
        return names | classes


def page() -> str:
    """The page, with a section for each code."""
    classes = error_classes()
    coded = sorted((c for c in classes.values() if c.own_code), key=lambda c: str(c.own_code))
    rows = [[f"[{code(str(c.own_code))}](#{c.own_code})", prose(c.cause)] for c in coded]
    sections = [_section(error, classes) for error in coded]
    return whole_page("Error codes", _INTRODUCTION.strip(), table(["code", "cause"], rows), *sections)


@functools.cache
def error_classes() -> dict[str, ErrorClass]:
    """The classes of errors, by their qualified name."""
    modules = list(_modules())
    every = {c.qualified: c for module in modules for c in _classes(module)}
    of_name: dict[str, list[str]] = {}
    for qualified in every:
        of_name.setdefault(qualified.rpartition(".")[2], []).append(qualified)

    def resolve(name: str) -> str:
        """The class of a dotted name; packages import names from their modules."""
        alike = of_name.get(name.rpartition(".")[2], [])
        return name if name in every or len(alike) != 1 else alike[0]

    for error in every.values():
        error.bases = [resolve(base) for base in error.bases]
    errors = {name: error for name, error in every.items() if BASE in (name, *_ancestors(error, every))}
    for module in modules:
        for called, step in _next_steps(module):
            made = errors.get(resolve(called))
            if made is not None and step not in made.next_steps:
                made.next_steps.append(step)
    return errors


def _section(error: ErrorClass, classes: dict[str, ErrorClass]) -> str:
    above = [classes[name] for name in _ancestors(error, classes)]
    family = next((c for c in above if c.own_code and c.qualified not in (BASE, WRONG_INPUT)), None)
    steps = [f"    - {as_sentence(prose(step))}" for step in error.next_steps]
    wrong_input = WRONG_INPUT in (error.qualified, *(c.qualified for c in above))
    lines = [
        f"- Facts: {as_sentence(prose(error.facts))}" if error.facts else "",
        "\n".join(["- Next step:", *steps]) if steps else "",
        f"- Class: {code(error.name)} in {code(error.module)}"
        + (f", a kind of [{code(str(family.own_code))}](#{family.own_code})" if family else ""),
        f"- Exit code of a command: {2 if wrong_input else 1}",
    ]
    heading = f"{code(str(error.own_code))} {{#{error.own_code}}}"
    return section(2, heading, prose(error.cause), "\n".join(filter(None, lines)))


def _modules() -> Iterator[Module]:
    """Yield the modules of the product that have a class with a base, or a next step."""
    for file in sorted((ROOT / "spark_jobs").rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        if _NEXT_STEP in text or _CLASS.search(text):
            name = file.relative_to(ROOT).as_posix().removesuffix(".py").removesuffix("/__init__").replace("/", ".")
            tree = ast.parse(text)
            # only calls need the inner of functions
            yield Module(name, tree, list(ast.walk(tree)) if _NEXT_STEP in text else list(tree.body))


def _classes(module: Module) -> Iterator[ErrorClass]:
    for node in module.tree.body:
        if isinstance(node, ast.ClassDef):
            bases = [_qualify(base, module.names) for base in node.bases]
            yield ErrorClass(module.name, node.name, bases, ast.get_docstring(node) or "", _own_code(node))


def _qualify(expression: ast.expr, names: dict[str, str]) -> str:
    first, dot, attributes = ast.unparse(expression).partition(".")
    return names.get(first, first) + dot + attributes


def _own_code(node: ast.ClassDef) -> str | None:
    """The code that the body of a class assigns."""
    for statement in node.body:
        if isinstance(statement, ast.Assign | ast.AnnAssign) and isinstance(statement.value, ast.Constant):
            target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
            if ast.unparse(target) == "code":
                return str(statement.value.value)
    return None


def _ancestors(error: ErrorClass, classes: dict[str, ErrorClass]) -> list[str]:
    """The names of the classes above a class, nearest first."""
    bases = [base for base in error.bases if base in classes]
    return list(dict.fromkeys([*bases, *(above for base in bases for above in _ancestors(classes[base], classes))]))


def _next_steps(module: Module) -> Iterator[tuple[str, str]]:
    """Yield the class and the next step of each error that a module makes."""
    for node in module.nodes:
        if isinstance(node, ast.Call):
            given = [keyword.value for keyword in node.keywords if keyword.arg == "next_step"]
            for step in _texts(given):
                yield _qualify(node.func, module.names), step


def _texts(expressions: Iterable[ast.expr]) -> Iterator[str]:
    """Yield the texts that expressions can give, with `…` for the parts that depend on the case."""
    for expression in expressions:
        if isinstance(expression, ast.IfExp):
            yield from _texts([expression.body, expression.orelse])
        if isinstance(expression, ast.Constant) and expression.value:
            yield str(expression.value)
        if isinstance(expression, ast.JoinedStr):
            parts = [str(p.value) if isinstance(p, ast.Constant) else "…" for p in expression.values]
            text = "".join(parts)
            if len(text) > 3 * text.count("…"):
                yield text
