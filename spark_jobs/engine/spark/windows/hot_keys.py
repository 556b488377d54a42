"""The spread of the rows of a DataFrame over tasks, as SQL: their sample, their tasks and their slices.

`engine.windows.spreading` decides; this module samples rows for it, and writes its answer as SQL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame

from spark_jobs.engine.spark.windows.expressions import column, whole
from spark_jobs.engine.windows.slices import SLICE_COLUMN, SLICES, Halo, HotKey
from spark_jobs.engine.windows.spreading import MOST_KEYS, KeySample, SampledKey, Spread

_LEAST, _GREATEST = -(2**63), 2**63 - 1


@dataclass(frozen=True)
class SampledFrame:
    """Rows of a DataFrame of which samples can be taken (`SampledRows`).

    Args:
        keyed: rows that all have a key and a time.
        hashed, time: SQL for the key as one number, and for the time in ticks.
    """

    keyed: DataFrame
    hashed: str
    time: str

    def sample(self, share: float, least_rows: float) -> KeySample:
        """A sample of the rows, by one job."""
        sample = self._rows().sample(fraction=share, seed=0).selectExpr("h", "1 AS n", "t AS low", "t AS high")
        counted = sample.groupBy("h").agg({"n": "sum", "low": "min", "high": "max"})
        keys = counted.selectExpr("h", "`sum(n)` AS n", "`min(low)` AS low", "`max(high)` AS high")
        large = f"collect_list(CASE WHEN n > {least_rows} THEN struct(n, h, low, high) END)"
        largest = f"slice(sort_array({large}, false), 1, {MOST_KEYS})"
        total = keys.selectExpr("coalesce(sum(n), 0L) AS n", f"{largest} AS largest").collect()[0]
        return KeySample(total.n, tuple(SampledKey(key.h, key.n, key.low, key.high) for key in total.largest))

    def breaks(self, hot: tuple[HotKey, ...], gap: int) -> Mapping[int, int]:
        """The breaks near the beginnings of cells, by one job over all rows."""
        near = self._rows().selectExpr(f"{_beginnings(hot)} AS slice", "t").where("slice IS NOT NULL")
        spaced = near.selectExpr("slice", "t", "lag(t) OVER (PARTITION BY slice ORDER BY t) AS previous")
        first = spaced.where(f"t - previous > {whole(gap)}").groupBy("slice").agg({"t": "min"})
        return {row[0]: row[1] for row in first.collect()}

    def _rows(self) -> DataFrame:
        return self.keyed.selectExpr(f"{self.hashed} AS h", f"{self.time} AS t")


def task_sql(spread: Spread, hashed: str) -> str:
    """SQL for the task of a row. `hashed` is SQL for the hash of its key; if keys are hot, SLICE_COLUMN is read."""
    shared = f"CAST(pmod({hashed}, {spread.shared}L) AS INT)"
    if not spread.hot:
        return shared
    cases = [
        f"WHEN {key.number} THEN CAST({first} + {SLICE_COLUMN} % {SLICES} AS INT)" for key, first in spread.first_tasks
    ]
    return f"CASE {SLICE_COLUMN} div {SLICES} {' '.join(cases)} ELSE {shared} END"


def with_slices(rows: DataFrame, spread: Spread, halo: Halo | None, hashed: str, *times: str) -> DataFrame:
    """The rows with SLICE_COLUMN, once per slice (see `slices_sql`); unchanged if no key is hot."""
    if not spread.hot:
        return rows
    return rows.selectExpr("*", f"{slices_sql(spread.hot, halo, hashed, *times)} AS {SLICE_COLUMN}")


def repartition_rows(rows: DataFrame, spread: Spread, hashed: str) -> DataFrame:
    """The rows, with all rows of a key, or of a slice, in one partition; `hashed` is SQL for the key's hash."""
    return rows.repartitionById(spread.tasks, column(rows, task_sql(spread, hashed)))


def key_hash(names: Iterable[str]) -> str:
    """SQL for a key as one number, given the quoted names of its columns."""
    return f"xxhash64({', '.join(names)})"


def _beginnings(hot: tuple[HotKey, ...]) -> str:
    """SQL for the slice that may begin near a row; null for none.

    All rows of a key from the start of a cell up to some later time have the same slice. So two of them without one in
    between are neighbours."""
    cases = []
    for key in hot:
        within = f"t BETWEEN {whole(key.low + key.length)} AND {whole(key.top)}"
        offset = f"t - {whole(key.low)}"
        early = f"({offset}) % {whole(key.length)} < {whole(key.beginning)}"
        number = f"{key.number * SLICES}L + ({offset}) div {whole(key.length)}"
        # nested, so that the difference is computed only if it can't overflow
        cases.append(f"WHEN {whole(key.hashed)} THEN CASE WHEN {within} THEN CASE WHEN {early} THEN {number} END END")
    return f"CASE h {' '.join(cases)} END"


def slices_sql(hot: tuple[HotKey, ...], halo: Halo | None, hashed: str, *times: str) -> str:
    """SQL for the slices of a row, one row per slice.

    `hashed` is SQL for its key as one number, `times` for the times in ticks at which it may count; for `halo`, see
    `slices.slice_halo`. A row without a time, which can't count, is in the first slice of its key.
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
    return f"{key.number * SLICES}L + ({_clamp(time, key.low, key.top)} - {whole(key.low)}) div {whole(key.length)}"


def _slices_within(key: HotKey, time: str, before: int, after: int) -> str:
    """SQL for the slices in which those windows start that depend on a row."""
    # clamped before the halo is subtracted or added, so that no sum overflows
    low, high = min(key.low + before, _GREATEST), min(key.top + before, _GREATEST)
    first = f"({_clamp(time, low, high)} - {whole(before)} - {whole(key.low)})"
    low, high = max(key.low - after, _LEAST), max(key.top - after, _LEAST)
    last = f"({_clamp(time, low, high)} + {whole(after)} - {whole(key.low)})"
    number, length = f"{key.number * SLICES}L", whole(key.length)
    return f"sequence({number} + {first} div {length}, {number} + {last} div {length})"


def _clamp(time: str, low: int, high: int) -> str:
    """SQL for a time, limited to these bounds; the lower one for null."""
    return f"least(greatest({time}, {whole(low)}), {whole(high)})"


def _slice_at_breaks(key: HotKey, time: str) -> str:
    """SQL for the slice of a row: the number of breaks up to its time, counted from the first slice of the key."""
    assert key.breaks is not None
    clamped = _clamp(time, key.low, key.top)
    cell = f"CAST(({clamped} - {whole(key.low)}) div {whole(key.length)} AS INT) + 1"
    earlier = ", ".join(f"{number}L" for number in key.broken_before())
    breaks = ", ".join("NULL" if at is None else whole(at) for at in key.breaks)
    at = f"element_at(array({breaks}), {cell})"
    return (
        f"{key.number * SLICES}L + element_at(array({earlier}), {cell}) + CASE WHEN {time} >= {at} THEN 1L ELSE 0L END"
    )
