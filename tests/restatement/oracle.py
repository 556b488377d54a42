"""Published windows as they must be, in plain Python from their definitions: loops over rows and windows.

It takes windows as a source file's YAML gives them (durations in microseconds), so that it shares no code with what
reads source files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

from spark_jobs.engine.twins import adaptive_windows as twin
from spark_jobs.engine.twins.emissions import NaiveWindow, emissions
from spark_jobs.engine.twins.windows import VALUE_AGGREGATES, edge, exact_sum, exact_variance, mean
from spark_jobs.engine.windows import Cuts, Trigger

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NEVER = -(2**63)
_TICK = timedelta(microseconds=1)


@dataclass(frozen=True)
class Row:
    """One row: the start of its drop, its time and key (None: it has none), its id, its values, its delta's id."""

    lo: int
    time: int | None
    key: tuple[Any, ...]
    row_id: int
    values: dict[str, Any] = field(default_factory=dict, hash=False)
    delta_id: str = ""
    entity: str = ""

    @property
    def at(self) -> int:
        """The time of a row that has one."""
        assert self.time is not None
        return self.time


@dataclass(frozen=True)
class Spec:
    """A window definition: `kind`, its lengths, its late policy, and the aggregates as (output, function, columns,
    numbers)."""

    kind: str
    lengths: dict[str, Any]
    policy: str = "reemit"
    limit: int | None = None
    aggregates: Sequence[tuple[str, str, tuple[str, ...], tuple[float, ...]]] = ()
    emits: Sequence[Trigger] = ()
    """The triggers of early results: emissions are published, not windows."""

    @property
    def half_open(self) -> bool:
        return self.kind not in ("sliding", "session")


def counts(spec: Spec, end: int, lo: int) -> bool:
    """Whether a pair counts: a row of the drop that starts at `lo`, and a window that ends at `end`."""
    late = end <= lo if spec.half_open else end < lo
    if not late:
        return True
    return spec.policy == "reemit" and (spec.limit is None or lo - end <= spec.limit)


def skipped(spec: Spec, row: Row) -> bool:
    """Whether the row is in no window for want of a key, a time or a value."""
    if row.time is None or None in row.key:
        return True
    read = {column for _, _, columns, _ in spec.aggregates for column in columns}
    return spec.kind == "sliding" and any(row.values[column] is None for column in read)


