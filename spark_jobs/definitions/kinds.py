"""From a window of a source file to the kernels' terms: its shape, how it lies in time, how keys are cut."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from spark_jobs.kernels.geometry import (
    CalendarGeometry,
    CellGeometry,
    Geometry,
    GridGeometry,
    SessionGeometry,
    SlidingGeometry,
)
from spark_jobs.kernels.windows import Calendar, Cuts, Hopping, Sessions, Shape, Sliding, Trigger
from spark_jobs.sources.quantities import DAY_US, SECOND_US
from spark_jobs.sources.windows import (
    AdaptiveWindow,
    CalendarWindow,
    HoppingWindow,
    SessionWindow,
    SlidingWindow,
    TumblingWindow,
    Window,
)

_FEWEST_SPANS, _ENOUGH_SPANS = 8, 24
"""A slice is at least so many spans long: a row in the halo is worked on twice, so longer slices cost less. From enough
spans on it is kept short instead, within a day, since a worker holds a slice of a key."""
_LEAST_SLICE_US = 3600 * SECOND_US
_LONGEST_DAYS = {"day": 1, "week": 7, "month": 31, "quarter": 92, "year": 366}


@dataclass(frozen=True)
class Kind:
    """One definition's windows: what the kernels take (a shape, or the cuts of adaptive windows)."""

    shape: Shape | None
    cuts: Cuts | None
    geometry: Geometry

    @property
    def slice_us(self) -> int | None:
        """The length of the slices that keys are cut into, so that no worker holds a hot key; None: sessions."""
        if self.geometry.halo is None:
            return None
        if self.cuts is not None:
            return self.cuts.reset
        span = self.geometry.span
        return max(_FEWEST_SPANS * span, min(_ENOUGH_SPANS * span, DAY_US), _LEAST_SLICE_US)

    def changed_by(self, start: str, end: str) -> tuple[str, str]:
        """`geometry.changed_by` as SQL, of SQL of a window's bounds in microseconds."""
        match self.geometry:
            case SlidingGeometry():
                return f"{start} - 1", end
            case SessionGeometry(gap):
                return f"{start} - {gap}L", f"{end} + {gap}L"
            case CellGeometry(reset):
                cell = f"({start} - pmod({start}, {reset}L))"
                return cell, f"{cell} + {reset - 1}L"
            case _:
                return start, f"{end} - 1"


def kind_of(window: Window) -> Kind:
    """What a window of a source file is to the kernels; times in microseconds, not clipped at 0."""
    match window:
        case SlidingWindow():
            return Kind(Sliding(window.size_us, clip_at_zero=False), None, SlidingGeometry(window.size_us))
        case SessionWindow():
            return Kind(Sessions(window.gap_us), None, SessionGeometry(window.gap_us))
        case TumblingWindow():
            return _grid(window.size_us, window.size_us, window.offset_us)
        case HoppingWindow():
            return _grid(window.size_us, window.advance_us, window.offset_us)
        case CalendarWindow():
            count, unit = window.period
            calendar = Calendar(count, unit, window.zone)
            # clocks have gone back by as much as a day
            longest = (count * _LONGEST_DAYS[unit] + 1) * DAY_US
            return Kind(calendar, None, CalendarGeometry(calendar, longest))
        case AdaptiveWindow():
            return Kind(None, _cuts(window), CellGeometry(window.reset_us))
        case _:
            assert_never(window)


def _grid(size_us: int, advance_us: int, offset_us: int) -> Kind:
    return Kind(Hopping(size_us, advance_us, offset_us), None, GridGeometry(size_us, advance_us, offset_us))


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
