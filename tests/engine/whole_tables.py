"""Windows of one Arrow table at once, as tests ask for them: what streams of chunks must lead to."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from spark_jobs.engine.windows import (
    AdaptiveKind,
    Cuts,
    Deltas,
    Hopping,
    Sessions,
    SkippedRows,
    Sliding,
    WindowInputs,
    WindowKind,
)
from spark_jobs.engine.windows.kinds.kind import SpanKind
from spark_jobs.engine.windows.rows import NullValues
from spark_jobs.engine.windows.skipped import late_table, unable_rows


def window_table(table: pa.Table, kind: WindowKind, inputs: WindowInputs) -> tuple[pa.Table, SkippedRows]:
    """All windows of any kind, and the counts of rows in none."""
    found = kind.windows(table, inputs)
    return found.table(0, found.windows.start.size, None), found.skipped


def sliding_table(
    table: pa.Table, *, size: int, clip_at_zero: bool, null_values: NullValues = "skip_row", **inputs: Any
) -> tuple[pa.Table, SkippedRows]:
    return window_table(table, Sliding(size, clip_at_zero, null_values), WindowInputs(**inputs))


def session_table(table: pa.Table, *, gap: int, **inputs: Any) -> tuple[pa.Table, SkippedRows]:
    return window_table(table, Sessions(gap), WindowInputs(**inputs))


def hopping_table(
    table: pa.Table, *, size: int, advance: int, offset: int = 0, **inputs: Any
) -> tuple[pa.Table, SkippedRows]:
    return window_table(table, Hopping(size, advance, offset), WindowInputs(**inputs))


def tumbling_table(table: pa.Table, *, size: int, offset: int = 0, **inputs: Any) -> tuple[pa.Table, SkippedRows]:
    return hopping_table(table, size=size, advance=size, offset=offset, **inputs)


def adaptive_table(table: pa.Table, cuts: Cuts, deltas: Deltas, inputs: WindowInputs) -> tuple[pa.Table, SkippedRows]:
    return window_table(table, AdaptiveKind(cuts, deltas), inputs)


def skipped_table(table: pa.Table, kind: SpanKind, inputs: WindowInputs) -> pa.Table:
    """The rows that do not count."""
    able, unable = unable_rows(table, kind, inputs)
    return pa.concat_tables([*unable, late_table(able, kind, inputs)])
