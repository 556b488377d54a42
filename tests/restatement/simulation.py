"""Runs of one window definition without Spark: the reads and shuffles of `restatement.windows` as Python loops around
the very function that the workers run."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from spark_jobs.definitions.definition import Definition
from spark_jobs.kernels.accounts import Account
from spark_jobs.restatement.restater import ACCOUNT_PREFIX, Restater, given_schema
from spark_jobs.restatement.windows import ranges_near
from spark_jobs.windows.worker import METRICS, metric_column
from tests.restatement.oracle import Row

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
    memory: dict[str, int] = field(default_factory=dict)
    """What the last run's worker told of its memory."""
    max_bytes: int = 1
    """What a worker may hold: each row waits on disk."""
    most_rows: int | None = MOST_ROWS

    def run(
        self, came: Iterable[Row], went: Iterable[Row] = (), *, everything: bool = False, reached: int = 0
    ) -> Account:
        """Publish what these rows change; returns the account of the run. `reached`: the greatest end of a drop run so
        far, by which a definition that keeps its windows for some time tells which are kept."""
        expired = self.definition.expired_us(reached)
        self.updates += [Update(row) for row in came] + [Update(row, -1) for row in went]
        given = list(self._given(everything, expired))
        random.Random(self.runs).shuffle(given)
        table = pa.Table.from_pylist(given, schema=given_schema(self.definition))
        sizes = {"max_bytes": self.max_bytes, "most_rows": self.most_rows}
        worker = Restater(self.definition, self.runs, everything, expired, **sizes)
        made = pa.Table.from_batches(list(worker(iter(table.to_batches(max_chunksize=BATCH))))).to_pylist()
        self.runs += 1
        for update in self.updates:
            update.touched = False
        return self._publish(made)

    def published(self) -> dict[tuple[Any, ...], dict[str, Any]]:
        """(key, start, end[, window_id]) -> what the oracle calls outputs."""
        found = {}
        for window in self.windows:
            key = tuple(window[f"k_{k}"] for k in self.definition.key)
            identity = (key, window["window_start"], window["window_end"])
            own = {name: window[name] for name in self.definition.own_columns}
            if own:
                identity = (*identity, own.pop("window_id"))
            outputs = {name: window[f"a_{name}"] for name in self.definition.window.aggregates}
            assert identity not in found, "a window is published once"
            found[identity] = {**own, **outputs}
        return found

    def _publish(self, made: list[dict[str, Any]]) -> Account:
        account = made.pop()
        assert account["era"] is None
        self.memory = {name: account[metric_column(name)] for name in METRICS}
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
        return Account(
            **{n.removeprefix(ACCOUNT_PREFIX): v for n, v in account.items() if n.startswith(ACCOUNT_PREFIX)}
        )

    def _identity(self) -> list[str]:
        keys = [f"k_{k}" for k in self.definition.key]
        return [*keys, "window_id" if self.definition.is_adaptive else "window_start", "known_from"]

    def _given(self, everything: bool, expired: int | None) -> Iterator[dict[str, Any]]:
        length = self.definition.kind.slice_us
        live = [u for u in self.updates if u.row.time is not None and None not in u.row.key]
        if everything:
            for update in live:
                update.touched = True
        near = ranges_near(self.definition, [(t, t) for u in live if u.touched for t in self._times(u.row)], expired)
        windows = self.windows if everything else [w for w in self.windows if self._is_near(w, near, expired)]
        if length is None:
            near += [(w["window_start"], w["window_end"]) for w in windows]
        for window in windows:
            slices = {} if length is None else {"slice": window["window_start"] // length}
            yield {**window, **slices, "is_window": True}
        for update in live:
            if any(lo <= t <= hi for t in self._times(update.row) for lo, hi in near):
                for number in self._slices(update.row):
                    yield self._as_given(update, number)

    def _is_near(self, window: dict[str, Any], near: list[tuple[int, int]], expired: int | None) -> bool:
        start, end = window["window_start"], window["window_end"]
        if expired is not None and end <= expired:
            return True
        if self.definition.kind.slice_us is not None:
            end = start
        return any(start <= hi and end >= lo for lo, hi in near)

    def _times(self, row: Row) -> list[int]:
        assert row.time is not None
        return [row.time, *([row.lo] if self.definition.moves_late_rows and row.time < row.lo else [])]

    def _slices(self, row: Row) -> Iterable[int | None]:
        length, halo = self.definition.kind.slice_us, self.definition.kind.geometry.halo
        if length is None or halo is None:
            return [None]
        return {
            number
            for time in self._times(row)
            for number in range((time - halo[0]) // length, (time + halo[1]) // length + 1)
        }

    def _as_given(self, update: Update, number: int | None) -> dict[str, Any]:
        row = update.row
        keys = dict(zip((f"k_{k}" for k in self.definition.key), row.key, strict=True))
        values = {f"v_{c}": row.values[c] for c in self.definition.values_read}
        adaptive = {"delta_id": row.delta_id, "vector": row.entity, "size": row.values.get("__bytes", 0)}
        marks = {"is_window": False, "diff": update.diff, "touched": update.touched, "slice": number}
        return {**keys, **values, **adaptive, **marks, "time": row.time, "lo": row.lo, "row_id": row.row_id}


def _same(left: dict[str, Any], right: dict[str, Any], columns: list[str]) -> bool:
    return all(left[column] == right[column] for column in columns)
