"""What the records of a source look like and what its rows mean, as plain data that workers share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import pyarrow as pa

from spark_jobs.kernels.drops import UTC_DAYS, Drops
from spark_jobs.kernels.envelopes import Envelope
from spark_jobs.kernels.records.erased import Erasures

ColumnType = Literal["int", "float", "decimal", "string", "bool", "timestamp", "date"]
INSTANT = pa.timestamp("us", tz="UTC")
EXTRA = pa.map_(pa.string(), pa.string())
_ARROW_TYPES: dict[str, pa.DataType] = {
    "int": pa.int64(),
    "float": pa.float64(),
    "string": pa.string(),
    "bool": pa.bool_(),
    "timestamp": INSTANT,
    "date": pa.date32(),
}
TIMELINE_PREFIX = "t_"
COLUMN_PREFIX = "c_"
CHECK_PREFIX = "check."


@dataclass(frozen=True, slots=True)
class ColumnSpec:
    """A declared column: its name, its name in the files (`header`), and how its text is read.

    A file without an `optional` column has no value in it; a file without another one is rejected whole.
    `decimal` is the mark before the fraction of numbers in texts, `thousands` that between groups of three digits.
    `digits` are a decimal's: how many it has in all, and how many of them after the point.
    `time_formats` are `iso`, `epoch_s|ms|us|ns` or strptime patterns, of which the first counts that reads a text;
    `timezone` is that of times without an offset;
    `dst` says which instant a local time means that a clock change made ambiguous or skipped: earliest, latest or
    refuse.
    """

    name: str
    header: str
    type: ColumnType
    null_values: tuple[str, ...] = ()
    time_formats: tuple[str, ...] = ("iso",)
    timezone: str = "UTC"
    dst: Literal["earliest", "latest", "refuse"] = "refuse"
    digits: tuple[int, int] | None = None
    optional: bool = False
    decimal: str = "."
    thousands: str = ""

    @property
    def arrow(self) -> pa.DataType:
        """The type of its values in Arrow."""
        return pa.decimal128(*self.digits) if self.digits is not None else _ARROW_TYPES[self.type]


@dataclass(frozen=True, slots=True)
class RowCheck:
    """A check of a source whose breakers go to quarantine, under the rule `check.<name>`.

    `column` is what it is about (none: `lateness`). `least` and `greatest` bound values, both included, `values` lists
    them: as their column has them in Arrow, times in microseconds, dates in days. Of `lateness` `greatest` are the
    microseconds that an event time may be before its drop. `expected` says it in words.
    """

    name: str
    kind: Literal["not_null", "between", "in", "matches", "lateness"]
    expected: str
    column: str = ""
    least: Any = None
    greatest: Any = None
    values: tuple[Any, ...] = ()
    pattern: str = ""

    @property
    def rule(self) -> str:
        """The id under which quarantine lists what breaks it."""
        return f"{CHECK_PREFIX}{self.name}"


@dataclass(frozen=True, slots=True)
class RecordSpec:
    """How the records of a source become rows.

    `timelines` are pairs of a timeline and its column; `event_time` and `arrival` name timelines, `entity` and
    `delta_id` columns. `unknown_columns`: keep, quarantine or fail (the last two both reject, see
    `rules.DRIFT_RULES`). Of each rule `max_rejects` rejects of a file are kept one by one, see `rejects`. A file with
    more lines than `max_lines` is rejected whole, as is one of more than `max_expansion` times its size, decompressed.
    `escape` is the character of CSV that takes their meaning from a quote and from itself in quotes, none where empty.
    With an `envelope` a record is an event, see `envelopes`; `skip_tombstones`: its tombstones are no records.
    `checks` are held against rows that break no rule. `drop_lo_us` is the start of the drop, which `drops` gives by its
    number. Nothing is kept of records about entities of `erased`. `may_be_empty`: a file without records is one, and
    not rejected.
    """

    columns: tuple[ColumnSpec, ...]
    timelines: tuple[tuple[str, str], ...]
    event_time: tuple[str, ...]
    entity: str
    arrival: str | None = None
    delta_id: tuple[str, ...] | None = None
    unknown_columns: Literal["keep", "quarantine", "fail"] = "keep"
    delimiter: str = ","
    encoding: str = "utf-8"
    escape: str = ""
    envelope: Envelope | None = None
    skip_tombstones: bool = False
    max_record_bytes: int = 1 << 20
    max_rejects: int = 10_000
    max_lines: int = (1 << 29) - 1
    max_expansion: int = 200
    checks: tuple[RowCheck, ...] = ()
    drops: Drops = UTC_DAYS
    drop_lo_us: int = 0
    erased: Erasures | None = None
    may_be_empty: bool = False

    def of_drop(self, seq_no: int) -> RecordSpec:
        """The same for the files of one drop."""
        return replace(self, drop_lo_us=self.drops.start(seq_no))

    @property
    def opened(self) -> frozenset[str]:
        """The names of the objects in which declared columns are: of `a.b.c` these are `a` and `a.b`."""
        parts = [column.header.split(".") for column in self.columns]
        return frozenset(".".join(names[:n]) for names in parts for n in range(1, len(names)))

    def place(self, column: str) -> int:
        """The position of a declared column."""
        return next(index for index, spec in enumerate(self.columns) if spec.name == column)

    def schema(self) -> pa.Schema:
        """The schema of the batches that the readers return.

        `line` (1 is the first line of the file; for Parquet the row), `entity`, `event_time`, `arrival`, `delta_id`,
        a column `t_<timeline>` per timeline, `c_<column>` per declared column, `extra` (what undeclared columns hold,
        as text), and `rule`, `reason`, `raw`: null in a good row; in a rejected one all others but `line` are null.
        Of a range of rejects `line` and `last_line` are the first and last one, `records` is how many lines from one
        to the other break the rule, `reason` and `raw` are those of the first; else `last_line`, `records` are null.
        """
        fields = [pa.field("line", pa.int64()), pa.field("entity", pa.string()), pa.field("event_time", INSTANT)]
        fields += [pa.field("arrival", INSTANT), pa.field("delta_id", pa.string())]
        fields += [pa.field(TIMELINE_PREFIX + name, INSTANT) for name, _ in self.timelines]
        fields += [pa.field(COLUMN_PREFIX + column.name, column.arrow) for column in self.columns]
        fields.append(pa.field("extra", EXTRA))
        fields += [pa.field(name, pa.string()) for name in ("rule", "reason", "raw")]
        return pa.schema([*fields, pa.field("last_line", pa.int64()), pa.field("records", pa.int64())])
