"""The slow, obvious twin of adaptive windows: one row after another, each rate computed from all rows before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from spark_jobs.engine.windows.kinds.cuts import Cuts


@dataclass(frozen=True)
class NaiveAdaptiveRow:
    """One row of one key."""

    time: int
    delta: int
    size: int = 0
    min_end: int = -(2**63)


@dataclass
class NaiveAdaptiveWindow:
    """One window; `end` and `trigger` are valid once it is closed. `rate`: rows per rate unit at its first row."""

    start: int
    limit: int
    end: int = 0
    trigger: str = ""
    rate: float = 0.0
    rate_window: int = 0
    deltas: list[NaiveAdaptiveRow] = field(default_factory=list)


def adaptive(deltas: Sequence[NaiveAdaptiveRow], cuts: Cuts) -> list[NaiveAdaptiveWindow]:
    """The adaptive windows of one key, in order."""
    windows: list[NaiveAdaptiveWindow] = []
    for cell in sorted({delta.time // cuts.reset for delta in deltas}):
        end = (cell + 1) * cuts.reset
        counting = [delta for delta in deltas if delta.time // cuts.reset == cell and end - 1 >= delta.min_end]
        once: dict[int, NaiveAdaptiveRow] = {}
        for delta in sorted(counting, key=lambda delta: (delta.time, delta.delta, delta.size)):
            once.setdefault(delta.delta, delta)
        windows += _cell(list(once.values()), end, cuts)
    return windows


def _rate(earlier: Sequence[NaiveAdaptiveRow], time: int, cuts: Cuts) -> float:
    """The rate before a row at `time`, in rows per tick."""
    if not earlier or earlier[0].time == time:
        return 0.0
    near = [delta for delta in earlier if time - delta.time < cuts.measured_over]
    return len(near) / min(cuts.measured_over, time - earlier[0].time)


def _cell(deltas: Sequence[NaiveAdaptiveRow], cell_end: int, cuts: Cuts) -> list[NaiveAdaptiveWindow]:
    timed = any(trigger.reason == "time" for trigger in cuts.triggers)
    windows: list[NaiveAdaptiveWindow] = []
    window: NaiveAdaptiveWindow | None = None
    rates: list[float] = []
    for place, delta in enumerate(deltas):
        rate = _rate(deltas[:place], delta.time, cuts)
        rates.append(rate * cuts.rate_unit)
        if window is not None and timed and delta.time >= window.limit:
            window.end, window.trigger, window = window.limit, "time", None
        if window is None:
            duration = cuts.longest if rate == 0 else min(max(cuts.target / rate, cuts.shortest), cuts.longest)
            window = NaiveAdaptiveWindow(delta.time, delta.time + int(duration), rate=rate * cuts.rate_unit)
            window.rate_window = min(cuts.measured_over, delta.time - deltas[0].time)
            windows.append(window)
        window.deltas.append(delta)
        reason = _reason(window, rates, cuts)
        if reason is not None:
            window.end, window.trigger, window = delta.time, reason, None
    if window is not None:
        over = timed and window.limit <= cell_end
        window.end, window.trigger = (window.limit, "time") if over else (cell_end, "reset")
    return windows


def _reason(window: NaiveAdaptiveWindow, rates: Sequence[float], cuts: Cuts) -> str | None:
    size = sum(delta.size for delta in window.deltas)
    for trigger in cuts.triggers:
        fires = {
            "time": False,
            "count": len(window.deltas) >= trigger.threshold,
            "size": size >= trigger.threshold,
            "memory_pressure": size >= Fraction(str(trigger.threshold)) * cuts.memory_bytes,
            "rate_change": change_of_rates(rates) > trigger.threshold,
        }
        if fires[trigger.reason]:
            return trigger.reason
    return None


def change_of_rates(rates: Sequence[float]) -> float:
    """The change of the last 5 rates from the mean of the 5 to 10 before them; 0 for fewer than 10 rates."""
    if len(rates) < 10:
        return 0.0
    recent, older = rates[-5:], rates[-15:-5]
    mean = sum(older) / len(older)
    return abs(sum(recent) / len(recent) - mean) / max(mean, 1.0)
