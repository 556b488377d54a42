"""The spread of the rows of a call over tasks, from a sample of the rows; see `kernels.windows.slices`.

The sample decides the number of tasks, the keys with too many rows for one task, and the SQL that cuts the rows of
those keys by time. It decides only how the work is spread, never the content of a window.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame

from spark_jobs.kernels.windows import Kind, Sessions
from spark_jobs.kernels.windows.slices import SLICE_COLUMN, SLICES, Halo, HotKey, cells_of

from .expressions import column, whole

_SHARE = 0.01
"""The share of all rows that a sample takes."""
_FEWEST_SAMPLED = 1000
"""The least number of rows of a hot key in a sample, for a fair estimate of its times."""
_MOST_KEYS = 32
"""The greatest number of hot keys that are cut into slices: with more, keys alone spread the work."""
_BROKEN_SHARE = 8
"""Breaks are looked for in the first eighth of each cell."""
_LONGEST = 2**62
_LEAST, _GREATEST = -(2**63), 2**63 - 1


@dataclass(frozen=True)
class Spread:
    """The tasks for the rows of a call.

    Each slice of a hot key has a task of its own. All other keys share the first `shared` tasks, by their hash."""

    hot: tuple[HotKey, ...]
    shared: int

    @property
    def tasks(self) -> int:
        """The number of tasks."""
        return self.shared + sum(key.slices for key in self.hot)

    def task_sql(self, hashed: str) -> str:
        """SQL for the task of a row. `hashed` is SQL for the hash of its key; if keys are hot, SLICE_COLUMN is read."""
        shared = f"CAST(pmod({hashed}, {self.shared}L) AS INT)"
        if not self.hot:
            return shared
        first, cases = self.shared, []
        for key in self.hot:
            cases.append(f"WHEN {key.number} THEN CAST({first} + {SLICE_COLUMN} % {SLICES} AS INT)")
            first += key.slices
        return f"CASE {SLICE_COLUMN} div {SLICES} {' '.join(cases)} ELSE {shared} END"

    def in_slices(self, rows: DataFrame, halo: Halo | None, hashed: str, *times: str) -> DataFrame:
        """The rows with SLICE_COLUMN, once per slice (see `slices_sql`); unchanged if no key is hot."""
        if not self.hot:
            return rows
        return rows.selectExpr("*", f"{slices_sql(self.hot, halo, hashed, *times)} AS {SLICE_COLUMN}")

    def together(self, rows: DataFrame, hashed: str) -> DataFrame:
        """The rows, with all rows of a key, or of a slice, in one partition; `hashed` is SQL for the key's hash."""
        return rows.repartitionById(self.tasks, column(rows, self.task_sql(hashed)))


def key_hash(names: Iterable[str]) -> str:
    """SQL for a key as one number, given the quoted names of its columns."""
    return f"xxhash64({', '.join(names)})"


def sampled_share(rows_a_slice: int) -> float:
    """The share of all rows in a sample that is large enough to find keys with more than `rows_a_slice` rows."""
    return min(max(_SHARE, _FEWEST_SAMPLED / rows_a_slice), 1.0)


def spread(keyed: DataFrame, kind: Kind, *, hashed: str, time: str, rows_a_slice: int) -> Spread:
    """The spread of rows over tasks. Counts rows, and finds keys with more than `rows_a_slice` rows, in a sample.

    For sessions, it also finds the breaks of those keys, in all rows.

    Args:
        keyed: rows that all have a key and a time.
        hashed, time: SQL for the key as one number, and for the time in ticks.
        rows_a_slice: the approximate number of rows of a task.
    """
    rows = keyed.selectExpr(f"{hashed} AS h", f"{time} AS t")
    share = sampled_share(rows_a_slice)
    sample = rows.sample(fraction=share, seed=0).selectExpr("h", "1 AS n", "t AS low", "t AS high")
    counted = sample.groupBy("h").agg({"n": "sum", "low": "min", "high": "max"})
    found = counted.selectExpr("h", "`sum(n)` AS n", "`min(low)` AS low", "`max(high)` AS high")
    large = f"collect_list(CASE WHEN n > {rows_a_slice * share} THEN struct(n, h, low, high) END)"
    largest = f"slice(sort_array({large}, false), 1, {_MOST_KEYS})"
    total = found.selectExpr("coalesce(sum(n), 0L) AS n", f"{largest} AS largest").collect()[0]
    hot: list[HotKey] = []
    for key in total.largest:
        n_rows = round(key.n / share)
        low, length, cells = cells_of(kind, rows=n_rows, rows_a_slice=rows_a_slice, low=key.low, high=key.high)
        if 1 < cells < SLICES and length * cells < _LONGEST:
            hot.append(HotKey(key.h, len(hot) + 1, low, length, cells))
    cut = _at_breaks(rows, tuple(hot), kind.gap) if hot and isinstance(kind, Sessions) else tuple(hot)
    sliced = {key.hashed for key in cut}
    rest = total.n - sum(key.n for key in total.largest if key.h in sliced)
    return Spread(cut, max(math.ceil(rest / share / rows_a_slice), 1))


