"""The work of the Python workers that restate windows: from rows and published windows of whole groups to corrections.

A group is a key, and a slice of time where hot keys are cut. A worker gets all rows of its groups, in any order. It
works as the workers of the library do (`WindowsTask`), within the source's `memory.max_bytes`: it sorts rows and
published windows, makes windows of the rows that stream by, and compares them with the published ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_jobs.definitions.definition import Definition
from spark_jobs.engine.restatement import PLACED
from spark_jobs.engine.spark.windows import Correcting, Given, WindowsTask
from spark_jobs.engine.windows import (
    SLICE_COLUMN,
    Account,
    HotKey,
    MemoryUse,
    OwnSlice,
    RowLateness,
    SkippedRows,
    account,
    astray,
    skipped_rows,
)
from spark_jobs.restatement.overflows import Overflows, plain_name


def row_schema(definition: Definition, *, sliced: bool = False) -> pa.Schema:
    """The schema of the rows that a worker takes; `sliced`: hot keys are cut."""
    return pa.schema(
        [
            *([(SLICE_COLUMN, pa.int64())] if sliced else []),
            *definition.inputs(),
            ("diff", pa.int64()),
            ("touched", pa.bool_()),
        ]
    )


def window_schema(definition: Definition, *, sliced: bool = False) -> pa.Schema:
    """The schema of the published windows that a worker takes: key, bounds in microseconds, the kind's own columns,
    and aggregates. `sliced`: hot keys are cut."""
    keys = [(group, definition.inputs().field(group).type) for group in definition.groups]
    results = definition.result_schema()
    columns = [(name, results.field(name).type) for name in definition.own_columns]
    return pa.schema(
        [
            *keys,
            *([(SLICE_COLUMN, pa.int64())] if sliced else []),
            ("window_start", pa.int64()),
            ("window_end", pa.int64()),
            *columns,
            *[(f"a_{name}", kind) for name, kind in definition.result_types.items()],
            ("known_from", pa.int64()),
            ("revision", pa.int32()),
            ("era", pa.string()),
        ]
    )


def result_schema(definition: Definition) -> pa.Schema:
    """The schema of a worker's corrections: the table's columns except `token`, with times in microseconds."""
    return pa.schema(
        [
            *definition.result_schema(),
            ("known_from", pa.int64()),
            ("known_to", pa.int64()),
            ("revision", pa.int32()),
            ("era", pa.string()),
        ]
    )


@dataclass
class WorkerReport:
    """The report of a worker, complete once it has made all corrections: the account of the touched rows, the memory
    that it took, and the results that did not fit into their types."""

    account: Account = field(default_factory=Account)
    memory: MemoryUse = field(default_factory=MemoryUse)
    overflows: Overflows = field(default_factory=Overflows)


@dataclass(frozen=True)
class Restater:
    """The function of a worker: from rows and windows in any order to corrections in the order of groups.

    `everything`: the definition changed, so all rows touch. `expired_us`: windows that end by then are not kept.
    `hot`: keys that are cut into slices; if there are any, the tables have a column with the slice. `max_bytes`: the
    memory that a worker may use; None: that of the source. `most_rows`: the number of rows that become windows at a
    time; None: as many as the memory allows.
    """

    definition: Definition
    known_from_us: int
    everything: bool
    expired_us: int | None = None
    hot: tuple[HotKey, ...] = ()
    max_bytes: int | None = None
    most_rows: int | None = None

    def __call__(self, given: Iterator[Given], outcome: WorkerReport) -> Iterator[pa.Table]:
        """Yield corrections as tables of `result_schema`; `given` are rows of `row_schema` and windows of
        `window_schema`."""
        schema, ledger = result_schema(self.definition), _Ledger(self.definition, self.hot)
        windowing = self.definition.windowing(self.hot, ledger.watch, outcome.overflows.take)
        published, memory = window_schema(self.definition, sliced=bool(self.hot)), self.definition.source.memory
        task = WindowsTask(
            windowing,
            PLACED,
            self.max_bytes or memory.max_bytes,
            most_columns=len(published),
            correcting=Correcting(published, self.known_from_us, self.everything, self.expired_us),
            most_rows=self.most_rows,
            high_water=memory.high_water,
            emergency=memory.emergency,
        )
        judged = ((self._judge(rows, ledger), windows) for rows, windows in given)
        for rows in task(judged, outcome.memory):
            yield fill_columns(rows.rename_columns([plain_name(name) for name in rows.column_names]), schema)
        outcome.account += ledger.account

    def _judge(self, rows: pa.Table, ledger: _Ledger) -> pa.Table:
        """The rows as the late policy places them; they are added to the account, too."""
        lateness = self.definition.lateness(_ints(rows, "time"), _ints(rows, "lo"))
        rows = rows.append_column("min_end", pa.array(lateness.min_end))
        rows = rows.append_column(PLACED, pa.array(lateness.placed))
        ledger.take(rows, lateness)
        return rows


class _Ledger:
    """The account of a worker's touched rows, and the number by which the windows differ from it; see `accounts`."""

    def __init__(self, definition: Definition, hot: tuple[HotKey, ...]) -> None:
        self.account = Account()
        self._definition, self._own_slice = definition, OwnSlice(hot) if hot else None

    def take(self, rows: pa.Table, lateness: RowLateness) -> None:
        """Account for the touched rows. A row that is in several slices counts in the one where it is placed."""
        counted: npt.NDArray[np.bool_] = rows.column("touched").to_numpy()
        if self._own_slice is not None:
            counted = counted & self._own_slice.at(rows, PLACED)
        skipped = skipped_rows(rows, self._definition.required)
        self.account += account(_ints(rows, "diff"), lateness, skipped, counted)

    def watch(self, rows: pa.Table, counts: SkippedRows) -> None:
        """Check rows that became windows together: add to `astray` the number by which `counts` differs from them."""
        lateness = self._definition.lateness(_ints(rows, "time"), _ints(rows, "lo"))
        off = astray(lateness, skipped_rows(rows, self._definition.required), counts)
        self.account += Account(astray=off)


def _ints(table: pa.Table, column: str) -> npt.NDArray[np.int64]:
    return table.column(column).to_numpy()


def fill_columns(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table with the columns and types of `schema`; a column that it lacks is null."""
    present = set(table.column_names)
    columns = [
        table.column(f.name).cast(f.type) if f.name in present else pa.nulls(table.num_rows, f.type) for f in schema
    ]
    return pa.table(columns, schema=schema)
