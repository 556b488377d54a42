"""What runs in the Python workers when windows are restated: rows and published windows of whole groups to corrections.

A worker gets its partition in any order, all of a group (the key, and the slice of time where hot keys are cut)
together, and works on it as the library's do (`windows.worker`), within the source's `memory.max_bytes`: it sorts rows
and published windows, and compares the windows of the rows that stream by with the published ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.definitions.definition import Definition
from spark_jobs.kernels import accounts
from spark_jobs.kernels.accounts import Account, account, astray, skipped_rows
from spark_jobs.kernels.comparison import PLACED
from spark_jobs.kernels.lateness import Lateness
from spark_jobs.kernels.windows import MemoryUse, SkippedRows
from spark_jobs.kernels.windows.slices import SLICE_COLUMN, HotKey, OwnSlice
from spark_jobs.kernels.windows.streams import Windowing
from spark_jobs.windows.worker import METRICS, Correcting, Given, WindowsTask, metric_column

ACCOUNT_PREFIX = "__rows_"
"""Columns of a worker's last row, which tells the account of its rows; they are null elsewhere, as those of METRICS
are. No name of a source file starts so."""


def given_schema(definition: Definition, *, sliced: bool = False) -> pa.Schema:
    """What a worker takes: rows (`is_window` false) and published windows, each with nulls in the other's columns;
    `sliced`: hot keys are cut."""
    bounds = [(name, pa.int64()) for name in ("window_start", "window_end", "known_from")]
    results = definition.result_schema()
    own = [(name, results.field(name).type) for name in definition.own_columns]
    return pa.schema(
        [
            ("is_window", pa.bool_()),
            *([(SLICE_COLUMN, pa.int64())] if sliced else []),
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

    `hot`: keys that are cut into slices, which a column names then. `max_bytes`: what a worker may hold; None: as the
    source has it. `most_rows`: how many rows become windows at a time; None: as many as that allows.
    """

    definition: Definition
    known_from_us: int
    everything: bool
    expired_us: int | None = None
    hot: tuple[HotKey, ...] = ()
    max_bytes: int | None = None
    most_rows: int | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Corrections in the order of groups, and at the end the account and the memory it took."""
        schema = result_schema(self.definition)
        ledger, use = _Ledger(self.definition, self.hot), MemoryUse()
        windowing = self.definition.windowing(self.hot, ledger.watch)
        published = self._published_schema(windowing)
        task = WindowsTask(
            windowing,
            PLACED,
            self.max_bytes or self.definition.source.memory.max_bytes,
            most_columns=len(published),
            correcting=Correcting(published, self.known_from_us, self.everything, self.expired_us),
            most_rows=self.most_rows,
        )
        given = (self._given(pa.Table.from_batches([batch]), ledger, published) for batch in batches)
        for made in task(given, use):
            named = made.rename_columns([_plain(name) for name in made.column_names])
            yield from filled(named, schema).to_batches()
        told = {f"{ACCOUNT_PREFIX}{name}": getattr(ledger.account, name) for name in accounts.NAMES}
        told |= {metric_column(name): getattr(use, name) for name in METRICS}
        yield from filled(pa.table({name: pa.array([n], pa.int64()) for name, n in told.items()}), schema).to_batches()

    def _given(self, table: pa.Table, ledger: _Ledger, published: pa.Schema) -> Given:
        """The rows of a batch, judged and accounted for, and the windows in it."""
        is_window = table.column("is_window")
        windows = table.filter(is_window).select(published.names) if pc.any(is_window).as_py() else None
        rows = table if windows is None else table.filter(pc.invert(is_window))
        names = [*([SLICE_COLUMN] if self.hot else []), *self.definition.inputs().names, "diff", "touched"]
        rows = rows.select(names)
        lateness = self.definition.lateness(_ints(rows, "time"), _ints(rows, "lo"))
        ledger.take(rows, lateness)
        rows = rows.append_column("min_end", pa.array(lateness.min_end))
        return rows.append_column(PLACED, pa.array(lateness.placed)), windows

    def _published_schema(self, windowing: Windowing) -> pa.Schema:
        own = ["window_start", "window_end", *self.definition.own_columns, *self.definition.aggregates]
        given = given_schema(self.definition, sliced=bool(self.hot))
        return pa.schema([given.field(name) for name in [*windowing.key, *own, "known_from", "revision", "era"]])


class _Ledger:
    """The account of a worker's touched rows, and by how much the windows made differ from it, see `accounts`."""

    def __init__(self, definition: Definition, hot: tuple[HotKey, ...]) -> None:
        self.account = Account()
        self._definition, self._own_slice = definition, OwnSlice(hot) if hot else None

    def take(self, rows: pa.Table, lateness: Lateness) -> None:
        """Account for the touched rows; of a row that is in several slices, for that in the slice of its own time."""
        counted: npt.NDArray[np.bool_] = rows.column("touched").to_numpy()
        if self._own_slice is not None:
            counted = counted & self._own_slice.at(rows, "time")
        skipped = skipped_rows(rows, self._definition.required)
        self.account += account(_ints(rows, "diff"), lateness, skipped, counted)

    def watch(self, standing: pa.Table, counts: SkippedRows) -> None:
        """Rows that became windows together."""
        lateness = self._definition.lateness(_ints(standing, "time"), _ints(standing, "lo"))
        off = astray(lateness, skipped_rows(standing, self._definition.required), counts)
        self.account += Account(astray=off)


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
