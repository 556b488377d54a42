"""Calls as a source file writes them, `name(argument, …)`: aggregates of windows, triggers that close adaptive windows,
and triggers of early results."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, ClassVar, Literal

from pydantic import PrivateAttr, model_validator
from pydantic_core import PydanticCustomError

from spark_jobs.aggregates import AGGREGATES, Number, Signature
from spark_jobs.plugins.code import Plugin
from spark_jobs.plugins.folder import plugins
from spark_jobs.sources.problems import did_you_mean, refuse, refuse_in_words, show
from spark_jobs.sources.quantities import parse_size
from spark_jobs.sources.section import Section

CALL = re.compile(r"\s*([a-z_]+)\s*(?:\(([^()]*)\))?\s*")
_COLUMN = re.compile(r"[a-z][a-z0-9_]*")
_NUMBER = re.compile(r"\d+(\.\d+)?(e-?\d+)?")


def refuse_call(
    calls: Iterable[str], value: Any, call: tuple[str, list[str]] | None, names: Iterable[str]
) -> PydanticCustomError:
    """The refusal of a value that is none of `calls`; it suggests the nearest of `names`. `call`: the value's name and
    arguments, if it has the form of a call."""
    near = "" if call is None or call[0] in names else did_you_mean(call[0], names)
    return refuse_in_words(", ".join(calls), f"{show(value)}{near}")


def split_call(text: Any) -> tuple[str, list[str]] | None:
    """`name(a, b)` or `name` as a name and its arguments; None for anything else."""
    match = CALL.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        return None
    inside = (match[2] or "").strip()
    return match[1], [part.strip() for part in inside.split(",")] if inside else []


class ExtensibleCall(Section):
    """A call of a function that ships with Tidemark or that a plugin declares, with its columns and its numbers."""

    short_forms: ClassVar = ({"type": "string", "pattern": rf"^{CALL.pattern}$"},)
    has_long_form: ClassVar = False
    shipped: ClassVar[Collection[str]] = ()
    """The functions of this kind that ship."""

    function: str
    columns: tuple[str, ...] = ()
    numbers: tuple[float, ...] = ()
    _plugin: Plugin | None = PrivateAttr(default=None)

    @classmethod
    def plugins_by_function(cls) -> Mapping[str, Plugin]:
        """The plugins that declare functions of this kind, by function."""
        raise NotImplementedError

    def model_post_init(self, _: Any) -> None:
        """Keep the plugin in the call: the process that unpickles the call has no folder of plugins."""
        if self.function not in self.shipped:
            self._plugin = self.plugins_by_function()[self.function]

    @property
    def plugin(self) -> Plugin | None:
        """The team's plugin that has the function; None for one that ships with Tidemark."""
        return self._plugin


class AggregateCall(ExtensibleCall):
    """One aggregate of a window: a function of `AGGREGATES` or of a plugin, with its columns and its numbers."""

    shipped: ClassVar = AGGREGATES

    @classmethod
    def plugins_by_function(cls) -> Mapping[str, Plugin]:
        """The plugins that declare aggregates."""
        return plugins().aggregates

    @property
    def signature(self) -> Signature:
        """The signature of the function: its arguments, and the constructor that makes the aggregate."""
        return AGGREGATES[self.function] if self._plugin is None else self._plugin.aggregates()[self.function]

    @model_validator(mode="before")
    @classmethod
    def _accept_a_call(cls, value: Any) -> Any:
        call = split_call(value)
        of_team = plugins()
        signatures = {**AGGREGATES, **of_team.signatures}
        if call is None or call[0] not in signatures or "(" not in value:
            calls = [*(signature.call for signature in signatures.values()), *of_team.problems]
            raise refuse_call(calls, value, call, signatures)
        function, arguments = call
        return {"function": function, **read_arguments(signatures[function], arguments, value)}


def read_arguments(signature: Signature, arguments: list[str], value: Any) -> dict[str, Any]:
    """The `columns` and `numbers` of a call with these arguments; `value` is the call as the file has it.

    Raises:
        PydanticCustomError: the arguments do not fit the signature.
    """
    columns = [argument for argument in arguments if _COLUMN.fullmatch(argument)]
    numbers = arguments[len(columns) :]
    if columns != arguments[: len(columns)] or not _fits(signature, columns, numbers):
        raise refuse(_describe_signature(signature), value)
    return {"columns": tuple(columns), "numbers": tuple(float(n) for n in numbers)}


def _fits(signature: Signature, columns: list[str], numbers: list[str]) -> bool:
    if len(columns) < signature.least or (signature.most is not None and len(columns) > signature.most):
        return False
    if not len(signature.numbers) - signature.optional <= len(numbers) <= len(signature.numbers):
        return False
    return all(_is_within(text, number) for text, number in zip(numbers, signature.numbers, strict=False))


def _is_within(text: str, number: Number) -> bool:
    if not _NUMBER.fullmatch(text) or (number.whole and not text.isdecimal()):
        return False
    value = float(text)
    return number.least <= value <= number.most and not 0 < value < number.finest


def _describe_signature(signature: Signature) -> str:
    bounds = ", ".join(
        f"{number.name} {'a whole number ' if number.whole else ''}from {number.least:g} to {number.most:g}"
        for number in signature.numbers
    )
    optional = f" (the last {signature.optional} may be left out)" if signature.optional else ""
    return f"{signature.call}{', with ' + bounds if bounds else ''}{optional}"


TRIGGERS: Mapping[str, str] = {
    "time": "time",
    "count": "count(rows)",
    "size": "size(bytes)",
    "rate_change": "rate_change(share)",
    "memory_pressure": "memory_pressure(share)",
}
"""The triggers that may close an adaptive window, by name, each as a source file writes it."""


class TriggerCall(Section):
    """A trigger that closes an adaptive window, and the threshold from which it does so (`time` has none)."""

    short_forms: ClassVar = ({"type": "string", "pattern": rf"^\s*({'|'.join(TRIGGERS)})\s*(\([^()]*\))?\s*$"},)
    has_long_form: ClassVar = False

    reason: Literal["time", "count", "size", "rate_change", "memory_pressure"]
    threshold: float = 0.0

    @model_validator(mode="before")
    @classmethod
    def _accept_a_call(cls, value: Any) -> Any:
        call = split_call(value)
        if call is None or call[0] not in TRIGGERS:
            raise refuse_call(TRIGGERS.values(), value, call, TRIGGERS)
        reason, arguments = call
        return {"reason": reason, "threshold": _threshold(reason, arguments, value)}


def _threshold(reason: str, arguments: list[str], value: Any) -> float:
    if reason == "time" and not arguments:
        return 0.0
    if reason == "memory_pressure" and not arguments:
        return 0.95
    argument = arguments[0] if len(arguments) == 1 and reason != "time" else ""
    if reason == "size" and argument:
        return float(parse_size(int(argument) if argument.isdecimal() else argument))
    if reason == "count" and argument.isdecimal() and int(argument) >= 1:
        return float(argument)
    share = float(argument) if _NUMBER.fullmatch(argument) else 0.0
    if (reason == "rate_change" and share > 0) or (reason == "memory_pressure" and 0 < share <= 1):
        return share
    raise refuse(
        "time, count(rows) of 1 row or more, size(bytes) such as size(1 MiB), rate_change(share) above 0,"
        " memory_pressure(share) above 0 and at most 1",
        value,
    )
