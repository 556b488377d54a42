"""The product's Python files as syntax trees: what the architecture tests look at, without importing any of them."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from spark_jobs.engine.faces import modules_of_names

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("spark_jobs", "expectations", "dags")


@dataclass(frozen=True)
class Module:
    """One file: its path from the root, its dotted name, its text and tree."""

    path: str
    name: str
    text: str

    @functools.cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    @functools.cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """Every node of the tree."""
        return tuple(ast.walk(self.tree))

    @property
    def is_package(self) -> bool:
        return self.path.endswith("__init__.py")


@functools.cache
def modules(*folders: str) -> tuple[Module, ...]:
    """Every module below these folders (by default the whole product), in order of path."""
    files = sorted(file for folder in folders or PRODUCT for file in (ROOT / folder).rglob("*.py"))
    return tuple(module_of(file.relative_to(ROOT).as_posix(), file.read_text(encoding="utf-8")) for file in files)


@functools.cache
def module_of(path: str, text: str) -> Module:
    """A module from its path and text; tests make violating ones of it."""
    return Module(path, path.removesuffix(".py").removesuffix("/__init__").replace("/", "."), text)


@dataclass(frozen=True)
class Import:
    """One imported module, with the line; `deferred` if inside a function or under TYPE_CHECKING.

    `defining` is the module of a name that is imported from a face of the engine, else the same as `target`.
    """

    target: str
    line: int
    deferred: bool
    defining: str


@functools.cache
def imports(module: Module) -> tuple[Import, ...]:
    """All imports, as absolute names; `from a import b` gives `a.b` if that is a module of the product, else `a`."""
    return tuple(_imports(module, module.tree, deferred=False))


def _imports(module: Module, node: ast.AST, *, deferred: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        inside = (
            deferred or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) or _types_only(child)
        )
        if isinstance(child, ast.Import):
            for alias in child.names:
                target = _sibling(module, alias.name)
                yield Import(target, child.lineno, inside, target)
        elif isinstance(child, ast.ImportFrom):
            base = _absolute(module, child)
            for alias in child.names:
                full = f"{base}.{alias.name}"
                target = full if full in _product_names() else base
                yield Import(target, child.lineno, inside, defining_module(target, alias.name))
        yield from _imports(module, child, deferred=inside)


def face_names(module: Module) -> dict[str, str]:
    """The names that a face of the engine offers, with the modules that define them; empty for other modules."""
    return modules_of_names(module.text) if "lazy_names(__name__)" in module.text else {}


def defining_module(module: str, name: str) -> str:
    """The module that defines a name: `module` itself, unless it is a face of the engine."""
    return _faces().get(module, {}).get(name, module)


@functools.cache
def _faces() -> dict[str, dict[str, str]]:
    return {module.name: face_names(module) for module in modules("spark_jobs/engine")}


def _types_only(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _absolute(module: Module, node: ast.ImportFrom) -> str:
    if not node.level:
        return _sibling(module, node.module or "")
    package = module.name.split(".") if module.is_package else module.name.split(".")[:-1]
    kept = package[: len(package) - (node.level - 1)]
    return ".".join([*kept, *([node.module] if node.module else [])])


def _sibling(module: Module, name: str) -> str:
    """Airflow puts the DAG folder itself on the path: there a bare name is a neighbour's."""
    neighbour = f"dags.{name}"
    return neighbour if module.name.startswith("dags.") and neighbour in _product_names() else name


@functools.cache
def _product_names() -> frozenset[str]:
    return frozenset(module.name for module in modules())