def _at_breaks(rows: DataFrame, hot: tuple[HotKey, ...], gap: int) -> tuple[HotKey, ...]:
    """The hot keys that have a break near the beginning of a cell, with their breaks."""
    near = rows.selectExpr(f"{_beginnings(hot)} AS slice", "t").where("slice IS NOT NULL")
    spaced = near.selectExpr("slice", "t", "lag(t) OVER (PARTITION BY slice ORDER BY t) AS previous")
    first = spaced.where(f"t - previous > {whole(gap)}").groupBy("slice").agg({"t": "min"})
    breaks = {row[0]: row[1] for row in first.collect()}
    cut = (
        replace(key, breaks=tuple(breaks.get(key.number * SLICES + cell) for cell in range(key.cells))) for key in hot
    )
    return tuple(key for key in cut if any(at is not None for at in key.breaks or ()))


def _beginnings(hot: tuple[HotKey, ...]) -> str:
    """SQL for the slice that may begin near a row; null for none.

    All rows of a key from the start of a cell up to some later time have the same slice. So two of them without one in
    between are neighbours."""
    cases = []
    for key in hot:
        near = max(key.length // _BROKEN_SHARE, 1)
        within = f"t BETWEEN {whole(key.low + key.length)} AND {whole(key.top)}"
        offset = f"t - {whole(key.low)}"
        early = f"({offset}) % {whole(key.length)} < {whole(near)}"
        number = f"{key.number * SLICES}L + ({offset}) div {whole(key.length)}"
        # nested, so that the difference is computed only if it can't overflow
        cases.append(f"WHEN {whole(key.hashed)} THEN CASE WHEN {within} THEN CASE WHEN {early} THEN {number} END END")
    return f"CASE h {' '.join(cases)} END"


def slices_sql(hot: tuple[HotKey, ...], halo: Halo | None, hashed: str, *times: str) -> str:
    """SQL for the slices of a row, one row per slice.

    `hashed` is SQL for its key as one number, `times` for the times in ticks at which it may count; for `halo`, see
    `slices.copied`. A row without a time, which can't count, is in the first slice of its key.
    """
    if halo is None:
        return _case(hot, hashed, lambda key: _slice_at_breaks(key, times[0]), "0L")
    if not any(halo) and len(times) == 1:
        return _case(hot, hashed, lambda key: _slice_over(key, times[0]), "0L")

    def within(key: HotKey) -> str:
        parts = [_slices_within(key, time, *halo) for time in times]
        return parts[0] if len(parts) == 1 else f"array_distinct(concat({', '.join(parts)}))"

    return f"explode({_case(hot, hashed, within, 'array(0L)')})"


def _case(hot: tuple[HotKey, ...], hashed: str, of_key: Callable[[HotKey], str], of_others: str) -> str:
    cases = (f"WHEN {whole(key.hashed)} THEN {of_key(key)}" for key in hot)
    return f"CASE {hashed} {' '.join(cases)} ELSE {of_others} END"


def _slice_over(key: HotKey, time: str) -> str:
    """SQL for the slice in whose cell a time is."""
    return f"{key.number * SLICES}L + ({_clamped(time, key.low, key.top)} - {whole(key.low)}) div {whole(key.length)}"


def _slices_within(key: HotKey, time: str, before: int, after: int) -> str:
    """SQL for the slices in which those windows start that depend on a row."""
    # clamped before the halo is subtracted or added, so that no sum overflows
    low, high = min(key.low + before, _GREATEST), min(key.top + before, _GREATEST)
    first = f"({_clamped(time, low, high)} - {whole(before)} - {whole(key.low)})"
    low, high = max(key.low - after, _LEAST), max(key.top - after, _LEAST)
    last = f"({_clamped(time, low, high)} + {whole(after)} - {whole(key.low)})"
    number, length = f"{key.number * SLICES}L", whole(key.length)
    return f"sequence({number} + {first} div {length}, {number} + {last} div {length})"


def _clamped(time: str, low: int, high: int) -> str:
    """SQL for a time, limited to these bounds; the lower one for null."""
    return f"least(greatest({time}, {whole(low)}), {whole(high)})"


def _slice_at_breaks(key: HotKey, time: str) -> str:
    """SQL for the slice of a row: the number of breaks up to its time, counted from the first slice of the key."""
    assert key.breaks is not None
    clamped = _clamped(time, key.low, key.top)
    cell = f"CAST(({clamped} - {whole(key.low)}) div {whole(key.length)} AS INT) + 1"
    begun = ", ".join(f"{number}L" for number in key.broken_before())
    breaks = ", ".join("NULL" if at is None else whole(at) for at in key.breaks)
    at = f"element_at(array({breaks}), {cell})"
    return f"{key.number * SLICES}L + element_at(array({begun}), {cell}) + CASE WHEN {time} >= {at} THEN 1L ELSE 0L END"
