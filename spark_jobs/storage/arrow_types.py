"""Arrow's names of the types that a source file declares, beside `tables.SQL_TYPES`."""

from __future__ import annotations

import pyarrow as pa

ARROW_TYPES = {
    "int": pa.int64(),
    "float": pa.float64(),
    "string": pa.string(),
    "bool": pa.bool_(),
    "timestamp": pa.timestamp("us", "UTC"),
    "date": pa.date32(),
}
"""The type of a declared column in a worker's or a reader's table."""
