"""The error tree. Every refusal has four parts: the expected, the found, the consequence and the next step.

A refusal is part of the API: `code` never changes once released, and each fact is an attribute. Callers branch on
`code` (or on the class), people read the sentence, programs read `as_json()`.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar


class TidemarkError(Exception):
    """A refusal or failure with a stable `code` and named facts.

    Args:
        expected: the condition or value that would have been accepted.
        found: the condition or value found instead.
        consequence: the work that was or was not done because of it; by default nothing was changed.
        next_step: the action that the reader can take now.
        facts: values that programs may read; each becomes an attribute of the error.
    """

    code: ClassVar[str] = "tidemark_error"

    def __init__(
        self, *, expected: str, found: str, consequence: str = "nothing was changed", next_step: str = "", **facts: Any
    ) -> None:
        self.expected, self.found, self.consequence, self.next_step = expected, found, consequence, next_step
        self.facts = facts
        for name, value in facts.items():
            setattr(self, name, value)
        super().__init__(self.sentence())

    def sentence(self) -> str:
        """The one-line message that people read."""
        parts = [f"{self.code}: expected {self.expected}, found {self.found}"]
        if self.consequence:
            parts.append(self.consequence)
        if self.next_step:
            parts.append(self.next_step)
        return "; ".join(parts)

    def as_json(self) -> dict[str, Any]:
        """The error as `{"code": …, fact: value, …}`, the form in which case files expect a refusal."""
        return {"code": self.code, **self.facts}


class ConfigurationError(TidemarkError):
    """A setting, source file or parameter is wrong; found before anything ran."""

    code = "configuration"


class ParameterError(ConfigurationError):
    """A parameter of a public function is outside the values that the function accepts; found before a job starts."""

    code = "parameter"


_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_]*)((?:\.[A-Z0-9_]+)*)\]")


def conditions_in(text: str) -> frozenset[str]:
    """The conditions that Spark and Delta name in the text of an error.

    For `[FAILED_JDBC.CONNECTION] …` they are `FAILED_JDBC` and `FAILED_JDBC.CONNECTION`. Spark Connect, JDBC and dbt
    all keep the text of an error, but not all of them keep its class."""
    return frozenset(name for match in _CONDITION.finditer(text) for name in (match[1], match[1] + match[2]))


def first_condition(text: str) -> str | None:
    """The first condition that the text of an error names, with its subclass; None if it names none."""
    match = _CONDITION.search(text)
    return None if match is None else match[1] + match[2]
