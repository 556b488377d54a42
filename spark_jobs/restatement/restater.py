"""What runs in the Python workers when windows are restated: rows and published windows of whole groups to corrections.

A worker gets its partition in any order, all of a group (the key, and the slice of time where keys are cut into slices)
together. It sorts rows and published windows within its budget of memory (`memory.max_bytes` of the source; what passes
it waits on disk), and compares the windows of the rows that stream by with the published ones: see
`kernels.restatement`. One open window's rows, and a cell's windows of the adaptive kind, are held whatever the budget
says; the peak then tells by how much it was passed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.definitions.definition import Definition
from spark_jobs.kernels import accounts
from spark_jobs.kernels.accounts import Account, account, astray, skipped_rows
from spark_jobs.kernels.comparison import PLACED, Published
from spark_jobs.kernels.restatement import SLICE, Pace, restate
from spark_jobs.kernels.windows import MemoryBudget, RowSorter, SkippedRows
from spark_jobs.windows.spill import RunFiles
from spark_jobs.windows.worker import METRICS, metric_column

ACCOUNT_PREFIX = "__rows_"
"""Columns of a worker's last row, which tells the account of its rows; they are null elsewhere, as those of METRICS
are. No name of a source file starts so."""


def given_schema(definition: Definition) -> pa.Schema:
    """What a worker takes: rows (`is_window` false) and published windows, each with nulls in the other's columns."""
    bounds = [(name, pa.int64()) for name in ("window_start", "window_end", "known_from")]
    results = definition.result_schema()
    own = [(name, results.field(name).type) for name in definition.own_columns]
    return pa.schema(
        [
            ("is_window", pa.bool_()),
            *definition.inputs(),
            ("diff", pa.int64()),
            ("touched", pa.bool_()),
            *bounds,
            ("revision", pa.int32()),
            ("era", pa.string()),
            *own,
            *[(f"a_{name}", kind) for name, kind in definition.result_types.items()],
        ]
    )


def has_small_rows(definition: Definition) -> bool:
    """Whether what a worker takes holds only numbers and times beside its key, so that any row is small."""
    texts = {"era", *(f"k_{key}" for key in definition.key)}
    return all(pa.types.is_primitive(field.type) for field in given_schema(definition) if field.name not in texts)


def result_schema(definition: Definition) -> pa.Schema:
    """What a worker gives: the table's columns but `token`, times in microseconds; then the account's."""
    return pa.schema(
        [
            *definition.result_schema(),
            ("known_from", pa.int64()),
            ("known_to", pa.int64()),
            ("revision", pa.int32()),
            ("era", pa.string()),
            *[(f"{ACCOUNT_PREFIX}{name}", pa.int64()) for name in accounts.NAMES],
            *[(metric_column(name), pa.int64()) for name in METRICS],
        ]
    )


