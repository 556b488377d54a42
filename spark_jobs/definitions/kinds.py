"""From a window of a source file to the kernel's kind; times in microseconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from spark_jobs.definitions.calls import attributing_to_plugin, plain_numbers
from spark_jobs.engine.windows import (
    AdaptiveKind,
    Calendar,
    Cuts,
    Deltas,
    EarlyTrigger,
    EmissionsKind,
    FiringRules,
    Hopping,
    OwnTrigger,
    Sessions,
    Sliding,
    Trigger,
    TriggerRows,
    WindowKind,
)
from spark_jobs.sources.emissions import EarlyTriggerCall, EmissionsWindow
from spark_jobs.sources.quantities import SECOND_US
from spark_jobs.sources.windows import (
    AdaptiveWindow,
    CalendarWindow,
    EmittingWindow,
    HoppingWindow,
    SessionWindow,
    SlidingWindow,
    TumblingWindow,
    Window,
)

DELTAS = Deltas("delta_id", "vector", "size", unique=True)
"""The columns of a worker's table that describe the rows of adaptive windows. Only one of the rows with the same id
lands."""


def kind_of(window: Window | EmissionsWindow) -> WindowKind:
    """The kernel's kind of windows for a window of a source file, or for its emissions."""
    match window:
        case AdaptiveWindow():
            return AdaptiveKind(_cuts(window), DELTAS)
        case EmissionsWindow():
            rules = FiringRules(tuple(map(_early_trigger, window.triggers)), SECOND_US)
            return EmissionsKind(_spans_of(window.of), rules, DELTAS.size_bytes if rules.measures_size else None)
        case _:
            return _spans_of(window)


def _spans_of(window: EmittingWindow) -> Sliding | Sessions | Hopping | Calendar:
    match window:
        case SlidingWindow():
            return Sliding(window.size_us, window.clip_at_zero, tick=window.tick_us)
        case SessionWindow():
            return Sessions(window.gap_us)
        case TumblingWindow():
            return Hopping(window.size_us, window.size_us, window.offset_us)
        case HoppingWindow():
            return Hopping(window.size_us, window.advance_us, window.offset_us)
        case CalendarWindow():
            return Calendar(*window.period, window.zone)
        case _:
            raise TypeError(f"{type(window).__name__} is no kind of a source file")


def _early_trigger(call: EarlyTriggerCall) -> Trigger | OwnTrigger:
    """The kernel's trigger of early results for one of a source file."""
    if call.plugin is not None:
        return OwnTrigger(call.function, _PluginTrigger(call))
    threshold, *over = call.numbers
    return Trigger(call.function, threshold, *map(int, over))


@dataclass(frozen=True)
class _PluginTrigger(EarlyTrigger):
    """A team's own trigger, whose errors name its file. It is constructed where it is asked, since a process that
    unpickles it can't import its class."""

    call: EarlyTriggerCall

    def fires(self, rows: TriggerRows) -> Any:
        """The answer of the team's trigger."""
        call = self.call
        assert call.plugin is not None, "the caller looks whether it is a plugin's"
        with attributing_to_plugin(call):
            construct = call.plugin.trigger_constructor(call.function)
            signature = call.plugin.triggers()[call.function]
            numbers = plain_numbers(call.numbers, [number.whole for number in signature.numbers])
            trigger: EarlyTrigger = construct(*(f"v_{column}" for column in call.columns), *numbers)
            return trigger.fires(rows)


def _cuts(window: AdaptiveWindow) -> Cuts:
    triggers = window.triggers
    chosen = (
        (Trigger("time"), Trigger("count", window.target_batch_size), Trigger("memory_pressure", 0.95))
        if triggers is None
        else tuple(Trigger(trigger.reason, trigger.threshold) for trigger in triggers)
    )
    return Cuts(
        target=window.target_batch_size,
        shortest=window.min_us,
        longest=window.max_us,
        reset=window.reset_us,
        triggers=chosen,
        memory_bytes=window.memory.max_bytes,
        rate_unit=SECOND_US,
        rate_window=window.rate_window_us,
    )
