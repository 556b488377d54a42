"""Columns of updates in the trace that window definitions need."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from spark_jobs.definitions.definition import Definition
from spark_jobs.engine.columns import Flags, present


def required_columns(definition: Definition) -> list[str]:
    """The columns of updates that `Definition.required` names."""
    if not definition.is_adaptive:
        return [f"c_{column.removeprefix('v_')}" for column in definition.required]
    vector, size = (getattr(definition.window, name, None) for name in ("vector", "size_bytes"))
    # without a column for it, the size is that of all values, which is never null
    return ["delta_id", "entity" if vector is None else f"c_{vector}", *([] if size is None else [f"c_{size}"])]


def takes(definition: Definition, updates: pa.Table) -> Flags:
    """Flags of the updates that have a time for the definition, and a value in each key column and required column; an
    update without one is in no window."""
    needed = [f"t_{definition.time}", *(f"c_{key}" for key in definition.key), *required_columns(definition)]
    return np.logical_and.reduce([present(updates[column]) for column in needed])
