"""The form of a source's records and the meaning of its rows, as plain data that workers share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import pyarrow as pa

from spark_jobs.engine.calendar.drops import UTC_DAYS, Drops
from spark_jobs.engine.records.envelopes import Envelope
from spark_jobs.engine.records.erased import Erasures

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
    """A declared column: its name, its name in the files (`header`), and the form of its text.

    If a file lacks an `optional` column, the column is null in all of its rows; a file that lacks another column is
    rejected whole.
    `decimal` is the mark before the fraction of numbers in texts, `thousands` the mark between groups of three digits.
    `digits` are a decimal's number of digits, and its number of digits after the point.
    `time_formats` are `iso`, `epoch_s|ms|us|ns` or strptime patterns; the first one that reads a text is used.
    `timezone` is the zone of times without an offset.
    `dst` is the instant to take for a local time that a change of clocks made ambiguous or skipped: earliest, latest or
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
        """The Arrow type of the column's values."""
        return pa.decimal128(*self.digits) if self.digits is not None else _ARROW_TYPES[self.type]


@dataclass(frozen=True, slots=True)
class RowCheck:
    """A check of a source. Rows that break it are put into quarantine, under the rule `check.<name>`.

    `column` is the column that it checks (empty for `lateness`). `least` and `greatest` are bounds of values, both
    inclusive; `values` lists them. They have the form of the column in Arrow: times in microseconds, dates in days. For
    `lateness`, `greatest` is the number of microseconds that an event time may be before the start of its drop.
    `expected` is the check in words.
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
        """The rule under which quarantine lists the rows that break the check."""
        return f"{CHECK_PREFIX}{self.name}"


@dataclass(frozen=True, slots=True)
class RecordSpec:
    """The rules by which the records of a source become rows.

    `timelines` are pairs of a timeline and its column; `event_time` and `arrival` name timelines, `entity` and
    `delta_id` columns. `unknown_columns`: keep, quarantine or fail (the last two both reject, see
    `rules.DRIFT_RULES`). For each rule and file, `max_rejects` rejects are kept one by one, see `rejects`. A file with
    more lines than `max_lines` is rejected whole, as is a file that decompresses to more than `max_expansion` times its
    size. `escape` is the CSV character that escapes a quote, and itself, in quoted fields; empty: there is none.
    With an `envelope` a record is an event, see `envelopes`; `skip_tombstones`: tombstones are not taken as records.
    `checks` apply to rows that break no other rule. `drop_lo_us` is the start of the drop, from `drops` by its number,
    in microseconds. Nothing is kept of records with `erased` values. `may_be_empty`: a file without records is
    accepted.
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
        """The same spec for the files of one drop, with the start of that drop."""
        return replace(self, drop_lo_us=self.drops.start(seq_no))

    @property
    def opened(self) -> frozenset[str]:
        """The names of the objects that contain declared columns: for `a.b.c` these are `a` and `a.b`."""
        parts = [column.header.split(".") for column in self.columns]
        return frozenset(".".join(names[:n]) for names in parts for n in range(1, len(names)))

    def place(self, column: str) -> int:
        """The place in `columns` of the declared column with this name."""
        return next(index for index, spec in enumerate(self.columns) if spec.name == column)

    def schema(self) -> pa.Schema:
        """The schema of the batches that the readers return.

        The columns are `line` (1 is the first line of the file; for Parquet the row), `entity`, `event_time`,
        `arrival`, `delta_id`, a column `t_<timeline>` per timeline, `c_<column>` per declared column, `extra` (the
        values of undeclared columns, as text), and `rule`, `reason`, `raw`. These three are null in a good row. In a
        rejected row all columns but these and `line` are null.
        For a range of rejects, `line` and `last_line` are its first and last line, `records` is the number of records
        in between that break the rule, and `reason` and `raw` are those of the first. In other rows `last_line` and
        `records` are null.
        """
        fields = [pa.field("line", pa.int64()), pa.field("entity", pa.string()), pa.field("event_time", INSTANT)]
        fields += [pa.field("arrival", INSTANT), pa.field("delta_id", pa.string())]
        fields += [pa.field(TIMELINE_PREFIX + name, INSTANT) for name, _ in self.timelines]
        fields += [pa.field(COLUMN_PREFIX + column.name, column.arrow) for column in self.columns]
        fields.append(pa.field("extra", EXTRA))
        fields += [pa.field(name, pa.string()) for name in ("rule", "reason", "raw")]
        return pa.schema([*fields, pa.field("last_line", pa.int64()), pa.field("records", pa.int64())])
