"""From a source file to what the record kernels need of it: plain data that travels to Python workers."""

from __future__ import annotations

from typing import cast

from spark_jobs.kernels.records import ColumnSpec, RecordSpec
from spark_jobs.kernels.records.spec import ColumnType
from spark_jobs.sources import Source


def record_spec(source: Source) -> RecordSpec:
    """How the records of `source` become rows."""
    columns = tuple(
        ColumnSpec(
            name=name,
            header=source.header_name(name),
            type=cast("ColumnType", column.kind),
            null_values=source.null_values(name),
            time_format=column.format,
            timezone=column.timezone,
            dst=column.dst,
            digits=column.digits,
        )
        for name, column in source.columns.items()
    )
    return RecordSpec(
        columns=columns,
        timelines=tuple(source.timelines.items()),
        event_time=source.event_time,
        entity=source.entity,
        arrival=source.arrival,
        delta_id=source.delta_id,
        unknown_columns=source.unknown_columns,
        delimiter=source.landing.delimiter,
        max_record_bytes=source.landing.max_record_bytes,
    )