@dataclass(frozen=True)
class Restater:
    """The function of `mapInArrow`: rows and windows in any order to corrections, and one row with the account.

    `max_bytes`: what a worker may hold; None: as the source has it. `most_rows`: how many rows become windows at a
    time; None: as many as that allows.
    """

    definition: Definition
    known_from_us: int
    everything: bool
    expired_us: int | None = None
    max_bytes: int | None = None
    most_rows: int | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Corrections in the order of groups, and at the end the account and the memory it took."""
        schema = result_schema(self.definition)
        budget = MemoryBudget(self.max_bytes or self.definition.source.memory.max_bytes)
        astray = _Astray(self.definition)
        with RunFiles() as store:
            rows, published = self._sorters(budget, store)
            total = Account()
            for batch in batches:
                total += self._take(pa.Table.from_batches([batch]), rows, published)
            for made in self._restated(rows, published, astray, budget):
                named = made.rename_columns([_plain(name) for name in made.column_names])
                yield from filled(named, schema).to_batches()
        total = replace(total, astray=astray.rows)
        told = {f"{ACCOUNT_PREFIX}{name}": getattr(total, name) for name in accounts.NAMES}
        told |= {metric_column(name): getattr(budget.use, name) for name in METRICS}
        yield from filled(pa.table({name: pa.array([n], pa.int64()) for name, n in told.items()}), schema).to_batches()

    def _sorters(self, budget: MemoryBudget, store: RunFiles) -> tuple[RowSorter, RowSorter]:
        """Of rows and of published windows, which come mixed."""
        groups = self.definition.groups
        rows = RowSorter(key=groups, time=PLACED, budget=budget, store=store, held_as="rows")
        published = RowSorter(key=groups, time="window_start", budget=budget, store=store, held_as="published")
        rows.share_with(published)
        return rows, published

    def _take(self, table: pa.Table, rows: RowSorter, published: RowSorter) -> Account:
        """Sort a batch in; what is made of its touched rows."""
        is_window = table.column("is_window")
        published.add(table.filter(is_window).select(self._published_schema().names))
        updates = table.filter(pc.invert(is_window)).select([*self.definition.inputs().names, "diff", "touched"])
        lateness = self.definition.lateness(_ints(updates, "time"), _ints(updates, "lo"))
        updates = updates.append_column("min_end", pa.array(lateness.min_end))
        updates = updates.append_column(PLACED, pa.array(lateness.placed))
        rows.add(updates)
        skipped = skipped_rows(updates, self.definition.required)
        return account(_ints(updates, "diff"), lateness, skipped, self._counted_here(updates))

    def _restated(
        self, rows: RowSorter, published: RowSorter, astray: _Astray, budget: MemoryBudget
    ) -> Iterator[pa.Table]:
        windowing = self.definition.windowing(astray)
        a_row, columns = windowing.maker.windows_a_row, len(self._published_schema())
        most_rows = self.most_rows or budget.rows_at_a_time(rows.row_bytes(), a_row, columns)

        def held(n_bytes: int, n_rows: int) -> None:
            budget.use.holds(windowing=budget.windowing_bytes(n_bytes, n_rows, a_row), windows=0)

        def made(n_bytes: int) -> None:
            budget.use.holds(windows=n_bytes)

        yield from restate(
            rows.chunks(most_rows),
            Published(published.chunks(most_rows), self._published_schema()),
            windowing,
            Pace(most_rows, budget.table_bytes(), held, made),
            known_from=self.known_from_us,
            everything=self.everything,
            expired=self.expired_us,
        )

    def _published_schema(self) -> pa.Schema:
        own = ["window_start", "window_end", *self.definition.own_columns, *self.definition.aggregates]
        names = [*self.definition.groups, *own, "known_from", "revision", "era"]
        given = given_schema(self.definition)
        return pa.schema([given.field(name) for name in names])

    def _counted_here(self, rows: pa.Table) -> npt.NDArray[np.bool_]:
        """Touched rows; of a row that is in several slices, the copy in the slice of its own time."""
        chosen: npt.NDArray[np.bool_] = rows.column("touched").to_numpy()
        length = self.definition.kind.slice_us
        return chosen if length is None else chosen & (_ints(rows, "time") // length == _ints(rows, SLICE))


@dataclass
class _Astray:
    """How many rows the windows made differ from what their lateness says, see `accounts`."""

    definition: Definition
    rows: int = 0

    def __call__(self, standing: pa.Table, counts: SkippedRows) -> None:
        """Of rows that became windows together."""
        lateness = self.definition.lateness(_ints(standing, "time"), _ints(standing, "lo"))
        self.rows += astray(lateness, skipped_rows(standing, self.definition.required), counts)


def _ints(table: pa.Table, column: str) -> npt.NDArray[np.int64]:
    return table.column(column).to_numpy()


def _plain(name: str) -> str:
    return name[2:] if name[:2] in ("k_", "a_") else name


def filled(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table with the columns of `schema`; null where it has none."""
    present = set(table.column_names)
    columns = [
        table.column(f.name).cast(f.type) if f.name in present else pa.nulls(table.num_rows, f.type) for f in schema
    ]
    return pa.table(columns, schema=schema)
