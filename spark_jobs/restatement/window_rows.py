"""The updates of the trace and the published windows that a restatement of windows reads by pyarrow, in the form that
a worker takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.definitions.definition import Definition
from spark_jobs.engine.columns import Flags, Ints, numbers, present, sequence_texts, within_ranges
from spark_jobs.engine.hashes import hashes
from spark_jobs.restatement.cutoffs import Cutoffs
from spark_jobs.restatement.restater import row_schema, window_schema
from spark_jobs.restatement.touched import Range
from spark_jobs.storage.delta.data_files import StoredRows

_WIDTHS = {"int": 8, "float": 8, "decimal": 16, "timestamp": 8, "date": 4, "bool": 1}
"""The bytes of a value by its kind; texts are measured."""


@dataclass(frozen=True)
class UpdatesInReach:
    """The standing updates that count in some ranges of a definition's time; parts of them may be sent to tasks.

    Args:
        stored: the files; its `where` chooses the standing rows.
        near: the ranges of time, ascending.
        since: an update touches if its `time` is not before the first of these times, or its `event_time` not before
            the second; None: all updates touch.
        cutoffs: of a definition that has a grace.
    """

    definition: Definition
    stored: StoredRows
    near: tuple[Range, ...]
    since: tuple[int, int] | None
    cutoffs: Cutoffs | None = None

    @property
    def n_rows(self) -> int:
        """The number of stored rows, which is at least that of the updates."""
        return self.stored.n_rows

    @property
    def n_bytes(self) -> int:
        """See `StoredRows.n_bytes`."""
        return self.stored.with_columns(self.columns).n_bytes

    def split(self, most_rows: int) -> list[UpdatesInReach]:
        """The updates in parts of about `most_rows` rows."""
        return [replace(self, stored=part) for part in self.stored.split(most_rows)]

    def none(self) -> UpdatesInReach:
        """A copy without any rows."""
        return replace(self, stored=self.stored.without_rows())

    def tables(self) -> Iterator[pa.Table]:
        """Yield the rows as workers take them (`row_schema`), some at a time."""
        schema, definition = row_schema(self.definition), self.definition
        for table in self.stored.with_columns(self.columns).tables():
            rows = table.filter(pa.array(self._is_counting(table)))
            if not rows.num_rows:
                continue
            columns = {
                **{f"k_{key}": rows[f"c_{key}"] for key in definition.key},
                "time": pa.array(numbers(rows[self._time])),
                "lo": pa.array(self._cutoffs(rows)),
                **{name: rows[name] for name in ("row_id", "diff")},
                **{f"v_{column}": rows[f"c_{column}"] for column in definition.values_read},
                **{name: self._own_input(name, rows) for name in definition.own_inputs},
                **({"sequence": sequence_texts([rows[c] for c in self._sequence])} if self._sequence else {}),
                "touched": pa.array(self._is_touching(rows)),
            }
            yield pa.table([columns[field.name] for field in schema], schema=schema)

    def key_rows(self) -> Iterator[tuple[Ints, Ints, Ints]]:
        """Yield three arrays for some rows at a time: hashes of keys, the times at which rows count, and row ids."""
        needed = [self._time, "seq_no", "row_id", *self._keys]
        for table in self.stored.with_columns(needed).tables():
            rows = table.filter(pa.array(self._is_counting(table)))
            yield key_hashes(rows, self._keys), self._places(rows), numbers(rows["row_id"])

    @property
    def _time(self) -> str:
        return f"t_{self.definition.time}"

    @property
    def _keys(self) -> list[str]:
        return [f"c_{key}" for key in self.definition.key]

    @property
    def columns(self) -> list[str]:
        """The columns of updates that are read."""
        values = [f"c_{column}" for column in self.definition.values_read]
        marks = ["time", "event_time", "seq_no", "row_id", "diff"]
        return [
            self._time,
            *marks,
            *self._keys,
            *values,
            *self._columns_of_own_inputs,
            *self._sequence,
        ]

    @property
    def _sequence(self) -> list[str]:
        return [f"c_{column}" for column in self.definition.source.sequence]

    @property
    def _columns_of_own_inputs(self) -> list[str]:
        window = self.definition.window
        vector, size = getattr(window, "vector", None), getattr(window, "size_bytes", None)
        read = {
            "delta_id": ["delta_id"],
            "vector": ["entity" if vector is None else f"c_{vector}"],
            "size": [f"c_{column}" for column in self.definition.source.columns] if size is None else [f"c_{size}"],
        }
        return [column for name in self.definition.own_inputs for column in read[name]]

    def _drop_start(self, rows: pa.Table) -> Ints:
        drops = self.definition.source.drops
        return drops.starts(numbers(rows["seq_no"]))

    def _cutoffs(self, rows: pa.Table) -> Ints:
        """The cutoff of each row; see `cutoffs`."""
        if self.cutoffs is None:
            return self._drop_start(rows)
        times = self.definition.kind.in_ticks(numbers(rows[self._time]))
        return self.cutoffs.of(rows, times, self._is_touching(rows))

    def _is_counting(self, table: pa.Table) -> Flags:
        """True for each row that can count and that counts in one of the ranges."""
        return within_ranges(self._places(table), self.near) & self.definition.can_count(table)

    def _places(self, rows: pa.Table) -> Ints:
        """The time at which each row counts."""
        return self.definition.places(numbers(rows[self._time]), self._drop_start(rows))

    def _is_touching(self, rows: pa.Table) -> Flags:
        if self.since is None:
            return np.ones(rows.num_rows, np.bool_)
        published_us, reached_us = self.since
        return (numbers(rows["time"]) >= published_us) | (numbers(rows["event_time"]) >= reached_us)

    def _own_input(self, name: str, rows: pa.Table) -> pa.ChunkedArray | pa.Array:
        """The delta id, vector or size of each row, as adaptive windows and emissions take them."""
        window = self.definition.window
        vector, size = getattr(window, "vector", None), getattr(window, "size_bytes", None)
        if name == "size":
            return self._bytes(rows) if size is None else rows[f"c_{size}"]
        if name == "vector" and vector is not None:
            return rows[f"c_{vector}"].cast(pa.string())
        return rows["entity" if name == "vector" else name]

    def _bytes(self, rows: pa.Table) -> pa.Array:
        """The bytes of each row's values: a text has those of its UTF-8, a decimal 16, another number or a time 8, a
        date 4, a boolean 1, a null 0."""
        total = np.zeros(rows.num_rows, np.int64)
        for column, spec in self.definition.source.columns.items():
            value = rows[f"c_{column}"]
            if spec.kind == "string":
                total += numbers(pc.binary_length(value).cast(pa.int64()))
            else:
                total += _WIDTHS[spec.kind] * present(value)
        return pa.array(total)


@dataclass(frozen=True)
class PublishedWindows:
    """The published windows of a definition, and the closing rows that end some of them; parts may be sent to tasks."""

    definition: Definition
    stored: StoredRows

    @staticmethod
    def columns(definition: Definition) -> list[str]:
        """The columns of the definition's table that are read."""
        bounds = ("window_start", "window_end", "known_from", "revision", "era")
        return [*definition.key, *bounds, *definition.own_columns, *definition.window.aggregates]

    def split(self, most_rows: int) -> list[PublishedWindows]:
        """The windows in parts of about `most_rows` rows."""
        return [replace(self, stored=part) for part in self.stored.split(most_rows)]

    def none(self) -> PublishedWindows:
        """A copy without any rows."""
        return replace(self, stored=self.stored.without_rows())

    def tables(self) -> Iterator[pa.Table]:
        """Yield the windows as workers take them (`window_schema`), some at a time."""
        schema = window_schema(self.definition)
        names = {f"k_{key}": key for key in self.definition.key}
        names |= {f"a_{name}": name for name in self.definition.window.aggregates}
        for table in self.stored.tables():
            columns = [table[names.get(field.name, field.name)].cast(field.type) for field in schema]
            yield pa.table(columns, schema=schema)


def key_hashes(rows: pa.Table, keys: list[str]) -> Ints:
    """The hash of each row's key, over the columns `keys`."""
    return hashes([rows[key] for key in keys]).view(np.int64)
