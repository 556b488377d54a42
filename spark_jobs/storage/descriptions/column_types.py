"""The types of a source file's columns, as Arrow and as Spark SQL name them."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from spark_jobs.sources import DeclaredColumn

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
_SQL_OF_ARROW = {
    pa.int8(): "TINYINT",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.float64(): "DOUBLE",
    pa.string(): "STRING",
    pa.bool_(): "BOOLEAN",
    pa.binary(): "BINARY",
    pa.date32(): "DATE",
}


def arrow_type_of(column: DeclaredColumn) -> pa.DataType:
    """The type of a declared column in a worker's or a reader's table."""
    return pa.decimal128(*column.digits) if column.digits is not None else _ARROW_TYPES[column.kind]


def sql_type_of(column: DeclaredColumn) -> str:
    """The type of a declared column in a table."""
    return column.type.upper() if column.digits is not None else _SQL_TYPES[column.kind]


def sql_type(arrow: pa.DataType) -> str:
    """The SQL type of an Arrow type. Raises KeyError for a type that no table of ours has."""
    if pa.types.is_timestamp(arrow):
        return "TIMESTAMP"
    if pa.types.is_decimal128(arrow):
        return f"DECIMAL({arrow.precision}, {arrow.scale})"
    if pa.types.is_list(arrow):
        return f"ARRAY<{sql_type(arrow.value_type)}>"
    if pa.types.is_map(arrow):
        return f"MAP<{sql_type(arrow.key_type)}, {sql_type(arrow.item_type)}>"
    if pa.types.is_struct(arrow):
        return f"STRUCT<{', '.join(f'{field.name}: {sql_type(field.type)}' for field in arrow)}>"
    return _SQL_OF_ARROW[arrow]


def arrow_type(sql: str) -> pa.DataType:
    """The Arrow type of a SQL type that a table has; the reverse of `sql_type`.

    Raises:
        KeyError: no table has such a type.
    """
    name, _, inner = sql.strip().removesuffix(">").partition("<")
    match name.upper():
        case "ARRAY":
            return pa.list_(arrow_type(inner))
        case "MAP":
            key, item = _split(inner)
            return pa.map_(arrow_type(key), arrow_type(item))
        case "STRUCT":
            return pa.struct(
                [(field, arrow_type(kind)) for field, _, kind in (f.partition(":") for f in _split(inner))]
            )
        case decimal if decimal.startswith("DECIMAL"):
            precision, scale = decimal.removeprefix("DECIMAL(").removesuffix(")").split(",")
            return pa.decimal128(int(precision), int(scale))
        case plain:
            return _ARROW_OF_SQL[plain]


_ARROW_OF_SQL = {sql: arrow for arrow, sql in _SQL_OF_ARROW.items()} | {"TIMESTAMP": INSTANT}


def _split(listed: str) -> Iterator[str]:
    """The parts of a list between its outermost commas."""
    depth, begin = 0, 0
    for place, character in enumerate(listed):
        depth += (character in "<(") - (character in ">)")
        if character == "," and not depth:
            yield listed[begin:place].strip()
            begin = place + 1
    yield listed[begin:].strip()