def _midnight(day: datetime, zone: ZoneInfo) -> int:
    """The instant at which a local day starts: the later of two, and the change of clocks where there is none."""
    found = [(day.replace(tzinfo=zone, fold=fold) - EPOCH) // _TICK for fold in (0, 1)]
    return max(found)


def _period(spec: Spec, time: int) -> tuple[int, int]:
    zone = ZoneInfo(spec.lengths["zone"])
    local = (EPOCH + time * _TICK).astimezone(zone).replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
    count, unit = spec.lengths["period"]
    assert count == 1
    if unit == "day":
        first, following = local, local + timedelta(days=1)
    elif unit == "week":
        first = local - timedelta(days=local.weekday())
        following = first + timedelta(days=7)
    else:
        assert unit == "month"
        first = local.replace(day=1)
        following = (first + timedelta(days=31)).replace(day=1)
    return _midnight(first, zone), _midnight(following, zone)


def grid(spec: Spec, time: int) -> list[tuple[int, int]]:
    """The windows over a time, of kinds whose windows don't come from rows."""
    if spec.kind == "calendar":
        return [_period(spec, time)]
    size, offset = spec.lengths["size"], spec.lengths.get("offset", 0)
    advance = spec.lengths.get("advance", size)
    start = (time - offset) // advance * advance + offset
    found = []
    while start + size > time:
        found.append((start, start + size))
        start -= advance
    return found


Content = dict[tuple[Any, ...], list[Row]]
"""Rows by (key, start, end)."""


def _grids(spec: Spec, rows: Sequence[Row]) -> Content:
    content: Content = {}
    for row in rows:
        for start, end in grid(spec, placed(spec, row)):
            if counts(spec, end, row.lo):
                content.setdefault((row.key, start, end), []).append(row)
    return content


def _sliding(spec: Spec, rows: Sequence[Row]) -> Content:
    size = spec.lengths["size"]
    times = {r: placed(spec, r) for r in rows}
    starts = {(r.key, at - size) for r, at in times.items() if counts(spec, at, r.lo)}
    starts |= {(r.key, at + tick(spec)) for r, at in times.items() if counts(spec, at + size, r.lo)}
    content: Content = {}
    for key, start in starts:
        end = start + size
        held = [r for r, at in times.items() if r.key == key and start <= at <= end and counts(spec, end, r.lo)]
        if held:
            content[key, start, end] = held
    return content


def _sessions(spec: Spec, rows: Sequence[Row]) -> Content:
    gap = spec.lengths["gap"]
    content: Content = {}
    for key in {r.key for r in rows}:
        pieces: list[list[Row]] = []
        times = {r: placed(spec, r) for r in rows if r.key == key}
        for row in sorted((r for r, at in times.items() if counts(spec, at + gap, r.lo)), key=times.__getitem__):
            if pieces and times[row] - times[pieces[-1][-1]] <= gap:
                pieces[-1].append(row)
            else:
                pieces.append([row])
        content |= {(key, times[piece[0]], times[piece[-1]]): piece for piece in pieces}
    return content


def expected(spec: Spec, rows: Iterable[Row]) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Published windows of these rows: (key, start, end) -> output column -> value; adaptive ones also by their id."""
    good = [row for row in rows if not skipped(spec, row)]
    if spec.kind == "adaptive":
        return _adaptive(spec, good)
    makers: dict[str, Callable[[Spec, Sequence[Row]], Content]] = {"sliding": _sliding, "session": _sessions}
    content = makers.get(spec.kind, _grids)(spec, good)
    if spec.emits:
        return dict(emission for window, held in content.items() for emission in _emissions(spec, window, held))
    return {window: _outputs(spec, held) for window, held in content.items()}


def _emissions(
    spec: Spec, window: tuple[Any, ...], held: Sequence[Row]
) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """The emissions of a window, by the twin: (key, start, end, number), and the output columns."""
    ordered = sorted(held, key=lambda row: (placed(spec, row), row.time, row.row_id))
    _, start, end = window
    times = [placed(spec, row) for row in ordered]
    naive = NaiveWindow(start, end, end - int(spec.half_open), times, [row_bytes(row) for row in ordered])
    for number, emission in enumerate(emissions(naive, spec.emits, 1_000_000), start=1):
        own = {"trigger": emission.reason, "emitted_at": emission.at}
        yield (*window, number), {**own, **_outputs(spec, ordered[: emission.upto])}


def _outputs(spec: Spec, held: Sequence[Row]) -> dict[str, Any]:
    ordered = sorted(held, key=lambda row: (placed(spec, row), row.time, row.row_id))
    return {name: _value(function, columns, numbers, ordered) for name, function, columns, numbers in spec.aggregates}


def placed(spec: Spec, row: Row) -> int:
    """Where the row counts: at its own time, or at the start of its drop if it is late for every window it makes."""
    moves = spec.policy == "next_window" and not any(counts(spec, end, row.lo) for end in ends_made(spec, row))
    return row.lo if moves else row.at - row.at % tick(spec)


def tick(spec: Spec) -> int:
    """The granularity of the windows."""
    return int(spec.lengths.get("tick", 1))


def ends_made(spec: Spec, row: Row) -> list[int]:
    """The ends of the windows that the row makes, whatever other rows there are. A session counts as ending a gap after
    the row."""
    if spec.kind == "sliding":
        return [row.at - row.at % tick(spec)]
    if spec.kind == "session":
        return [row.at + spec.lengths["gap"]]
    if spec.kind == "adaptive":
        return [(row.at // spec.lengths["reset"] + 1) * spec.lengths["reset"]]
    return [end for _, end in grid(spec, row.at)]


DECIMAL = (30, 4)
"""Digits of the decimals that rows hold."""


def _value(function: str, columns: tuple[str, ...], numbers: tuple[float, ...], held: Sequence[Row]) -> Any:
    if function == "count" and not columns:
        return len(held)
    if function.startswith("vector"):
        vectors = [[r.values[c] for c in columns] for r in held]
        whole = [[float(x) for x in v] for v in vectors if None not in v]
        total = exact_sum if function == "vector_sum" else mean
        return [total([v[i] for v in whole]) for i in range(len(columns))] if whole else None
    rows = [r for r in held if r.values[columns[0]] is not None]
    values = [r.values[columns[0]] for r in rows]
    if function in ("first", "last"):
        return edge(values, [(r.time, r.row_id) for r in rows], last=function == "last")
    if function == "collect":
        return values[: int(numbers[0])]
    if function == "approx_quantile":
        assert numbers[1:] == (0,), "the oracle knows exact quantiles alone"
        return float(sorted(values)[int(numbers[0] * (len(values) - 1))]) if values else None
    if function == "stddev":
        spread = exact_variance(values)
        return None if spread is None else spread**0.5
    if function == "count":
        return len(values)
    of_money = function == "avg" and values and isinstance(values[0], Decimal)
    return mean(values, DECIMAL) if of_money else VALUE_AGGREGATES[function](values)


def _adaptive(spec: Spec, rows: Sequence[Row]) -> dict[tuple[Any, ...], dict[str, Any]]:
    lengths = spec.lengths
    cuts = Cuts(
        target=lengths["target"],
        shortest=lengths["min"],
        longest=lengths["max"],
        reset=lengths["reset"],
        triggers=tuple(Trigger(reason, threshold) for reason, threshold in lengths["triggers"]),
        memory_bytes=lengths["max_bytes"],
        rate_unit=1_000_000,
        rate_window=lengths.get("rate_window"),
    )
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for key in {r.key for r in rows}:
        # ties of time go by the delta's id
        own = sorted((r for r in rows if r.key == key), key=lambda r: (placed(spec, r), r.delta_id))
        own = [r for r in own if counts(spec, (placed(spec, r) // cuts.reset + 1) * cuts.reset, r.lo)]
        deltas = [twin.NaiveAdaptiveRow(placed(spec, r), place, size=row_bytes(r)) for place, r in enumerate(own)]
        places: dict[int, int] = {}
        for window in twin.adaptive(deltas, cuts):
            held = [own[d.delta] for d in window.deltas]
            cell = window.start // cuts.reset
            place = places[cell] = places.get(cell, -1) + 1
            total = sum(map(row_bytes, held))
            stats = {
                "delta_count": len(held),
                "vectors_affected": len({r.entity for r in held}),
                "total_bytes": total,
                "avg_delta_size": total / len(held),
                "duration": window.end - window.start,
            }
            if cuts.rate_window is not None:
                stats |= {"rate": window.rate, "rate_window": window.rate_window}
            own_columns = {"delta_ids": [r.delta_id for r in held], "stats": stats, "trigger": window.trigger}
            found[key, window.start, window.end, f"{cell}.{place}"] = {**own_columns, **_outputs(spec, held)}
    return found


def action(spec: Spec, row: Row) -> str | None:
    """What `silver.late` says was done with a row; None: it is late for no window, or in none for want of a time or a
    value."""
    if None in row.key:
        return "null_key"
    if skipped(spec, row):
        return None
    assert row.time is not None
    ends = sorted(ends_made(spec, row))
    if spec.kind == "sliding":
        ends.append(ends[0] + spec.lengths["size"])
    if ends[0] > row.lo or (ends[0] == row.lo and not spec.half_open):
        return None
    if placed(spec, row) == row.lo:
        return "next_window"
    if not counts(spec, ends[-1], row.lo):
        return "discard"
    return "reemit" if counts(spec, ends[0], row.lo) else "partial"


def row_bytes(row: Row) -> int:
    """The size of a row: what the test says it is."""
    return int(row.values.get("__bytes", 0))
