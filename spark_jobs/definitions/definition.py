"""A window definition of a source file, resolved: the kernel's view of it, its table, and the condition that its
windows are final.

A worker's table has `k_<column>`, `v_<column>` (see `calls`), `time` and `lo` in microseconds, `row_id`, `diff` and
`touched`. `lo` is the row's cutoff: the start of its drop, or under a grace its stream time less the grace. For
adaptive windows it also has `delta_id`, `vector` and `size`; for emissions by the trigger `size` it has `size`. If the
source has a sequence, it has `sequence`: texts that order rows of one time before their row ids do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from spark_jobs.definitions.calls import columns_read, describe, kernel_aggregate, result_type, with_vectors
from spark_jobs.definitions.kinds import kind_of
from spark_jobs.engine.columns import Flags, Ints, numbers, present
from spark_jobs.engine.records import GREATEST_US, LEAST_US
from spark_jobs.engine.restatement import PLACED
from spark_jobs.engine.windows import (
    POLICIES,
    REASONS,
    SLICE_COLUMN,
    AdaptiveKind,
    Aggregate,
    Discard,
    EmissionsKind,
    Found,
    HotKey,
    Overflowed,
    Policy,
    RowLateness,
    SkippedRows,
    SqlTicks,
    Ticks,
    Windowing,
    WindowInputs,
    WindowKind,
    find_windows,
    judge,
)
from spark_jobs.sources import Source
from spark_jobs.sources.emissions import EmissionsWindow
from spark_jobs.sources.windows import Window
from spark_jobs.storage.coordination.fold import History
from spark_jobs.storage.descriptions.chain_tables import CHAINS, SEGMENT
from spark_jobs.storage.descriptions.column_types import arrow_type_of, sql_type, sql_type_of
from spark_jobs.storage.descriptions.schema import Column, Table
from spark_jobs.storage.descriptions.sql import drop_start_sql, name
from spark_jobs.storage.descriptions.tables import STATE, windows

Watch = Callable[[pa.Table, SkippedRows], None]
"""A function that is called with standing rows, and with the numbers of them that are in no window."""
_ADAPTIVE_INPUTS = {"delta_id": pa.string(), "vector": pa.string(), "size": pa.int64()}
_OWN_COLUMNS: dict[str, tuple[pa.DataType | None, str]] = {
    "window_id": (pa.string(), "Cell, a dot, and the window's place in the cell; unique within a key."),
    "delta_ids": (pa.list_(pa.string()), "The deltas in the window, in order of time."),
    "stats": (None, "Deltas, different values of the vector column, bytes, mean bytes, microseconds."),
    "trigger": (
        pa.string(),
        "Reason of its end: time, count, size, rate_change, memory_pressure; reset: the cell's end.",
    ),
}
"""The columns that only adaptive windows have: type and comment. The kind says which type `stats` has."""
_RATE = " Then rows a second before its first row, and the microseconds over which they were counted."
_EMISSION_COLUMNS = {
    "emission": (pa.int64(), "Number of the emission in its window, from 1; the last one is the window's result."),
    "trigger": (pa.string(), "Reason of the emission: the trigger that fired; end: the window's result."),
    "emitted_at": (
        pa.int64(),
        "Event time of the emission: the instant of time, the time of the row that fired, or the window's end.",
    ),
}
"""The columns that only emissions have, as a worker has them; times are in microseconds."""
_TIMES = frozenset({"emitted_at"})


@dataclass(frozen=True)
class Definition:
    """One window definition of one source."""

    source: Source
    name: str

    @property
    def window(self) -> Window | EmissionsWindow:
        """The window as the source file describes it."""
        return self.source.windows[self.name]

    @property
    def key(self) -> tuple[str, ...]:
        """The columns of the file that make up the key: each value of the key has its own windows."""
        return tuple(self.window.key)

    @property
    def time(self) -> str:
        """The timeline over which the windows run."""
        return self.source.window_time(self.name)

    @cached_property
    def kind(self) -> WindowKind:
        """The kernel's kind of windows."""
        return kind_of(self.window)

    @property
    def policy(self) -> Policy:
        """The policy for late rows. Under a grace, pairs that come after it do not count; see `restatement.cutoffs`."""
        if self.grace_us is not None:
            return Discard()
        return POLICIES[self.window.late.policy](self.window.late.limit_us)

    @property
    def grace_us(self) -> int | None:
        """The time for which windows stay open behind the stream time, in microseconds; None: a late policy applies."""
        return None if self.window.grace is None else self.window.grace.period_us

    def expired_us(self, reached_us: int) -> int | None:
        """The greatest end of a window that is no longer kept once runs have reached `reached_us`, in microseconds.
        None if all windows are kept."""
        return None if self.window.keep_us is None else reached_us - self.window.keep_us

    @property
    def moves_late_rows(self) -> bool:
        """True if a row may count at its drop's start in place of its own time."""
        return self.policy.moves_rows

    @property
    def places_rows(self) -> bool:
        """True if a row may count at another time than its own."""
        return self.moves_late_rows or self.kind.tick > 1

    @property
    def is_adaptive(self) -> bool:
        """True if the windows are adaptive: they list deltas and have ids."""
        return isinstance(self.kind, AdaptiveKind)

    @cached_property
    def aggregates(self) -> dict[str, Aggregate]:
        """The aggregates by their result columns (`a_<output>`)."""
        return {f"a_{name}": kernel_aggregate(name, call) for name, call in self.window.aggregates.items()}

    @property
    def values_read(self) -> list[str]:
        """The columns of the file that the aggregates and the triggers of early results read, each once."""
        triggers = self.window.triggers if isinstance(self.window, EmissionsWindow) else ()
        of_triggers = (column for trigger in triggers for column in trigger.columns)
        return list(dict.fromkeys([*columns_read(self.window.aggregates), *of_triggers]))

    @property
    def own_inputs(self) -> dict[str, pa.DataType]:
        """The columns of a worker's table that only windows of this kind need."""
        if self.is_adaptive:
            return _ADAPTIVE_INPUTS
        measured = isinstance(self.kind, EmissionsKind) and self.kind.size_bytes is not None
        return {"size": _ADAPTIVE_INPUTS["size"]} if measured else {}

    @property
    def required(self) -> list[str]:
        """The columns of a worker's table in which a row must have a value to be in a window."""
        if self.is_adaptive:
            return list(_ADAPTIVE_INPUTS)
        of_aggregates = columns_read(self.window.aggregates)
        return [f"v_{c}" for c in of_aggregates] if self.kind.null_values == "skip_row" else []

    def left_out(self, updates: pa.Table) -> dict[str, Flags]:
        """Flags by reason (`accounts.REASONS`): True for each update that is in no window for this reason, whatever
        other rows there are. An update has at most one reason. `updates`: columns of the trace, among them the
        definition's time and key."""
        time = updates[f"t_{self.time}"]
        has_key = np.ones(updates.num_rows, np.bool_)
        for key in self.key:
            has_key &= present(updates[f"c_{key}"])
        has_time = has_key & present(time)
        inside = self.kind.within(self.kind.in_ticks(numbers(time)), LEAST_US, GREATEST_US)
        return dict(zip(REASONS, (~has_key, has_key & ~has_time, has_time & ~inside), strict=True))

    def can_count(self, updates: pa.Table) -> Flags:
        """True for each update that has none of the reasons of `left_out`."""
        return ~np.logical_or.reduce([*self.left_out(updates).values()])

    @property
    def groups(self) -> list[str]:
        """The columns of a worker's table that have the values of the key."""
        return [f"k_{k}" for k in self.key]

    @property
    def own_columns(self) -> list[str]:
        """The columns of the table that only windows of this kind have."""
        return [name for name, _ in self._columns_of_kind()]

    def lateness(self, times: Any, cutoffs: Any) -> RowLateness:
        """The judgement about rows at `times`, with the `cutoffs` of `restatement.cutoffs`, both in microseconds."""
        return judge(times, cutoffs, self.kind, self.policy)

    def places(self, times: Ints, lo: Ints) -> Ints:
        """The times at which rows of drops that start at `lo` count: the ticks of their own `times`, or of `lo` if they
        move on."""
        return self.lateness(times, lo).placed if self.moves_late_rows else self.kind.in_ticks(times)

    def times_at_places(self, low: int, high: int) -> tuple[int, int]:
        """The first and the last time of rows that count within `[low, high]` and did not move on."""
        return low, high + self.kind.tick - 1

    def windowing(
        self, hot: tuple[HotKey, ...] = (), watch: Watch | None = None, overflowed: Overflowed | None = None
    ) -> Windowing:
        """The kernel's view of standing rows that have a `min_end` and PLACED; times as int64.

        Args:
            hot: keys that are cut into slices; if there are any, SLICE_COLUMN has the slice of a row.
            watch: called with all rows from which windows are made.
            overflowed: called with results that do not fit into their types; None: they are an error.
        """
        inputs = WindowInputs(
            key=[*self.groups, *([SLICE_COLUMN] if hot else [])],
            time="time",
            aggregates=self.aggregates,
            min_end="min_end",
            placed=PLACED if self.places_rows else None,
            arrival="row_id",
            sequence="sequence" if self.source.sequence else None,
            overflowed=overflowed,
        )

        def find(table: pa.Table, open_windows: Any = None) -> Found:
            windows = find_windows(self.kind, inputs, with_vectors(table, self.window.aggregates), open_windows)
            if watch is not None:
                watch(table, windows.skipped)
            return windows

        return Windowing(tuple(inputs.key), self.kind, find, hot)

    def inputs(self) -> pa.Schema:
        """The schema of the rows in a worker's table, without the marks of its caller."""
        types = {name: arrow_type_of(spec) for name, spec in self.source.columns.items()}
        return pa.schema(
            [
                *[(group, types[k]) for group, k in zip(self.groups, self.key, strict=True)],
                ("time", pa.int64()),
                ("lo", pa.int64()),
                ("row_id", pa.int64()),
                *[(f"v_{c}", types[c]) for c in self.values_read],
                *self.own_inputs.items(),
                *([("sequence", pa.string())] if self.source.sequence else ()),
            ]
        )

    @cached_property
    def result_types(self) -> dict[str, pa.DataType]:
        """The types of the kernel's results, by output column."""
        types = {name: arrow_type_of(spec) for name, spec in self.source.columns.items()}
        return {name: result_type(name, call, types) for name, call in self.window.aggregates.items()}

    def value_columns(self) -> list[Column]:
        """The columns of the table with a window's values: key, bounds, the kind's own columns, and aggregates."""
        keys = [Column(k, sql_type_of(self.source.columns[k]), f"Key: column {k} of the file.") for k in self.key]
        end = "exclusive" if self.kind.half_open else "inclusive"
        bounds = [
            Column("window_start", "TIMESTAMP", "First instant of the window."),
            Column("window_end", "TIMESTAMP", f"End of the window, {end}."),
        ]
        columns_of_kind = [
            Column(name, "TIMESTAMP" if name in _TIMES else sql_type(kind), comment)
            for name, (kind, comment) in self._columns_of_kind()
        ]
        values = [
            Column(name, sql_type(self.result_types[name]), f"{describe(call)} over the window's rows.")
            for name, call in self.window.aggregates.items()
        ]
        return [*keys, *bounds, *columns_of_kind, *values]

    def result_schema(self) -> pa.Schema:
        """The schema of `value_columns` in a worker's results: bounds and instants are in microseconds."""
        types = {name: arrow_type_of(spec) for name, spec in self.source.columns.items()}
        return pa.schema(
            [
                *[(k, types[k]) for k in self.key],
                ("window_start", pa.int64()),
                ("window_end", pa.int64()),
                *[(name, kind) for name, (kind, _) in self._columns_of_kind()],
                *self.result_types.items(),
            ]
        )

    def _columns_of_kind(self) -> list[tuple[str, tuple[pa.DataType, str]]]:
        if isinstance(self.window, EmissionsWindow):
            return list(_EMISSION_COLUMNS.items())
        if not isinstance(self.kind, AdaptiveKind):
            return []
        _, described = _OWN_COLUMNS["stats"]
        stats = self.kind.stats_type, described + (_RATE if self.kind.cuts.rate_window is not None else "")
        return list({**_OWN_COLUMNS, "stats": stats}.items())

    def table(self) -> Table:
        """The history table of the windows."""
        return windows(self.source, self.name, self.value_columns(), self.identity)

    @property
    def identity(self) -> list[str]:
        """The columns of the table that identify a window among those that are live at the same time."""
        return [*self.key, *self.kind.identity]

    def behind_condition(self) -> str:
        """An SQL condition over a window `c` and an update `u`: true if the update can have changed the window."""
        same = [f"u.{name(f'c_{key}')} <=> c.{name(key)}" for key in self.key]
        start, end = (SqlTicks(f"unix_micros(c.{bound})") for bound in ("window_start", "window_end"))
        low, high = self.kind.changed_by(start, end)
        if self.kind.tick > 1:
            high = high + (self.kind.tick - 1)
        drops = self.source.drops
        time, lo = f"unix_micros(u.{name(f't_{self.time}')})", drop_start_sql(drops, "u.seq_no")
        near = f"{time} BETWEEN {low} AND {high}"
        if self.moves_late_rows:
            near = f"({near} OR ({time} < {lo} AND {lo} BETWEEN {low} AND {high}))"
        return " AND ".join([*same, near])

    @property
    def part(self) -> str:
        """The name of this definition among the parts of the source's definition."""
        return f"window.{self.name}"

    def least_open(self, complete: Ticks) -> Ticks | None:
        """The least last instant of a window in which rows of drops at or after `complete` may count. None: any may be,
        or, under a grace, rows alone decide it."""
        if self.grace_us is not None:
            return None
        return self.policy.least_instants(complete, half_open=self.kind.half_open)

    def final_condition(self) -> str:
        """An SQL condition over the view's `p` and `h`: true if the late policy would leave out every row of any drop
        at or after `complete`."""
        least = self.least_open(SqlTicks("unix_micros(p.complete)"))
        if least is None:
            return "false"
        start, end = (SqlTicks(f"unix_micros(h.{bound})") for bound in ("window_start", "window_end"))
        return f"({self.kind.closes(start, end) - int(self.kind.half_open)} < {least})"


def definitions(source: Source) -> list[Definition]:
    """The window definitions of a source, in the order of its file."""
    return [Definition(source, name) for name in source.windows]


def histories(source: Source) -> list[History]:
    """The history tables, with rows that may be closed, of a source's windows, states and chains."""
    of_windows = [History(d.table(), tuple(d.identity)) for d in definitions(source)]
    of_state = [] if source.state is None else [History(STATE, ("source", "entity"))]
    # reads of the past need no closed segment: the live ones have every delta that is visible at a readable time
    of_chains = [History(CHAINS, SEGMENT, keeps_closed=False)] if source.keeps_chains else []
    return [*of_windows, *of_state, *of_chains]
