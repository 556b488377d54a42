"""SQL texts that work both for classic Spark and for Spark Connect."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql.types import DataType, TimestampType

from spark_jobs.engine.spark.windows.parameters import is_integer


def quote_name(name: str) -> str:
    """A column name as SQL, quoted, so that it may have any characters."""
    return "`" + name.replace("`", "``") + "`"


def ticks_of(time: str, kind: DataType) -> str:
    """SQL for a time column as a bigint of ticks."""
    if is_integer(kind):
        return f"CAST({quote_name(time)} AS BIGINT)"
    if isinstance(kind, TimestampType):
        return f"unix_micros({quote_name(time)})"
    return f"timestampdiff(MICROSECOND, TIMESTAMP_NTZ'1970-01-01 00:00:00', {quote_name(time)})"


def whole(number: int) -> str:
    """SQL for a bigint; the least one can't be written as a literal."""
    return f"{number}L" if number > -(2**63) else f"(-{2**63 - 1}L - 1L)"


def column(df: DataFrame, sql: str) -> Column:
    """SQL over the columns of a DataFrame, as a column of its kind of Spark: classic or Connect."""
    if type(df).__module__.startswith("pyspark.sql.connect"):
        from pyspark.sql.connect.functions import expr
    else:
        from pyspark.sql.functions import expr
    return expr(sql)
