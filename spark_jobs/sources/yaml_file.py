"""Safe reading of YAML: no tags, no duplicate keys, only text keys; anything else is a problem with its line."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import yaml

from spark_jobs.sources.problems import Problem

_LARGEST_FILE = 1 << 20  # characters: a source file is written by hand, and is smaller than that
_PYTHON_ONLY = frozenset("&!?\t")
"""Signs of which libyaml takes more than the parser in Python: anchors of aliases, tags, keys with a sign, tabs."""


class _Checks:
    """Methods of a loader that collect duplicate keys and keys that are no text."""

    problems: list[Problem]

    def construct_yaml_timestamp(self, node: Any) -> Any:
        """A date as YAML reads it. A date that does not exist stays text, so that its field is refused."""
        try:
            return super().construct_yaml_timestamp(node)  # type: ignore[misc]
        except ValueError:
            return node.value

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)  # type: ignore[attr-defined]
            line = key_node.start_mark.line + 1
            if not isinstance(key, str):
                text = key_node.value if isinstance(key_node.value, str) else "a collection"
                self.problems.append(
                    Problem("", "text as keys (quote a key that YAML reads otherwise)", f"{text} in line {line}")
                )
            elif key in seen:
                self.problems.append(Problem("", "every key once", f"`{key}` again in line {line}"))
            seen.add(key if isinstance(key, Hashable) else id(key))
        mapping: dict[Hashable, Any] = super().construct_mapping(node, deep)  # type: ignore[misc]
        return mapping


class _QuickLoader(_Checks, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """A loader with libyaml's parser, which takes a tenth of the time; the parser in Python where there is none."""


class _Loader(_Checks, yaml.SafeLoader):
    """A loader that says where a text is no YAML, and refuses aliases: they can grow without end."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()
            raise yaml.YAMLError(f"the alias *{event.anchor} in line {event.start_mark.line + 1}")
        return super().compose_node(parent, index)


_QuickLoader.add_constructor("tag:yaml.org,2002:timestamp", _QuickLoader.construct_yaml_timestamp)
_Loader.add_constructor("tag:yaml.org,2002:timestamp", _Loader.construct_yaml_timestamp)  # type: ignore[type-var]


def read_yaml(text: str) -> tuple[Any, list[Problem]]:
    """The document in `text`, and the problems of its form. The document is None if it is too large or no YAML."""
    if len(text) > _LARGEST_FILE:
        return None, [Problem("", f"at most {_LARGEST_FILE} characters", f"{len(text)}")]
    if _PYTHON_ONLY.isdisjoint(text):
        try:
            return _read(_QuickLoader(text))
        except (yaml.YAMLError, ValueError, RecursionError):
            pass  # the other loader words the error
    try:
        return _read(_Loader(text))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        return None, [Problem("", "valid YAML without aliases and tags", " ".join(str(error).split()))]


def _read(loader: Any) -> tuple[Any, list[Problem]]:
    loader.problems = []
    try:
        return loader.get_single_data(), loader.problems
    finally:
        loader.dispose()
