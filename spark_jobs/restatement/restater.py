"""What runs in the Python workers when windows are restated: rows and published windows of whole groups to corrections.

A worker gets its partition sorted by group (the key, and the slice of time where keys are cut into slices) and holds
the rows of one group, or of small ones together: `LEAST_ROWS`. A hot key is cut into slices for every kind but
sessions, whose rows of one key near touched ones are held together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.kernels import accounts
from spark_jobs.kernels.accounts import Account, account, astray, skipped_rows
from spark_jobs.kernels.grouping import whole_groups
from spark_jobs.kernels.restatement import SLICE, restate
from spark_jobs.kernels.windows import SkippedRows, Wanted
from spark_jobs.restatement.definitions import Definition
from spark_jobs.restatement.published import without_closed

LEAST_ROWS = 1 << 17
"""Rows that are worked on at once, if groups are small."""
ACCOUNT_PREFIX = "__rows_"
"""Columns of a worker's last row, which tells the account of its rows; they are null elsewhere. No name of a source
file starts so."""
LARGEST_GROUP = "__largest_group"


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
            (LARGEST_GROUP, pa.int64()),
        ]
    )


@dataclass(frozen=True)
class Restater:
    """The function of `mapInArrow`: sorted rows and windows to corrections, and one row with the account."""

    definition: Definition
    known_from_us: int
    everything: bool
    expired_us: int | None = None
    least_rows: int = LEAST_ROWS

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Corrections group by group, and at the end the account."""
        total, largest = Account(), 0
        schema = result_schema(self.definition)
        for held in whole_groups(batches, self.definition.groups, least_rows=self.least_rows):
            made, own = self._restate(held)
            total, largest = total + own, max(largest, held.num_rows)
            yield from filled(made, schema).to_batches()
        numbers = {f"{ACCOUNT_PREFIX}{name}": pa.array([getattr(total, name)]) for name in accounts.NAMES}
        yield from filled(pa.table({**numbers, LARGEST_GROUP: pa.array([largest])}), schema).to_batches()

    def _restate(self, held: pa.Table) -> tuple[pa.Table, Account]:
        is_window = held.column("is_window")
        marked = ["diff", "touched"]
        rows = held.filter(pc.invert(is_window)).select([*self.definition.inputs().names, *marked])
        published = without_closed(held.filter(is_window).select(self._window_columns()), self._identity())
        lateness = self.definition.lateness(_ints(rows, "time"), _ints(rows, "lo"))
        rows = rows.append_column("min_end", pa.array(lateness.min_end))
        rows = rows.append_column("placed", pa.array(lateness.placed))
        skipped = skipped_rows(rows, self.definition.required)
        own = account(_ints(rows, "diff"), lateness, skipped, self._counted_here(rows))
        off: list[int] = []

        def build(standing: pa.Table, wanted: Wanted) -> pa.Table:
            made, counts = self.definition.build(standing, wanted)
            off.append(self._astray(standing, counts))
            return made

        windowing = replace(self.definition.windowing, build=build)
        made = restate(
            rows,
            published,
            windowing,
            known_from=self.known_from_us,
            everything=self.everything,
            expired=self.expired_us,
        )
        return made.rename_columns([_plain(name) for name in made.column_names]), replace(own, astray=sum(off))

    def _window_columns(self) -> list[str]:
        own = ["window_start", "window_end", *self.definition.own_columns, *self.definition.aggregates]
        return [*self.definition.groups, *own, "known_from", "revision", "era"]

    def _identity(self) -> list[str]:
        return [*self.definition.groups, "window_start"]

    def _counted_here(self, rows: pa.Table) -> npt.NDArray[np.bool_]:
        """Touched rows; of a row that is in several slices, the copy in the slice of its own time."""
        chosen: npt.NDArray[np.bool_] = rows.column("touched").to_numpy()
        length = self.definition.kind.slice_us
        return chosen if length is None else chosen & (_ints(rows, "time") // length == _ints(rows, SLICE))

    def _astray(self, standing: pa.Table, counts: SkippedRows) -> int:
        lateness = self.definition.lateness(_ints(standing, "time"), _ints(standing, "lo"))
        return astray(lateness, skipped_rows(standing, self.definition.required), counts)


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
