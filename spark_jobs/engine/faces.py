"""The machinery of a face: a package whose `__init__` offers names of its modules and imports a module at first use.

A face lists its names twice: in an `if TYPE_CHECKING:` block, from which a type checker and `lazy_names` learn their
modules, and in `__all__`. So `from spark_jobs.engine.records import ERASED` imports the module of `ERASED` alone, and
not numba, which other names of the same face need.
"""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any


def lazy_names(face: str) -> Callable[[str], Any]:
    """The `__getattr__` of a face: it imports the module of a name and keeps the name's value in the face.

    Args:
        face: the `__name__` of the package.
    """

    @functools.cache
    def places() -> dict[str, str]:
        # `inspect.getsource` would ask the face for names, and so this function again
        loader: Any = sys.modules[face].__loader__
        return modules_of_names(loader.get_source(face))

    def load(name: str) -> Any:
        if name.startswith("__") or name not in places():
            raise AttributeError(f"module {face!r} has no attribute {name!r}")
        value = getattr(import_module(places()[name]), name)
        setattr(sys.modules[face], name, value)
        return value

    return load


def modules_of_names(source: str) -> dict[str, str]:
    """The module of each name that a face's source imports in its `if TYPE_CHECKING:` block."""
    blocks = [node for node in ast.parse(source).body if isinstance(node, ast.If)]
    imports = [node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: node.module for node in imports if node.module for alias in node.names}
