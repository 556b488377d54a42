"""The changes that an attempt would make to the published tables: its rows of the history tables as row-level
differences.

Rows that fit into this process are counted here by Arrow, others by Spark. A Spark query costs more than the whole
rehearsal of a small day.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.definitions.definition import definitions
from spark_jobs.distribution import is_for_here
from spark_jobs.engine.restatement import CLOSING
from spark_jobs.sources import Source
from spark_jobs.storage.descriptions.schema import Table
from spark_jobs.storage.descriptions.tables import STATE, VALIDITY
from spark_jobs.storage.descriptions.times import utc_rows
from spark_jobs.storage.lakes.overlay import OverlayLake

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CHANGES = ("inserted", "changed", "removed")
"""The changes of a published row: it is new, it has other values, or it is removed."""


@dataclass(frozen=True, slots=True)
class TableDifference:
    """The difference that an attempt would make to one published table.

    `counts`: the number of rows by change (`CHANGES`). `sample`: updates (`change`, `diff`, the row's values) of the
    first rows in the order of `identity`; a changed row is a −1 and a +1.
    """

    table: str
    identity: tuple[str, ...]
    counts: dict[str, int]
    sample: list[dict[str, Any]] = field(default_factory=list)

    @property
    def rows(self) -> int:
        """The number of published rows that would differ."""
        return sum(self.counts.values())

    def sample_rows(self) -> tuple[list[str], list[list[Any]]]:
        """The sample as people see it: the names of its columns, and each update with its sign first. The sample must
        have a row."""
        values = [column for column in self.sample[0] if column not in ("change", "diff")]
        return ["diff", *values], [[f"{row['diff']:+d}", *(row[column] for column in values)] for row in self.sample]


def differences(lake: OverlayLake, source: Source, sample: int) -> list[TableDifference]:
    """One difference per published table of the source, from the rows written to `lake`. Each has at most `sample`
    rows in its sample, or all rows if that is 0."""
    windows = [(f"silver.{d.name}", d.table(), tuple(d.identity)) for d in definitions(source)]
    tables = [_difference(name, lake, table, identity, sample) for name, table, identity in windows]
    if source.state is not None:
        states = _difference(f"gold.{source.name}", lake, STATE, ("entity",), sample)
        by_columns = [_by_columns(update, source) for update in states.sample]
        tables.append(replace(states, identity=(source.entity,), sample=by_columns))
    return tables


def _by_columns(update: dict[str, Any], source: Source) -> dict[str, Any]:
    """An update of a state with the columns of `gold.<source>`."""
    assert source.state is not None, "the caller looks whether the source has state"
    vector = update["ints" if source.state.datatype == "int64" else "floats"]
    components = dict.fromkeys(source.state.components) | dict(zip(update["names"] or (), vector or (), strict=False))
    named = components if source.state.components else {"vector": vector}
    about = {name: update[name] for name in ("timestamp", "delta_count")}
    return {"change": update["change"], "diff": update["diff"], source.entity: update["entity"], **named, **about}


def _difference(name: str, lake: OverlayLake, table: Table, identity: tuple[str, ...], sample: int) -> TableDifference:
    if not lake.wrote(table):
        return TableDifference(name, identity, dict.fromkeys(CHANGES, 0))
    hidden = {column.name for column in VALIDITY} | {"source"}
    values = [column for column in table.column_names if column not in hidden]
    files = lake.written_files(table)
    if files is not None and is_for_here(lake.spark, files.n_bytes):
        rows = files.with_columns([*values, "era"]).whole()
        diffs = pc.if_else(pc.equal(rows["era"], CLOSING), pa.scalar(-1), pa.scalar(1))
        return difference_of_rows(name, rows.select(values).append_column("diff", diffs), identity, sample)
    diff = F.when(F.col("era") == CLOSING, -1).otherwise(1)
    return difference(name, lake.written_rows(table).select(*values, diff.alias("diff")), identity, sample)


def difference_of_rows(name: str, updates: pa.Table, identity: tuple[str, ...], sample: int) -> TableDifference:
    """As `difference`, for updates in this process's memory."""
    sides = updates.group_by(list(identity)).aggregate([("diff", "min"), ("diff", "max")])
    is_changed = pc.less(sides["diff_min"], sides["diff_max"])
    is_inserted = pc.and_not(pc.greater(sides["diff_min"], 0), is_changed)
    n_changed, n_inserted = pc.sum(is_changed).as_py() or 0, pc.sum(is_inserted).as_py() or 0
    counts = dict(zip(CHANGES, (n_inserted, n_changed, sides.num_rows - n_changed - n_inserted), strict=True))
    keys = [(column, "ascending", "at_start") for column in (*identity, "diff")]
    order = pc.sort_indices(updates, sort_keys=keys)
    rows = updates.take(order[: 2 * sample] if sample else order).to_pylist()
    first = _first([{"diff": row.pop("diff"), **row} for row in rows], identity, sample)
    return TableDifference(name, identity, counts, _with_changes(first, identity))


def _with_changes(updates: list[dict[str, Any]], identity: tuple[str, ...]) -> list[dict[str, Any]]:
    """Updates with their `change` in front; all updates of each row are among them."""
    diffs: dict[tuple[Any, ...], set[int]] = {}
    for update in updates:
        diffs.setdefault(tuple(update[column] for column in identity), set()).add(update["diff"])
    changes = {
        key: "changed" if len(signs) > 1 else "inserted" if signs == {1} else "removed" for key, signs in diffs.items()
    }
    return [{"change": changes[tuple(update[column] for column in identity)], **update} for update in updates]


def difference(name: str, updates: DataFrame, identity: tuple[str, ...], sample: int) -> TableDifference:
    """The difference that `updates`, rows with a `diff` of +1 or -1, make to a table whose rows `identity`
    identifies."""
    values = [column for column in updates.columns if column != "diff"]
    changes = _changes(updates, identity, values)
    counted = changes.groupBy("change").agg(F.countDistinct(F.struct(*identity)).alias("rows")).collect()
    counts = dict.fromkeys(CHANGES, 0) | {row.change: row.rows for row in counted}
    if not any(counts.values()):
        return TableDifference(name, identity, counts)
    # a row has at most two updates
    ordered = changes.orderBy(*identity, "diff")
    rows = utc_rows((ordered.limit(2 * sample) if sample else ordered).select("change", "diff", *values))
    return TableDifference(name, identity, counts, _first(rows, identity, sample))


def _first(updates: list[dict[str, Any]], identity: tuple[str, ...], rows: int) -> list[dict[str, Any]]:
    """The updates of the first `rows` rows, or of all rows if that is 0."""
    order = {key: i for i, key in enumerate(dict.fromkeys(tuple(u[c] for c in identity) for u in updates))}
    return [u for u in updates if not rows or order[tuple(u[c] for c in identity)] < rows]


def _changes(updates: DataFrame, identity: tuple[str, ...], values: list[str]) -> DataFrame:
    row = Window.partitionBy(*identity)
    sides = {"least": F.min("diff").over(row), "greatest": F.max("diff").over(row)}
    change = (
        F.when(F.col("least") < F.col("greatest"), "changed").when(F.col("least") > 0, "inserted").otherwise("removed")
    )
    return updates.withColumns(sides).select(change.alias("change"), "diff", *values)
