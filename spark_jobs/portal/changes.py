"""The changes of a publication to published tables, with some rows before and after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.definitions.definition import definitions
from spark_jobs.engine.restatement import CLOSING, LIVE
from spark_jobs.portal.held_lake import HeldLake
from spark_jobs.portal.values import is_number
from spark_jobs.reads.publications import PublicationEntry
from spark_jobs.sources import Source
from spark_jobs.storage.coordination import publication
from spark_jobs.storage.coordination.publication import Publication, visible_rows
from spark_jobs.storage.descriptions.column_types import INSTANT
from spark_jobs.storage.descriptions.schema import Table
from spark_jobs.storage.descriptions.tables import STATE, VALIDITY

Row = dict[str, Any]
_PLACE = "place in the order of keys"
"""The column of a row's number, under a name that no column of a table has."""


@dataclass(frozen=True)
class Change:
    """The changes of a publication to a published table: the numbers of rows inserted, changed and removed.

    `sample`: some of these rows, each with `diff`, key columns and values; rows of changed keys come first, then the
    others by key. `key`: the columns that `why` asks for.
    """

    table: str
    key: tuple[str, ...]
    inserted: int
    changed: int
    removed: int
    sample: list[Row]

    @property
    def rows(self) -> int:
        """The number of all rows that differ."""
        return self.inserted + self.changed + self.removed

    @property
    def numbers(self) -> list[str]:
        """The columns of the sample that have numbers."""
        first = self.sample[0] if self.sample else {}
        return [name for name, value in first.items() if is_number(value)]

    @property
    def pairs(self) -> list[Row]:
        """The sample by key: each row `after` the publication and the row `before` it, None where there is none."""
        by_key: dict[tuple[str, ...], Row] = {}
        for row in self.sample:
            pair = by_key.setdefault(tuple(str(row[column]) for column in self.key), {"before": None, "after": None})
            pair["after" if row["diff"] > 0 else "before"] = row
        return list(by_key.values())


@dataclass(frozen=True)
class _ShownTable:
    """A published table whose changes are shown: its history, its name, and the columns that are shown."""

    table: Table
    name: str
    key: tuple[str, ...]
    values: tuple[str, ...]
    of_source: pc.Expression


def changes(lake: HeldLake, source: Source, published: PublicationEntry, most: int) -> list[Change]:
    """The changes of a publication, table by table; of each up to `most` keys that changed, went or came."""
    current = publication.load(lake, source)
    tables = []
    for each in definitions(source):
        values = tuple(column.name for column in each.value_columns())
        tables.append(_ShownTable(each.table(), f"silver.{each.name}", tuple(each.identity), values, pc.scalar(True)))
    if source.state is not None:
        hidden = {*(c.name for c in VALIDITY), "source", "names", "seen"}
        values = tuple(c.name for c in STATE.columns if c.name not in hidden)
        tables.append(_ShownTable(STATE, f"gold.{source.name}", ("entity",), values, pc.field("source") == source.name))
    by_table = [_change(lake, each, published, current, most) for each in tables if lake.version(each.table) >= 0]
    return [replace(each, sample=[with_components(source, row) for row in each.sample]) for each in by_table]


def with_components(source: Source, row: Row) -> Row:
    """A row of published states with a column for each component, in place of the vectors; other rows as they are."""
    vector = row.get("ints") or row.get("floats")
    components = () if source.state is None else tuple(source.state.components)
    if "ints" not in row or not isinstance(vector, list) or len(vector) != len(components):
        return row
    others = {name: value for name, value in row.items() if name not in ("ints", "floats", "names", "seen")}
    return others | dict(zip(components, vector, strict=True))


def _change(lake: HeldLake, table: _ShownTable, published: PublicationEntry, current: Publication, most: int) -> Change:
    time, key = pa.scalar(published.known_from, INSTANT), list(table.key)
    visible, order = visible_rows(current) & table.of_source, [(column, "ascending") for column in key]
    halves = (("known_from", LIVE), ("known_to", CLOSING))
    came, went = (
        lake.stored(table.table, table.values, visible & (pc.field(bound) == time), {"era": [era, "closed"]})
        .whole()
        .sort_by(order)
        for bound, era in halves
    )
    # a key of which a row came and a row went is a row that changed
    kinds = [
        _places(came, went, key, "left semi"),
        _places(went, came, key, "left anti"),
        _places(came, went, key, "left anti"),
    ]
    shares = _shares([*map(len, kinds)], most)
    changed, removed, inserted = (places.slice(0, share) for places, share in zip(kinds, shares, strict=True))
    after = came.take(pa.concat_arrays([changed, inserted]))
    of_changed = after.slice(0, len(changed))
    keys = {_key(row, table) for row in of_changed.to_pylist()}
    of_keys = went.filter(pc.field(key[0]).isin(of_changed[key[0]].combine_chunks())).to_pylist()
    before = [row for row in of_keys if _key(row, table) in keys] + went.take(removed).to_pylist()
    sample = [{"diff": -1, **row} for row in before] + [{"diff": 1, **row} for row in after.to_pylist()]
    sample.sort(key=lambda row: (_key(row, table) not in keys, _key(row, table), row["diff"]))
    return Change(table.name, table.key, len(kinds[2]), len(kinds[0]), len(kinds[1]), sample)


def _places(rows: pa.Table, others: pa.Table, key: list[str], kind: str) -> pa.Int64Array:
    """The places of the rows whose key `others` has ("left semi") or lacks ("left anti"), in their order."""
    numbered = rows.select(key).append_column(_PLACE, pa.array(range(len(rows)), pa.int64()))
    places = numbered.join(others.select(key), keys=key, join_type=kind)[_PLACE].combine_chunks()
    return places.take(pc.array_sort_indices(places))


def _shares(counts: Sequence[int], most: int) -> list[int]:
    """The numbers of rows to show of each kind: one of each that there is, then as many of the first kinds as fit."""
    shares = [min(count, 1) for count in counts]
    for at, count in enumerate(counts):
        shares[at] += max(min(count - shares[at], most - sum(shares)), 0)
    return shares


def _key(row: Row, table: _ShownTable) -> tuple[str, ...]:
    return tuple(str(row[column]) for column in table.key)
