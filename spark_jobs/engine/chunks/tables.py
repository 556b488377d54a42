"""Arrow columns of components in the form of chunks, without a copy if Arrow allows it (numbers without nulls)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.engine.chunks.model import ComponentColumn


def component_column(values: pa.Array) -> ComponentColumn:
    """An Arrow array as a component's column, with the Arrow type's name as datatype."""
    valid = None if values.null_count == 0 else values.is_valid().to_numpy(zero_copy_only=False)
    if pa.types.is_integer(values.type) or pa.types.is_floating(values.type):
        filled = values if valid is None else pc.fill_null(values, 0)
        return ComponentColumn.of(str(values.type), filled.to_numpy(zero_copy_only=False), valid)
    objects = np.empty(len(values), dtype=object)
    for index, value in enumerate(values.to_pylist()):
        objects[index] = value
    return ComponentColumn.of(str(values.type), objects, valid)
