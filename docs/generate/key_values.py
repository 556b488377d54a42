"""Values of keys in words: the values that a JSON Schema accepts, the parts that it refers to, and its defaults."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from docs.generate.markdown import code

Schema = dict[str, Any]
_UNITS = (("week", 604_800), ("day", 86_400), ("h", 3600), ("min", 60), ("s", 1))
_SIZES = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))
_SECOND = 1_000_000
_DURATION, _SIZE, _EVERY = "60 min", "1 MiB", "1 day"
"""The first examples by which the schema of a duration, of a size, and of the length of drops are recognised."""
_WORDS = {"string": "text", "integer": "integer", "number": "number", "boolean": "`true` or `false`"}
_BOUNDS = {"minimum": "at least {}", "exclusiveMinimum": "more than {}", "maximum": "at most {}"}


def references(schema: Schema) -> Iterator[tuple[str, list[str]]]:
    """Yield the definitions that a key's schema refers to, each with what follows the key: `.<name>` in a mapping."""
    names = [_name(branch) for branch in schema.get("oneOf", []) if "$ref" in branch]
    if names:
        yield "", names
    if "$ref" in schema:
        yield "", [_name(schema)]
    for branch in schema.get("anyOf", []):
        yield from references(branch)
    for inner in schema.get("patternProperties", {}).values():
        yield from ((f".<name>{suffix}", several) for suffix, several in references(inner))
    if isinstance(schema.get("items"), dict):
        yield from references(schema["items"])


def value_of(schema: Schema, anchors: dict[str, str]) -> str:
    """The values that a schema accepts. `anchors`: definition -> the anchor of its section."""
    if "$ref" in schema:
        return _link(_name(schema), anchors)
    if "oneOf" in schema:
        return "one of " + ", ".join(_link(_name(branch), anchors) for branch in schema["oneOf"])
    if "anyOf" in schema:
        branches = [value_of(branch, anchors) for branch in schema["anyOf"] if branch.get("type") != "null"]
        return "size" if "size" in branches else " or ".join(dict.fromkeys(branches))
    if "const" in schema:
        return code(schema["const"])
    if "enum" in schema:
        return ", ".join(code(value) for value in schema["enum"])
    return _of_type(schema, anchors)


def default_of(schema: Schema, raw: Any) -> str:
    """The default as a source file would write it. `raw`: the default as the program has it."""
    if "default" in schema:
        return code(_yaml(schema["default"]))
    if raw is None or raw in ([], {}):
        return ""
    if isinstance(raw, dict):
        return ""
    examples = _examples(schema)
    if isinstance(raw, int) and examples in (_DURATION, _EVERY):
        return code(_duration(raw))
    if isinstance(raw, int) and examples == _SIZE:
        return code(_size(raw))
    if isinstance(raw, float) and raw.is_integer():
        return code(str(int(raw)))
    return code(_yaml(raw))


def _of_type(schema: Schema, anchors: dict[str, str]) -> str:
    examples = _examples(schema)
    if examples in (_DURATION, _SIZE):
        return "duration" if examples == _DURATION else "size"
    if schema.get("type") == "array":
        inner = value_of(schema["items"], anchors) if schema.get("items") else "values"
        return f"list of {inner}" if inner != "text" else "list of texts"
    if schema.get("type") == "object":
        values = [value_of(each, anchors) for each in schema.get("patternProperties", {}).values()]
        return f"mapping of names, each to: {values[0]}" if values else "mapping"
    bounds = [text.format(schema[bound]) for bound, text in _BOUNDS.items() if bound in schema]
    such = ", such as " + ", ".join(map(code, schema["examples"])) if "examples" in schema else ""
    return ", ".join([_WORDS.get(schema.get("type", ""), "any value"), *bounds]) + such


def _examples(schema: Schema) -> str:
    """The first example of the schema, or of one of its branches; empty if there is none."""
    branches = [schema, *schema.get("anyOf", [])]
    return next((str(branch["examples"][0]) for branch in branches if "examples" in branch), "")


def _name(reference: Schema) -> str:
    return str(reference["$ref"]).rpartition("/")[2]


def _link(name: str, anchors: dict[str, str]) -> str:
    anchor = anchors[name]
    return f"[{anchor.replace('-', ' ')}](#{anchor})"


def _duration(microseconds: int) -> str:
    if microseconds == 0:
        return "0 s"
    for unit, seconds in _UNITS:
        if microseconds % (seconds * _SECOND) == 0:
            return f"{microseconds // (seconds * _SECOND)} {unit}"
    return f"{microseconds // 1000} ms" if microseconds % 1000 == 0 else f"{microseconds} us"


def _size(n_bytes: int) -> str:
    return next((f"{n_bytes // size} {unit}" for unit, size in _SIZES if n_bytes % size == 0), str(n_bytes))


def _yaml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) and value.strip(" ,.'_") else json.dumps(value)
