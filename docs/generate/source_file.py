"""The page of the keys of a source file, made of the JSON Schema that `tidemark schema` prints.

A part of the file (the file itself, `landing`, a window of one kind, …) is a section with a table of its keys.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from docs.generate.key_values import Schema, default_of, references, value_of
from docs.generate.markdown import anchored_code, as_sentence, code, paragraphs, prose, section, table, whole_page
from spark_jobs.sources.schema import json_schema
from spark_jobs.sources.source import Source

_INTRODUCTION = """
A source is a YAML file in the folder that [`TIDEMARK_SOURCES`](settings.md#tidemark_sources) names. `tidemark check`
says whether it is right; `tidemark schema` prints the JSON Schema of which this page is made, for editors. A duration
is a number and a unit, such as `90 min`, `6 hours` or `1 h 30 min`; a size is a number of bytes, or one with a unit,
such as `64 KiB`. [Source files, kind by kind](source-files.md) shows what each part makes of rows.
"""
_HEADERS = ("key", "value", "default", "meaning")
TEXTS = {
    "the-file": "The keys of the file itself.",
    "windows-aggregates": "A call of a function, with its columns and its numbers. The functions are [those of every"
    " kind](source-files.md#what-every-kind-has), and those of plugins.",
    "windows-triggers": "A call of a trigger that lets a window emit an"
    " [early result](source-files.md#early-results): one of `time(10 min)`, `count(100)`, `size(1 MiB)` and"
    " `rate_change(0.5, 10 min)`, or one of a plugin.",
}
"""Texts of sections, in Markdown, in place of docstrings that are about the program."""


@dataclass(frozen=True)
class FilePart:
    """A part of a source file: its place in the file, its kind if its place has several, and its schema.

    Attributes:
        raw: the schema before defaults were removed that only the program understands.
        classes: the classes that read it, of which docstrings say what its keys mean.
        shared: keys that all kinds of this place have alike; a section of their own lists them.
    """

    place: str
    kind: str
    schema: Schema
    raw: Schema
    classes: tuple[str, ...] = ()
    shared: frozenset[str] = frozenset()

    @property
    def anchor(self) -> str:
        """The anchor of its section, such as `windows-late`, or `landing-files` of a kind."""
        words = [word for word in self.place.split(".") if word and not word.startswith("<")]
        return "-".join([*words, *([self.kind] if self.kind else [])]) or "the-file"

    def keys(self) -> dict[str, tuple[Schema, Any]]:
        """The schema of each key that its section lists, and the key's default as the program has it."""
        pairs = zip([self.schema, *self.schema.get("anyOf", [])], [self.raw, *self.raw.get("anyOf", [])], strict=True)
        return {
            key: (schema, raw["properties"][key].get("default"))
            for part, raw in pairs
            for key, schema in part.get("properties", {}).items()
            if key not in self.shared
        }

    def required_keys(self) -> set[str]:
        """The keys that must be there."""
        return {key for part in [self.schema, *self.schema.get("anyOf", [])] for key in part.get("required", [])}


def page() -> str:
    """The page, with a section for each part."""
    return whole_page("Source file", _INTRODUCTION.strip(), *map(_section, parts()))


@functools.cache
def parts() -> list[FilePart]:
    """All parts that have keys or a text, in the order of the file, each once."""
    schema, raw = json_schema(), Source.model_json_schema(by_alias=True)
    listed = [FilePart("", "", schema, raw, (Source.__name__,))]
    seen: set[str] = set()
    for part in listed:
        for place, names in _inner(part):
            new = [name for name in names if name not in seen]
            seen.update(new)
            inner = _parts_of(place, {name: (schema["$defs"][name], raw["$defs"][name]) for name in new})
            # kinds may have different parts at one place, as windows have triggers: a later one is that of its kind
            taken = any(each.place == place for each in listed)
            listed += [replace(each, kind=part.kind) if taken and not each.kind else each for each in inner]
    return listed


def _inner(part: FilePart) -> Iterator[tuple[str, list[str]]]:
    """Yield the place and the definitions of each part within a part."""
    for key, (schema, _) in part.keys().items():
        for suffix, names in references(schema):
            yield f"{part.place}.{key}{suffix}".strip("."), names
    if not part.keys():
        yield from ((f"{part.place}{suffix}", names) for suffix, names in references(part.schema))


def _parts_of(place: str, definitions: dict[str, tuple[Schema, Schema]]) -> list[FilePart]:
    """The parts at one place. Where it has several kinds, the keys that all of them have alike come first."""
    if len(definitions) < 2:
        return [FilePart(place, "", schema, raw, (name,)) for name, (schema, raw) in definitions.items()]
    shared = _shared_keys([raw for _, raw in definitions.values()])
    schema, raw = next(iter(definitions.values()))
    of_all = FilePart(place, "", _restrict(schema, shared), _restrict(raw, shared), tuple(definitions))
    kinds = [
        FilePart(place, _kind(schema), schema, raw, (name,), shared) for name, (schema, raw) in definitions.items()
    ]
    return [of_all, *kinds] if shared else kinds


def _shared_keys(schemas: list[Schema]) -> frozenset[str]:
    """The keys that every schema has in the same form."""
    forms = [{(key, json.dumps(of_key, sort_keys=True)) for key, of_key in s["properties"].items()} for s in schemas]
    return frozenset(key for key, _ in set.intersection(*forms))


def _restrict(schema: Schema, keys: frozenset[str]) -> Schema:
    """A schema with these keys alone, and without a text of its own."""
    properties = {key: of_key for key, of_key in schema["properties"].items() if key in keys}
    return {"properties": properties, "required": [key for key in schema.get("required", []) if key in keys]}


def _kind(schema: Schema) -> str:
    kind = schema["properties"]["kind"]
    return str(kind.get("const") or kind["enum"][0])


def _section(part: FilePart) -> str:
    rows = [_row(part, key) for key in sorted(part.keys(), key="kind".__ne__)]
    about = TEXTS.get(part.anchor) or paragraphs(part.schema.get("description", ""))
    return section(2, f"{_heading(part)} {{#{part.anchor}}}", about, _short_form(part), table(_HEADERS, rows))


def _short_form(part: FilePart) -> str:
    """The values that the part may have in place of a mapping of keys, or that it has to have if it has no keys."""
    forms = [form for form in part.schema.get("anyOf", []) if "properties" not in form]
    values = " or ".join(dict.fromkeys(value_of(form, _anchors()) for form in forms))
    if not values:
        return ""
    return f"In place of the keys: {values}." if part.keys() else f"Value: {values}."


def _heading(part: FilePart) -> str:
    if not part.place:
        return "The file"
    if part.kind:
        return f"{code(part.place)}, `kind: {part.kind}`"
    several = "properties" in part.schema and "description" not in part.schema
    return f"{code(part.place)}, of every kind" if several else code(part.place)


def _row(part: FilePart, key: str) -> list[str]:
    schema, raw_default = part.keys()[key]
    default = "required" if key in part.required_keys() else default_of(schema, raw_default)
    of_kind = "The kind, as in the heading." if key == "kind" else ""
    text = schema.get("description") or of_kind or _meaning_of_part(schema)
    name = anchored_code(key, f"{part.anchor}.{key}")
    return [name, value_of(schema, _anchors()), default, as_sentence(prose(text)) if text else ""]


def _meaning_of_part(schema: Schema) -> str:
    """The first sentence about the part that a key refers to."""
    names = [name for _, several in references(schema) for name in several]
    about = json_schema()["$defs"][names[0]].get("description", "") if len(names) == 1 else ""
    return str(about.partition("\n\n")[0])


@functools.cache
def _anchors() -> dict[str, str]:
    """Definition -> the anchor of its section; of definitions that are kinds of one place, the anchor of the first."""
    definitions = json_schema()["$defs"]
    return {name: part.anchor for name, schema in definitions.items() for part in parts() if part.schema == schema}
