"""The slow, obvious twin of early results: one row of a window after another, each rate from all rows before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from spark_jobs.engine.twins.adaptive_windows import change_of_rates
from spark_jobs.engine.windows.kinds.cuts import Trigger


@dataclass(frozen=True)
class NaiveWindow:
    """One window: its bounds, its last instant, and the times and sizes of its rows in the order in which they count.

    `flags`: by the name of a trigger of a team's own, a flag per row.
    """

    start: int
    end: int
    last: int
    times: Sequence[int]
    sizes: Sequence[int]
    flags: Mapping[str, Sequence[bool]] = field(default_factory=dict)


@dataclass(frozen=True)
class NaiveEmission:
    """One emission: the number of rows that it has, its reason, and its instant."""

    upto: int
    reason: str
    at: int


def emissions(window: NaiveWindow, triggers: Sequence[Trigger | str], rate_unit: int) -> list[NaiveEmission]:
    """The emissions of a window, in order. `triggers`: in list order; a text is the name of one of a team's own."""
    emitted: list[NaiveEmission] = []

    def emit(upto: int, reason: str, at: int) -> None:
        emitted.append(NaiveEmission(upto, reason, at))

    def fresh(upto: int) -> range:
        return range(emitted[-1].upto if emitted else 0, upto)

    intervals = [int(each.threshold) for each in triggers if isinstance(each, Trigger) and each.reason == "time"]
    for place, time in enumerate(window.times):
        for interval in intervals:
            due = _instant_after(window, place, interval)
            if fresh(place) and due <= time:
                emit(place, "time", due)
        for trigger in triggers:
            reason = trigger.reason if isinstance(trigger, Trigger) else trigger
            if _fires(window, trigger, place, fresh(place + 1), rate_unit):
                emit(place + 1, reason, time)
                break
    for interval in intervals:
        due = _instant_after(window, len(window.times), interval)
        if fresh(len(window.times)) and due <= window.last:
            emit(len(window.times), "time", due)
    emit(len(window.times), "end", window.end)
    return emitted


def _instant_after(window: NaiveWindow, place: int, interval: int) -> int:
    """The first instant of `time` after the row before `place`."""
    instant = window.start + interval
    while place and instant <= window.times[place - 1]:
        instant += interval
    return instant


def _fires(window: NaiveWindow, trigger: Trigger | str, place: int, fresh: range, rate_unit: int) -> bool:
    if isinstance(trigger, str):
        return window.flags[trigger][place]
    if trigger.reason == "count":
        return len(fresh) >= trigger.threshold
    if trigger.reason == "size":
        return sum(window.sizes[row] for row in fresh) >= trigger.threshold
    if trigger.reason == "rate_change":
        rates = [_rate(window.times[: row + 1], trigger.over) * rate_unit for row in range(place + 1)]
        return change_of_rates(rates) > trigger.threshold
    return False


def _rate(times: Sequence[int], over: int) -> float:
    """The rate before the last of these rows, in rows per tick."""
    elapsed = min(over, times[-1] - times[0])
    near = [time for time in times[:-1] if times[-1] - time < over]
    return len(near) / elapsed if elapsed else 0.0
