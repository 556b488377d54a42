"""The JSON Schema of source files, for editors and other programs. It is made of the same classes that read them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from spark_jobs.sources.source import Source

DRAFT = "https://json-schema.org/draft/2020-12/schema"
_SIZES = {"string": "minLength", "array": "minItems", "object": "minProperties"}
_LIMITS = """
`tidemark check` also tests conditions that no schema has: that a name is declared elsewhere in the file (a key, a
column of an aggregate, a timeline), that keys go together (a `limit` only beside `reemit`, a `format` only of a time),
that an aggregate or a format of files exists and takes these arguments (teams have their own), and that no other
source has the name of a table.
"""


def json_schema() -> dict[str, Any]:
    """The schema of a source file, as JSON Schema of 2020-12."""
    schema = Source.model_json_schema(by_alias=True)
    for part in _parts(schema):
        _tidy(part)
    return {"$schema": DRAFT, **schema, "title": "Source file of Tidemark", "$comment": " ".join(_LIMITS.split())}


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
