"""The classes and suites of expectations that a team puts into a folder, loaded for Great Expectations."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from great_expectations import ExpectationSuite
    from great_expectations.expectations.expectation import Expectation

_LOADED: dict[Path, tuple[int, list[Any]]] = {}
"""Path of a Python file that this process has loaded -> the time of its last change (nanoseconds), and its suites."""


class OwnFileError(ValueError):
    """A file of the folder cannot be read; the text names the file."""


def names_any(folder: Path) -> bool:
    """True if the folder has a file of classes or suites. Imports nothing."""
    return any(_files(folder))


def read_suites(folder: Path) -> list[ExpectationSuite]:
    """The suites of all files. As a side effect, Great Expectations then knows the files' classes by name.

    Raises:
        OwnFileError: a file is not a suite, or importing it raises an error.
    """
    suites = []
    for path in _files(folder):
        try:
            suites += _of_python(path) if path.suffix == ".py" else [_of_json(path)]
        except Exception as error:
            raise OwnFileError(f"{path.name}: {type(error).__name__}: {error}") from error
    return suites


def expectation_of(name: str, arguments: dict[str, Any]) -> Expectation:
    """The expectation with these arguments, by the name of its class (`ExpectColumnValuesToBeUnique`) or of its type
    (`expect_column_values_to_be_unique`).

    Raises:
        ValueError: there is no such expectation, or its arguments do not fit; the text gives the reason.
    """
    from great_expectations.exceptions import ExpectationNotFoundError
    from great_expectations.expectations.registry import get_expectation_impl
    from great_expectations.util import camel_to_snake

    from expectations.exact_bounds import exact_kind

    try:
        kind = get_expectation_impl(camel_to_snake(name))
    except ExpectationNotFoundError:
        raise ValueError(f"Great Expectations has no {name}, nor has a file of your own") from None
    expectation: Expectation = exact_kind(kind, arguments)(**arguments)
    return expectation


def _files(folder: Path) -> list[Path]:
    paths = folder.iterdir() if folder.is_dir() else []
    return sorted(path for path in paths if path.suffix in (".py", ".json") and path.name[0] not in "._")


def _of_json(path: Path) -> ExpectationSuite:
    from great_expectations import ExpectationSuite

    document = json.loads(path.read_text(encoding="utf-8"))
    kept = {key: document[key] for key in ("name", "expectations", "meta", "notes") if document.get(key) is not None}
    return ExpectationSuite(**kept)


def _of_python(path: Path) -> list[Any]:
    from expectations.distinct_values import forget_lookups

    changed = path.stat().st_mtime_ns
    if path not in _LOADED or _LOADED[path][0] != changed:
        name = f"tidemark_own_expectations_{path.stem}"
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None, "a file that ends with .py has a loader"
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        forget_lookups()
        spec.loader.exec_module(module)
        _LOADED[path] = changed, list(getattr(module, "SUITES", []))
    return _LOADED[path][1]
