"""From a window definition of a source file to what the kernel and the tables need: columns, lateness, reach,
finality."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import pyarrow as pa

from spark_jobs.errors import ConfigurationError
from spark_jobs.kernels import windows as kernels
from spark_jobs.kernels.restatement import Reach, Windowing
from spark_jobs.kernels.windows import Aggregate
from spark_jobs.sources import Source
from spark_jobs.storage.schema import Column, Table
from spark_jobs.storage.tables import SQL_TYPES, windows

NEVER_LATE = -(2**63)
ARROW_TYPES = {
    "int": pa.int64(),
    "float": pa.float64(),
    "string": pa.string(),
    "bool": pa.bool_(),
    "timestamp": pa.timestamp("us", "UTC"),
    "date": pa.date32(),
}
_SQL_OF_ARROW = {
    pa.int64(): "BIGINT",
    pa.float64(): "DOUBLE",
    pa.string(): "STRING",
    pa.bool_(): "BOOLEAN",
    pa.timestamp("us", "UTC"): "TIMESTAMP",
    pa.date32(): "DATE",
}
_FUNCTIONS: dict[str, Any] = {
    "sum": kernels.sum_,
    "min": kernels.min_,
    "max": kernels.max_,
    "avg": kernels.avg,
    "first": kernels.first,
    "last": kernels.last,
}


class UnsupportedWindow(ConfigurationError):
    """The pipeline does not run this kind of window or late policy yet. Facts: `source`, `definition`."""

    code = "unsupported_window"


@dataclass(frozen=True)
class Definition:
    """One window definition of a source, resolved."""

    source: Source
    name: str

    @property
    def _spec(self) -> Any:
        return self.source.windows[self.name]

    @property
    def key(self) -> tuple[str, ...]:
        """Columns of the file that the windows are per."""
        return tuple(self._spec.key)

    @property
    def time(self) -> str:
        """The timeline over which the windows run."""
        return self.source.window_time(self.name)

    @property
    def span_us(self) -> int:
        """Size, or gap of sessions: beyond this (and one tick) from a touched row nothing is affected."""
        return self._spec.gap_us if self._spec.kind == "session" else self._spec.size_us

    @property
    def is_session(self) -> bool:
        """Whether bounds of a window are not known before its rows are."""
        return self._spec.kind == "session"

    @property
    def is_half_open(self) -> bool:
        """Whether a window's end is not in it."""
        return self._spec.kind in ("tumbling", "hopping")

    @property
    def step_us(self) -> int:
        """Distance of the starts of half-open windows."""
        return self._spec.step_us if self._spec.kind == "hopping" else self.span_us

    @property
    def discards(self) -> bool:
        """Whether a row is left out of every window it is late for."""
        return self._spec.late.policy == "discard"

    @property
    def limit_us(self) -> int | None:
        """Microseconds that a row may be late for a window and still count in it; None: without limit."""
        return 0 if self.discards else self._spec.late.limit_us

    @property
    def aggregates(self) -> dict[str, Aggregate]:
        """Output column -> aggregate."""
        return {
            name: kernels.count() if a.column is None else _FUNCTIONS[a.function](a.column)
            for name, a in self._spec.aggregates.items()
        }

    @property
    def columns_read(self) -> list[str]:
        """Columns of the file that the aggregates read, each once, but those that are keys."""
        read = dict.fromkeys(a.column for a in self._spec.aggregates.values() if a.column)
        return [column for column in read if column not in self.key]

    @cached_property
    def windowing(self) -> Windowing:
        """The kernel's view."""
        return Windowing(self.key, self._reach(), partial(_build, self))

    def _reach(self) -> Reach:
        kind, policy = self._spec.kind, self._spec.late.policy
        if kind == "adaptive" or policy == "next_window":
            raise UnsupportedWindow(
                expected="a sliding, session, tumbling or hopping window with the late policy reemit or discard",
                found=f"{self.name} of kind {kind} with {policy}",
                consequence="nothing was run",
                next_step="choose another policy, or use `spark_jobs.windows` on a DataFrame for this kind",
                source=self.source.name,
                definition=self.name,
            )
        if kind == "session":
            return Reach(self.span_us, self.span_us)
        return Reach(0, -1) if self.is_half_open else Reach(1, 0)

    def build(self, rows: pa.Table) -> pa.Table:
        """Windows of standing rows: times as int64."""
        shared: dict[str, Any] = {
            "key": list(self.key),
            "time": "time",
            "aggregates": self.aggregates,
            "min_end": "min_end",
            "arrival": "row_id",
        }
        match self._spec.kind:
            case "sliding":
                table, _ = kernels.sliding_table(rows, size=self.span_us, clip_at_zero=False, **shared)
            case "session":
                table, _ = kernels.session_table(rows, gap=self.span_us, **shared)
            case "tumbling":
                table, _ = kernels.tumbling_table(rows, size=self.span_us, **shared)
            case _:
                table, _ = kernels.hopping_table(rows, size=self.span_us, advance=self.step_us, **shared)
        return table

    def value_columns(self) -> list[Column]:
        """Key columns, bounds and aggregates as the table has them, types as the kernel gives them."""
        empty = pa.table(
            {
                **{k: pa.array([], ARROW_TYPES[self.source.columns[k].type]) for k in self.key},
                **{c: pa.array([], ARROW_TYPES[self.source.columns[c].type]) for c in self.columns_read},
                "time": pa.array([], pa.int64()),
                "row_id": pa.array([], pa.int64()),
                "min_end": pa.array([], pa.int64()),
            }
        )
        built = self.build(empty).schema
        keys = [Column(k, SQL_TYPES[self.source.columns[k].type], f"Key: column {k} of the file.") for k in self.key]
        inclusive = "inclusive" if self._spec.kind in ("sliding", "session") else "exclusive"
        bounds = [
            Column("window_start", "TIMESTAMP", "First instant of the window."),
            Column("window_end", "TIMESTAMP", f"End of the window, {inclusive}."),
        ]
        values = [
            Column(
                name, _SQL_OF_ARROW[built.field(name).type], f"{a.function}({a.column or ''}) over the window's rows."
            )
            for name, a in self._spec.aggregates.items()
        ]
        return [*keys, *bounds, *values]

    def table(self) -> Table:
        """The history table."""
        return windows(self.source, self.name, self.value_columns())

    @property
    def identity(self) -> list[str]:
        """What tells two windows apart that hold at the same time."""
        return [*self.key, "window_start"]

    def final_condition(self) -> str:
        """SQL over the view's `p` and `h`: whether every row of any drop at or after `complete` would be left out."""
        if self.limit_us is None:
            return "false"
        # a row that can still change a session is at most a gap after its end, and counts as ending a gap after that
        reach = f"unix_micros(h.window_end) + {self.limit_us + (2 * self.span_us if self.is_session else 0)}"
        late_at_once = self.discards and self.is_half_open
        return f"({reach} {'<=' if late_at_once else '<'} unix_micros(p.complete))"


def _build(definition: Definition, rows: pa.Table) -> pa.Table:
    return definition.build(rows)


def definitions(source: Source) -> list[Definition]:
    """The window definitions of a source, in the order of its file."""
    return [Definition(source, name) for name in source.windows]
