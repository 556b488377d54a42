"""Folding a source's rows into states as its file describes: the meaning of `v_<column>` columns for the kernels."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.engine.deltas import fold_add, fold_diff
from spark_jobs.sources import Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def fold_inputs(updates: DataFrame, source: Source) -> DataFrame:
    """The columns of updates that folding takes: entity, event_time in microseconds, row_id, diff, and `v_<column>` for
    each column that is folded."""
    time = F.unix_micros("event_time").alias("event_time")
    return updates.select(
        "entity", time, "row_id", "diff", *[F.col(f"c_{c}").alias(f"v_{c}") for c in columns_folded(source)]
    )


def columns_read(source: Source) -> list[str]:
    """The columns of updates that folding reads."""
    return ["entity", "event_time", "row_id", "diff", *(f"c_{c}" for c in columns_folded(source))]


def folded_columns(updates: pa.Table, source: Source) -> pa.Table:
    """The columns of `fold_inputs`, made of updates with the columns of `columns_read`."""
    columns = {name: updates[name] for name in ("entity", "row_id", "diff")}
    columns["event_time"] = updates["event_time"].cast(pa.int64())
    return pa.table(columns | {f"v_{c}": updates[f"c_{c}"] for c in columns_folded(source)})


def fold_rows(rows: pa.Table, source: Source, prior: pa.Table | None = None) -> pa.Table:
    """The states (a state table of `engine.deltas`) after folding rows with the columns of `fold_inputs` onto `prior`
    states. A sum that does not fit into its type is null.

    Raises:
        RowsNeededError: `prior` can't absorb a late row or a retraction; the error names the entities.
    """
    state = source.state
    assert state is not None, "callers look whether the source has state"
    components: dict[str, Any] = {n: f"v_{c}" if isinstance(c, str) else c for n, c in state.components.items()}
    value = pa.int64() if state.datatype == "int64" else pa.float64()
    for column in (f"v_{c}" for c in columns_folded(source)):
        typed = rows[column].cast(value, safe=state.datatype == "int64")
        rows = rows.set_column(rows.schema.get_field_index(column), column, typed)
    fold = partial(fold_add, overflow_is_null=True) if state.mode == "add" else fold_diff
    return fold(
        rows, entity="entity", time="event_time", row_id="row_id", components=components, prior=prior, diff="diff"
    )


def columns_folded(source: Source) -> list[str]:
    """The columns of the file that make up a state, each once."""
    assert source.state is not None, "callers look whether the source has state"
    return list(dict.fromkeys(c for c in source.state.components.values() if isinstance(c, str)))
