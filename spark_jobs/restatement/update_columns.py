"""Columns of updates in the trace that window definitions need."""

from __future__ import annotations

from spark_jobs.definitions.definition import Definition


def required_columns(definition: Definition) -> list[str]:
    """The columns of updates that `Definition.required` names."""
    if not definition.is_adaptive:
        return [f"c_{column.removeprefix('v_')}" for column in definition.required]
    vector, size = (getattr(definition.window, name, None) for name in ("vector", "size_bytes"))
    # without a column for it, the size is that of all values, which is never null
    return ["delta_id", "entity" if vector is None else f"c_{vector}", *([] if size is None else [f"c_{size}"])]
