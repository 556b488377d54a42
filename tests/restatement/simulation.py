"""Runs of one window definition without Spark: the reads and shuffles of `restatement.windows` as Python loops around
the very function that the workers run."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from spark_jobs.definitions.definition import Definition
from spark_jobs.engine.spark.windows import METRICS
from spark_jobs.engine.windows import SLICE_COLUMN, SLICES, Account, HotKey, slice_halo
from spark_jobs.engine.windows.slices import Halo, cells_of
from spark_jobs.restatement.reach import ranges_near
from spark_jobs.restatement.restater import Restater, WorkerReport
from tests.restatement.given import given_schema, restate
from tests.restatement.oracle import Row

Key = tuple[Any, ...]
BATCH = 3
"""Rows of a batch."""
MOST_ROWS = 2
"""Rows that become windows at a time: what follows them is carried over from step to step."""


@dataclass
class Update:
    """A row that came (+1) or went (−1); `touched` until a run has published it."""

    row: Row
    diff: int = 1
    touched: bool = True


@dataclass
class Simulation:
    """One definition's updates and published windows. Times in microseconds."""

    definition: Definition
    updates: list[Update] = field(default_factory=list)
    windows: list[dict[str, Any]] = field(default_factory=list)
    """As workers are given them."""
    runs: int = 0
    slices: int = 0
    """Into which the last run cut its hot keys."""
    memory: dict[str, int] = field(default_factory=dict)
    """What the last run's worker told of its memory."""
    max_bytes: int = 1
    """What a worker may hold: each row waits on disk."""
    most_rows: int | None = MOST_ROWS
    rows_a_slice: int | None = None
    """Keys with more rows are cut into slices, all of which one worker gets; None: no key is."""

    def run(
        self, came: Iterable[Row], went: Iterable[Row] = (), *, everything: bool = False, reached: int = 0
    ) -> Account:
        """Publish what these rows change; returns the account of the run. `reached`: the greatest end of a drop run so
        far, by which a definition that keeps its windows for some time tells which are kept."""
        expired = self.definition.expired_us(reached)
        self.updates += [Update(row) for row in came] + [Update(row, -1) for row in went]
        windows, updates = self._read(everything, expired)
        hot = self._hot(updates)
        given = list(self._given(windows, updates, hot))
        random.Random(self.runs).shuffle(given)
        keys = tuple(hot.values())
        self.slices = sum(key.slices for key in keys)
        table = pa.Table.from_pylist(given, schema=given_schema(self.definition, sliced=bool(hot)))
        sizes = {"max_bytes": self.max_bytes, "most_rows": self.most_rows}
        worker = Restater(self.definition, self.runs, everything, expired, keys, **sizes)
        outcome = WorkerReport()
        made = restate(worker, table, outcome, rows_a_batch=BATCH).to_pylist()
        self.memory = {name: getattr(outcome.memory, name) for name in METRICS}
        self.runs += 1
        for update in self.updates:
            update.touched = False
        self._publish(made)
        return outcome.account

    def published(self) -> dict[tuple[Any, ...], dict[str, Any]]:
        """(key, start, end[, window_id or emission]) -> what the oracle calls outputs."""
        found = {}
        for window in self.windows:
            key = tuple(window[f"k_{k}"] for k in self.definition.key)
            own = {name: window[name] for name in self.definition.own_columns}
            more = [own.pop(name) for name in self.definition.kind.identity if name != "window_start"]
            identity: tuple[Any, ...] = (key, window["window_start"], window["window_end"], *more)
            outputs = {name: window[f"a_{name}"] for name in self.definition.window.aggregates}
            assert identity not in found, "a window is published once"
            found[identity] = {**own, **outputs}
        return found

    def _publish(self, made: list[dict[str, Any]]) -> None:
        names = {c: f"k_{c}" for c in self.definition.key} | {a[2:]: a for a in self.definition.aggregates}
        for row in made:
            renamed = {names.get(name, name): value for name, value in row.items()}
            if row["era"] == "closing":
                live = [w for w in self.windows if _same(w, renamed, self._identity())]
                assert len(live) == 1, "a closing names one published window"
                assert row["known_to"] == self.runs - 1
                self.windows.remove(live[0])
        for row in made:
            if row["era"] == "live":
                self.windows.append({names.get(name, name): value for name, value in row.items()})

    def _identity(self) -> list[str]:
        keys = [f"k_{k}" for k in self.definition.key]
        return [*keys, *self.definition.kind.identity, "known_from"]

    def _read(self, everything: bool, expired: int | None) -> tuple[list[dict[str, Any]], list[Update]]:
        """The published windows and the updates that a run reads."""
        live = [u for u in self.updates if u.row.time is not None and None not in u.row.key]
        if everything:
            for update in live:
                update.touched = True
        near = ranges_near(self.definition, [(t, t) for u in live if u.touched for t in [self._time(u.row)]], expired)
        windows = self.windows if everything else [w for w in self.windows if self._is_near(w, near, expired)]
        if self.definition.kind.halo is None:
            near += [(w["window_start"], w["window_end"]) for w in windows]
        return windows, [u for u in live if any(lo <= self._time(u.row) <= hi for lo, hi in near)]

    def _hot(self, updates: list[Update]) -> dict[Key, HotKey]:
        """The keys that are cut into slices, and how."""
        if self.rows_a_slice is None:
            return {}
        kind = self.definition.kind
        hot: dict[Key, HotKey] = {}
        times: dict[Key, list[int]] = {}
        for update in updates:
            times.setdefault(update.row.key, []).append(self._time(update.row))
        for key, own in times.items():
            sizes = {"rows": len(own), "rows_a_slice": self.rows_a_slice, "low": min(own), "high": max(own)}
            low, length, cells = cells_of(kind, **sizes)
            if 1 < cells < SLICES:
                hot[key] = HotKey(0, len(hot) + 1, low, length, cells, self._breaks(low, length, cells, own))
        return hot

    def _breaks(self, low: int, length: int, cells: int, times: list[int]) -> tuple[int | None, ...] | None:
        kind = self.definition.kind
        if slice_halo(kind) is not None:
            return None
        breaks = [later for earlier, later in pairwise(sorted(times)) if later - earlier > kind.span]
        return tuple(next((at for at in breaks if (at - low) // length == cell), None) for cell in range(cells))

    def _given(
        self, windows: list[dict[str, Any]], updates: list[Update], hot: dict[Key, HotKey]
    ) -> Iterator[dict[str, Any]]:
        for window in windows:
            key = tuple(window[f"k_{k}"] for k in self.definition.key)
            (number,) = _slices(hot.get(key), window["window_start"], (0, 0))
            yield {**window, SLICE_COLUMN: number, "is_window": True}
        for update in updates:
            of_key, halo = hot.get(update.row.key), slice_halo(self.definition.kind) or (0, 0)
            for number in _slices(of_key, self._time(update.row), halo):
                yield self._as_given(update, number)

    def _is_near(self, window: dict[str, Any], near: list[tuple[int, int]], expired: int | None) -> bool:
        start, end = window["window_start"], window["window_end"]
        if expired is not None and end <= expired:
            return True
        if self.definition.kind.halo is not None:
            end = start
        return any(start <= hi and end >= lo for lo, hi in near)

    def _time(self, row: Row) -> int:
        """The time at which the row counts."""
        return int(self.definition.places(np.array([row.at]), np.array([row.lo]))[0])

    def _as_given(self, update: Update, number: int) -> dict[str, Any]:
        row = update.row
        keys = dict(zip((f"k_{k}" for k in self.definition.key), row.key, strict=True))
        values = {f"v_{c}": row.values[c] for c in self.definition.values_read}
        adaptive = {"delta_id": row.delta_id, "vector": row.entity, "size": row.values.get("__bytes", 0)}
        marks = {"is_window": False, "diff": update.diff, "touched": update.touched, SLICE_COLUMN: number}
        return {**keys, **values, **adaptive, **marks, "time": row.time, "lo": row.lo, "row_id": row.row_id}


def _slices(key: HotKey | None, time: int, halo: Halo) -> set[int]:
    """The slices in which the windows start that something at this time bears on."""
    if key is None:
        return {0}
    if key.breaks is not None:
        return {key.number * SLICES + sum(at is not None and at <= time for at in key.breaks)}
    first, last = key.cell(np.array([time - halo[0], time + halo[1]])).tolist()
    return {key.number * SLICES + cell for cell in range(first, last + 1)}


def _same(left: dict[str, Any], right: dict[str, Any], columns: list[str]) -> bool:
    return all(left[column] == right[column] for column in columns)
