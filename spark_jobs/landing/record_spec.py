"""The part of a source file that the record kernels need, as plain data that is sent to Python workers."""

from __future__ import annotations

from typing import cast

from spark_jobs.engine.records import ColumnSpec, ColumnType, Erasures, RecordSpec, RowCheck
from spark_jobs.sources import Between, DataCheck, In, LatenessCheck, Matches, NotNull, Source, as_typed


def record_spec(source: Source, erased: Erasures | None = None) -> RecordSpec:
    """The specification by which the records of `source` become rows; those with `erased` values are not kept."""
    dialect = source.landing.dialect()
    columns = tuple(
        ColumnSpec(
            name=name,
            header=source.header_name(name),
            type=cast("ColumnType", column.kind),
            null_values=source.null_values(name),
            time_formats=column.formats,
            timezone=column.timezone,
            dst=column.dst,
            digits=column.digits,
            optional=column.optional,
            decimal=dialect.get("decimal", "."),
            thousands=dialect.get("thousands", ""),
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
        encoding=dialect.get("encoding", "utf-8"),
        escape=dialect.get("escape", ""),
        envelope=dialect.get("envelope"),
        skip_tombstones=dialect.get("tombstones") == "skip",
        max_record_bytes=source.landing.max_record_bytes,
        max_rejects=source.landing.max_rejects,
        max_lines=source.landing.max_lines,
        max_expansion=source.landing.max_expansion,
        checks=tuple(_row_check(source, name, check) for name, check in source.quarantining.items()),
        drops=source.drops,
        erased=erased,
        # all rows of an extract may be gone
        may_be_empty=source.extract is not None,
    )


def _row_check(source: Source, name: str, check: DataCheck) -> RowCheck:
    """The check of rows for the kernels; rows that break it are quarantined."""
    if isinstance(check, NotNull):
        return RowCheck(name, "not_null", check.in_words, check.column)
    if isinstance(check, LatenessCheck):
        return RowCheck(name, "lateness", check.in_words, greatest=check.max_us)
    if isinstance(check, Matches):
        return RowCheck(name, "matches", check.in_words, check.column, pattern=check.pattern)
    assert isinstance(check, Between | In), "a source file lets no other kind quarantine"
    column = source.columns[check.column]
    if isinstance(check, In):
        values = tuple(as_typed(value, column) for value in check.values)
        return RowCheck(name, "in", check.in_words, check.column, values=values)
    least, greatest = (None if end is None else as_typed(end, column) for end in (check.min, check.max))
    return RowCheck(name, "between", check.in_words, check.column, least, greatest)
