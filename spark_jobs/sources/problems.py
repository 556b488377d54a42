"""Problems of a source file: all at once, each with its field, the expected and the found value."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from pydantic import ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from spark_jobs.errors import ConfigurationError, ParameterError

_LONGEST_VALUE = 80


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem of a source file.

    `path` is the field's place in the file, dots between keys (`windows.rotations.gap`), empty for the whole file.
    """

    path: str
    expected: str
    found: str

    def __str__(self) -> str:
        return f"{self.path or 'the file'}: expected {self.expected}, found {self.found}"


class SourceFileError(ConfigurationError):
    """A source file cannot be used. Fact `problems`: all of them, each `{"path", "expected", "found"}`."""

    code = "source_file"
    problems: list[dict[str, str]]
    file: str

    def __init__(self, file: str, problems: Iterable[Problem]) -> None:
        listed = list(problems)
        lines = "".join(f"\n  - {problem}" for problem in listed)
        super().__init__(
            expected=f"a source file without problems in {file}",
            found=f"{len(listed)} problem{'s' if len(listed) != 1 else ''}:{lines}\n",
            consequence="nothing ran",
            next_step="correct the fields above; every problem of the file is listed",
            file=file,
            problems=[asdict(problem) for problem in listed],
        )


def join_path(*parts: str) -> str:
    """Join path parts with dots, leaving out the empty ones."""
    return ".".join(part for part in parts if part)


def show(value: Any) -> str:
    """`value` as text for a problem, cut to a line; of a mapping only the keys."""
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return f"a mapping with the keys {', '.join(map(str, value)) or '(none)'}"[:_LONGEST_VALUE]
    text = repr(value)
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 1] + "…"


def refuse(expected: str, found: Any) -> PydanticCustomError:
    """The error that a validator raises for a value `found`; it becomes a `Problem` at the validated field."""
    return refuse_in_words(expected, show(found))


def refuse_in_words(expected: str, found: str) -> PydanticCustomError:
    """Like `refuse`, but `found` is a phrase, not a value of the file."""
    return PydanticCustomError("refused", "expected {expected}, found {found}", {"expected": expected, "found": found})


def all_of(title: str, problems: Iterable[tuple[str, PydanticCustomError]]) -> ValidationError:
    """The error that a validator raises for several problems at once, each with the field that has it."""
    lines = [InitErrorDetails(type=problem, loc=(field,), input=None) for field, problem in problems]
    return ValidationError.from_exception_data(title, lines)


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """` (did you mean …?)` with the nearest of `names`; empty if none is near."""
    near = difflib.get_close_matches(name, list(names), n=1, cutoff=0.6)
    return f" (did you mean `{near[0]}`?)" if near else ""


def unknown_name(
    name: str, names: Iterable[str], *, expected: str, next_step: str, consequence: str = "nothing was changed"
) -> ParameterError:
    """The refusal of a name that is not among `names`; it suggests the nearest of them."""
    finding = f"{name!r}{did_you_mean(name, names)}"
    return ParameterError(expected=expected, found=finding, consequence=consequence, next_step=next_step)


def name_problem(path: str, kind: str, name: str, known_names: Iterable[str]) -> Problem:
    """The problem of a `name` that is not among `known_names`, the names of things of this `kind`."""
    names = sorted(known_names)
    listed = ", ".join(names) if names else "none is declared"
    return Problem(path, f"the name of a {kind} ({listed})", f"{name!r}{did_you_mean(name, names)}")


def from_validation(error: ValidationError, document: Any) -> list[Problem]:
    """The problems behind a pydantic error about `document`; paths name keys of the file, not of pydantic's unions."""
    return [_from_line(line, document) for line in error.errors(include_url=False)]


def _from_line(line: Any, document: Any) -> Problem:
    path = _path_in(document, line["loc"], missing=line["type"] == "missing")
    context = line.get("ctx", {})
    if line["type"] == "refused":
        return Problem(path, context["expected"], context["found"])
    if line["type"] == "missing":
        return Problem(path, "this key to be given", "nothing")
    if line["type"] == "union_tag_not_found":
        return Problem(join_path(path, "kind"), "this key to be given", "nothing")
    if line["type"] == "union_tag_invalid":
        return _unknown_word(join_path(path, "kind"), f"one of {context['expected_tags']}", context["tag"])
    if line["type"] == "literal_error":
        return _unknown_word(path, context["expected"], line["input"])
    expected = line["msg"].removeprefix("Input should be ").removeprefix("Value error, ")
    return Problem(path, expected, show(line["input"]))


def _unknown_word(path: str, expected: str, word: Any) -> Problem:
    """The problem of a value that is not one of the quoted words in `expected`."""
    near = did_you_mean(word, re.findall("'([^']+)'", expected)) if isinstance(word, str) else ""
    return Problem(path, expected, f"{show(word)}{near}")


def _path_in(document: Any, location: tuple[int | str, ...], *, missing: bool) -> str:
    parts: list[str] = []
    node = document
    for index, key in enumerate(location):
        in_list = isinstance(node, list) and isinstance(key, int) and key < len(node)
        if in_list or (isinstance(node, dict) and key in node):
            node = node[key]
            parts.append(str(key))
        elif missing and index == len(location) - 1:
            parts.append(str(key))
    return ".".join(parts)
