"""A row that is not in a chunk yet. Its values are checked here, once, before it is put among other rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from spark_jobs.engine.chunks import checks

ANY_DATATYPE = "any"
"""The datatype of a cell that declares none; it differs from all declared datatypes."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row before it is in a chunk.

    Args:
        row_id: unique, totally ordered.
        times: time per timeline; empty for a static row.
        data: value per component; None is no value.
        types: datatype per component; `ANY_DATATYPE` where missing.
        size_bytes: the bytes that the row counts in byte limits, at least 0.

    Raises:
        ParameterError: a part is of another type, or a time or the size needs more than 64 signed bits.
    """

    row_id: int
    times: Mapping[str, int]
    data: Mapping[str, Any]
    types: Mapping[str, str] = field(default_factory=dict)
    size_bytes: int = 1

    def __post_init__(self) -> None:
        """Refuse values that no chunk could store, before the row is put among others."""
        row_id = checks.whole_number(self.row_id, "a row id")
        checks.check_mapping(self.times, "the times of row {}", row_id)
        checks.check_mapping(self.data, "the data of row {}", row_id)
        checks.check_mapping(self.types, "the types of row {}", row_id)
        for timeline, time in self.times.items():
            checks.time(time, "the time on {!r} of row {}", timeline, row_id)
        for component, datatype in self.types.items():
            checks.check_name(datatype, "the datatype of {!r} in row {}", component, row_id)
        checks.int64(self.size_bytes, "the size of row {}", row_id, least=0)

    def datatypes(self) -> dict[str, str]:
        """Datatype per component that has a value in this row."""
        return {name: self.types.get(name, ANY_DATATYPE) for name, value in self.data.items() if value is not None}
