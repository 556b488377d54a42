"""The JSON Schema of source files, for editors and other programs. It is made of the same classes that read them."""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import sys
from collections.abc import Iterator
from typing import Any

from spark_jobs.sources.section import Section
from spark_jobs.sources.source import Source

DRAFT = "https://json-schema.org/draft/2020-12/schema"
_SIZES = {"string": "minLength", "array": "minItems", "object": "minProperties"}
_LIMITS = """
`tidemark check` also tests conditions that no schema has: that a name is declared elsewhere in the file (a key, a
column of an aggregate, a timeline), that keys go together (a `limit` only beside `reemit`, a `format` only of a time),
that an aggregate, a trigger or a format of files exists and takes these arguments (teams have their own), and that no
other source has the name of a table.
"""


def json_schema() -> dict[str, Any]:
    """The schema of a source file, as JSON Schema of 2020-12."""
    schema = Source.model_json_schema(by_alias=True)
    _describe(schema)
    for part in _parts(schema):
        _tidy(part)
    return {"$schema": DRAFT, **schema, "title": "Source file of Tidemark", "$comment": " ".join(_LIMITS.split())}


def _describe(schema: dict[str, Any]) -> None:
    """Add the meanings of keys to a schema of pydantic's: the texts below the fields of the classes."""
    by_name = _readers()
    for name, part in ((Source.__name__, schema), *schema["$defs"].items()):
        meanings = key_meanings(by_name[name]) if name in by_name else {}
        for form in (part, *part.get("anyOf", ())):
            for key, value in form.get("properties", {}).items():
                if key in meanings:
                    value["description"] = meanings[key]


def _readers() -> dict[str, type[Section]]:
    """The classes that read parts of source files, by name."""
    classes: list[type[Section]] = [Section]
    for one in classes:
        classes += one.__subclasses__()
    return {one.__name__: one for one in classes}


def key_meanings(reader: type[Section]) -> dict[str, str]:
    """The meaning of each key that a class reads: the text below the field, its own or that of a class above it."""
    texts: dict[str, str] = {}
    for base in reversed(reader.__mro__):
        if issubclass(base, Section) and base is not Section:
            texts |= _texts_below_fields(base.__module__).get(base.__name__, {})
    return {field.alias or name: texts[name] for name, field in reader.model_fields.items() if name in texts}


@functools.cache
def _texts_below_fields(module: str) -> dict[str, dict[str, str]]:
    """The text below each field of each class of a module, by the names of class and field.

    They are read from the module's code, which Python does not keep. Without its file there are none.
    """
    try:
        code = inspect.getsource(sys.modules[module])
    except OSError:
        return {}
    classes = (node for node in ast.parse(code).body if isinstance(node, ast.ClassDef))
    return {each.name: dict(_texts_of(each)) for each in classes}


def _texts_of(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """Yield each field of a class that has a text below it, and the text."""
    for field, below in itertools.pairwise(node.body):
        match (field, below):
            case (ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text)))):
                yield name, " ".join(text.split())


def _parts(schema: Any) -> Iterator[dict[str, Any]]:
    """All schemas within a schema, itself included."""
    if isinstance(schema, dict):
        yield schema
        for inner in list(schema.values()):
            yield from _parts(inner)
    if isinstance(schema, list):
        for inner in schema:
            yield from _parts(inner)


def _tidy(part: dict[str, Any]) -> None:
    """Correct parts of pydantic's schema that describe values in the program, and not in the file."""
    if isinstance(part.get("properties"), dict):
        for field in part["properties"].values():
            # derived from the name, and a value in microseconds or of a whole part
            field.pop("title", None)
            if not isinstance(field.get("default"), str | bool):
                field.pop("default", None)
    if "patternProperties" in part:
        part["additionalProperties"] = False
    # `discriminator` is a word of OpenAPI
    part.pop("discriminator", None)
    least = part.pop("minLength", None) if "anyOf" in part else None
    for branch in part["anyOf"] if least is not None else ():
        if branch.get("type") in _SIZES:
            branch[_SIZES[branch["type"]]] = least
