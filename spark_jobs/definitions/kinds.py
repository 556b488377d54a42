"""From a window of a source file to the kernel's kind; times in microseconds."""

from __future__ import annotations

from typing import assert_never

from spark_jobs.engine.windows import (
    AdaptiveKind,
    Calendar,
    Cuts,
    Deltas,
    Hopping,
    Sessions,
    Sliding,
    Trigger,
    WindowKind,
)
from spark_jobs.sources.quantities import SECOND_US
from spark_jobs.sources.windows import (
    AdaptiveWindow,
    CalendarWindow,
    HoppingWindow,
    SessionWindow,
    SlidingWindow,
    TumblingWindow,
    Window,
)

DELTAS = Deltas("delta_id", "vector", "size", unique=True)
"""The columns of a worker's table that describe the rows of adaptive windows. Only one of the rows with the same id
lands."""


def kind_of(window: Window) -> WindowKind:
    """The kernel's kind of windows for a window of a source file."""
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
        case AdaptiveWindow():
            return AdaptiveKind(_cuts(window), DELTAS)
        case _:
            assert_never(window)


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
    )
