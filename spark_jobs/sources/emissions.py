"""Early results of windows, as a source file asks for them: `emit: early`, and the triggers that emit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import model_validator
from pydantic_core import PydanticCustomError

from spark_jobs.aggregates import Number, Signature
from spark_jobs.plugins.code import Plugin
from spark_jobs.plugins.folder import plugins
from spark_jobs.sources.calls import ExtensibleCall, read_arguments, refuse_call, split_call
from spark_jobs.sources.problems import refuse, refuse_in_words, show
from spark_jobs.sources.quantities import parse_duration, parse_size

if TYPE_CHECKING:
    from spark_jobs.sources.calls import AggregateCall
    from spark_jobs.sources.windows import EmittingWindow, Grace, Late

ENDING = "_emissions"
"""The ending of the name of a window's emissions."""
EARLY_TRIGGERS: Mapping[str, str] = {
    "time": "time(interval)",
    "count": "count(rows)",
    "size": "size(bytes)",
    "rate_change": "rate_change(share, over)",
}
"""The triggers of early results that ship, by name, each as a source file writes it."""
OWN_COLUMNS = ("emission", "trigger", "emitted_at")
"""The columns that only emissions have."""
_FORMS = (
    "time(interval) such as time(10 min), count(rows) of 1 row or more, size(bytes) such as size(1 MiB),"
    " rate_change(share, over) such as rate_change(0.5, 10 min)"
)
_SHARE = Signature("rate_change(share)", "", least=0, most=0, numbers=(Number("share", 0, 1e9),))
_MOST = 2**53
"""Greater thresholds could not be kept exactly."""


class EarlyTriggerCall(ExtensibleCall):
    """A trigger that lets a window emit an early result: one that ships, or one of a plugin.

    The `numbers` of `time` are microseconds; those of `rate_change` are the share, and microseconds.
    """

    shipped: ClassVar = EARLY_TRIGGERS

    @classmethod
    def plugins_by_function(cls) -> Mapping[str, Plugin]:
        """The plugins that declare triggers of early results."""
        return plugins().triggers

    @property
    def operands(self) -> frozenset[str] | None:
        """The types that the trigger's columns may have; None: any."""
        return None if self._plugin is None else self._plugin.triggers()[self.function].operands

    @model_validator(mode="before")
    @classmethod
    def _accept_a_call(cls, value: Any) -> Any:
        call, of_team = split_call(value), plugins()
        if call is not None and call[0] == "memory_pressure":
            raise refuse_in_words(
                "size(bytes), such as size(80 MiB): the memory that is free depends on the machine, and no result does",
                show(value),
            )
        names = [*EARLY_TRIGGERS, *of_team.triggers]
        if call is None or call[0] not in names or "(" not in value:
            calls = [*EARLY_TRIGGERS.values(), *(each.call for each in of_team.trigger_signatures.values())]
            raise refuse_call([*calls, *of_team.problems], value, call, names)
        function, arguments = call
        if function in of_team.triggers:
            return {"function": function, **read_arguments(of_team.trigger_signatures[function], arguments, value)}
        return {"function": function, "numbers": _thresholds(function, arguments, value)}


def _thresholds(function: str, arguments: list[str], value: Any) -> tuple[float, ...]:
    try:
        match function, arguments:
            case "time", [interval]:
                numbers: tuple[float, ...] = (parse_duration(interval),)
            case "count", [rows] if rows.isdecimal():
                numbers = (int(rows),)
            case "size", [size]:
                numbers = (parse_size(int(size) if size.isdecimal() else size),)
            case "rate_change", [share, over]:
                numbers = (*read_arguments(_SHARE, [share], value)["numbers"], parse_duration(over))
            case _:
                raise refuse(_FORMS, value)
    except PydanticCustomError:
        raise refuse(_FORMS, value) from None
    if not all(0 < number <= _MOST for number in numbers):
        raise refuse(_FORMS, value)
    return numbers


@dataclass(frozen=True)
class EmissionsWindow:
    """The emissions of a window that a source file asks for with `emit: early`: a table as that of the window, with a
    row for each early result and one for the result."""

    of: EmittingWindow
    kind = "emissions"

    @property
    def grace(self) -> Grace | None:
        """The grace of the window."""
        return self.of.grace

    @property
    def key(self) -> tuple[str, ...]:
        """The key of the window."""
        return self.of.key

    @property
    def time(self) -> str | None:
        """The timeline of the window; None for the primary one."""
        return self.of.time

    @property
    def aggregates(self) -> dict[str, AggregateCall]:
        """The aggregates of the window."""
        return self.of.aggregates

    @property
    def late(self) -> Late:
        """The policy for late rows of the window."""
        return self.of.late

    @property
    def keep_us(self) -> int | None:
        """The time after its end for which a window is kept; None: for ever."""
        return self.of.keep_us

    @property
    def triggers(self) -> tuple[EarlyTriggerCall, ...]:
        """The triggers, in list order."""
        return self.of.triggers
