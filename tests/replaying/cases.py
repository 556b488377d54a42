"""Case files: reading them, and refusing what is not of their form before anything is replayed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from tests.replaying.protocol import Json

ACCEPTED = object()
"""Stands for a step without `expect`: it must be accepted, whatever its result."""


class FormError(Exception):
    """A file can't be read or is not of the case files' form."""


@dataclass(frozen=True, slots=True)
class Step:
    """One call of an op; `expect` is ACCEPTED where the file has none."""

    op: str
    args: Mapping[str, Json]
    expect: Json


@dataclass(frozen=True, slots=True)
class Case:
    """A script of steps that starts from a new, empty implementation."""

    name: str
    tags: frozenset[str]
    steps: tuple[Step, ...]


def read_cases(path: Path) -> list[Case]:
    """The file's cases in order. Raises FormError."""
    try:
        content = json.loads(path.read_bytes().decode("utf-8"), parse_constant=_refuse_constant)
    except (OSError, ValueError, RecursionError) as error:
        raise FormError(f"{path}: expected a readable JSON file in UTF-8, found: {error}") from error
    if not isinstance(content, list):
        raise FormError(f"{path}: expected an array of cases, found {_kind(content)}")
    cases = [_case(fields, f"{path}: case {i}") for i, fields in enumerate(content)]
    names = [case.name for case in cases]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise FormError(f"{path}: expected each case's name once, found several of {', '.join(repeated)}")
    return cases


def _case(fields: Json, where: str) -> Case:
    name = _field(fields, "name", str, where)
    tags = _field(fields, "tags", list, where, default=[])
    if not all(isinstance(tag, str) for tag in tags):
        raise FormError(f"{where}: expected strings as tags, found {tags}")
    steps = _field(fields, "ops", list, where)
    return Case(name, frozenset(tags), tuple(_step(step, f"{where} step {i}") for i, step in enumerate(steps)))


def _step(fields: Json, where: str) -> Step:
    op = _field(fields, "op", str, where)
    args = _field(fields, "args", dict, where, default={})
    return Step(op, args, fields.get("expect", ACCEPTED))


def _field(fields: Json, name: str, kind: type, where: str, default: Any = ACCEPTED) -> Any:
    if not isinstance(fields, dict):
        raise FormError(f"{where}: expected an object, found {_kind(fields)}")
    value = fields.get(name, default)
    if value is ACCEPTED:
        raise FormError(f"{where}: expected a field `{name}`, found none")
    if not isinstance(value, kind):
        raise FormError(f"{where}: expected `{name}` to be of type {kind.__name__}, found {_kind(value)}")
    return value


def _kind(value: Json) -> str:
    return type(value).__name__


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
