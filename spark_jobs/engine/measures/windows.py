"""Faults of the windows that an attempt wrote, each judged by itself, and the rows that are due by the updates."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.engine.columns.plain import are, numbers, present
from spark_jobs.engine.measures.sums import Adds
from spark_jobs.engine.measures.versions import at_wrong_time
from spark_jobs.engine.restatement.comparison import LIVE
from spark_jobs.engine.windows.kinds.kind import WindowKind


def judge_windows(
    windows: pa.Table,
    *,
    kind: WindowKind,
    identity: Sequence[str],
    counter: Sequence[str],
    known_from_us: int,
    balanced: bool,
) -> Adds:
    """The amount that each window adds to the measures of silver.

    Args:
        windows: rows of a table of windows that an attempt wrote.
        kind: the kind of the windows.
        identity: the columns that tell two windows apart.
        counter: the column, or the path into a struct, with the number of a window's rows; empty if there is none.
        known_from_us: the time of every change of the publication, in microseconds.
        balanced: True if the rows in the windows come and go as those of the trace do.
    """
    live = are(windows["era"], LIVE)
    has_bounds = present(windows["window_start"]) & present(windows["window_end"])
    misplaced = kind.are_misplaced(numbers(windows["window_start"]), numbers(windows["window_end"]))
    missing = ~present(windows["window_end"])
    for column in identity:
        missing |= ~present(windows[column])
    adds = {
        "windows_of_wrong_length": live & has_bounds & misplaced,
        "windows_without_key": missing,
        "changes_at_wrong_time": at_wrong_time(windows, known_from_us),
    }
    if counter:
        column = windows[counter[0]]
        counts = pc.struct_field(column, list(counter[1:])) if counter[1:] else column
        rows = numbers(counts)
        adds["windows_without_rows"] = live & (rows < 1) & present(counts)
        if balanced:
            adds["rows_windowed"] = np.where(live, rows, -rows)
    return adds


def diffs(rows: pa.Table, *, measure: str, times: int = 1) -> Adds:
    """The column diff of the rows, multiplied by `times`, as the amounts of `measure`."""
    return {measure: numbers(rows["diff"]) * times}
