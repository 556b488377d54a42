"""The types of a source file's columns, as Arrow and as Spark SQL name them."""

from __future__ import annotations

import pyarrow as pa

from spark_jobs.sources import Column

INSTANT = pa.timestamp("us", "UTC")
_ARROW_TYPES = {
    "int": pa.int64(),
    "float": pa.float64(),
    "string": pa.string(),
    "bool": pa.bool_(),
    "timestamp": INSTANT,
    "date": pa.date32(),
}
_SQL_TYPES = {
    "int": "BIGINT",
    "float": "DOUBLE",
    "string": "STRING",
    "bool": "BOOLEAN",
    "timestamp": "TIMESTAMP",
    "date": "DATE",
}


def arrow_type_of(column: Column) -> pa.DataType:
    """The type of a declared column in a worker's or a reader's table."""
    return pa.decimal128(*column.digits) if column.digits is not None else _ARROW_TYPES[column.kind]


def sql_type_of(column: Column) -> str:
    """The type of a declared column in a table."""
    return column.type.upper() if column.digits is not None else _SQL_TYPES[column.kind]
