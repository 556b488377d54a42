"""Columns of updates in the trace, as Spark reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.definitions.definition import Definition
from spark_jobs.sources import Source
from spark_jobs.storage.descriptions.sql import drop_start_sql

if TYPE_CHECKING:
    from pyspark.sql import Column


def drop_start(source: Source) -> Column:
    """The start of each update's drop, in microseconds."""
    return F.expr(drop_start_sql(source.drops, "seq_no"))


def has_required(definition: Definition) -> Column:
    """The condition that an update has a value in each key column and each required column; without one it is in no
    window."""
    condition = F.lit(True)
    for key in definition.key:
        condition = condition & F.col(f"c_{key}").isNotNull()
    for needed in required_columns(definition):
        condition = condition & F.col(needed).isNotNull()
    return condition


def required_columns(definition: Definition) -> list[str]:
    """The columns of updates that `Definition.required` names."""
    if not definition.is_adaptive:
        return [f"c_{column.removeprefix('v_')}" for column in definition.required]
    vector, size = (getattr(definition.window, name, None) for name in ("vector", "size_bytes"))
    # without a column for it, the size is that of all values, which is never null
    return ["delta_id", "entity" if vector is None else f"c_{vector}", *([] if size is None else [f"c_{size}"])]
