"""`sliding_windows`, `session_windows`, `tumbling_windows`, `hopping_windows`: windows of any DataFrame."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

from pyspark.sql import DataFrame
from pyspark.sql.types import TimestampType

from spark_jobs.engine.spark.windows.adapter import WindowCall
from spark_jobs.engine.spark.windows.adaptive import adaptive_plan
from spark_jobs.engine.spark.windows.options import AggregateOptions, WindowOptions
from spark_jobs.engine.spark.windows.parameters import Duration, calendar, is_integer, refuse, ticks
from spark_jobs.engine.windows.kinds.hopping import Hopping
from spark_jobs.engine.windows.kinds.kind import WindowKind
from spark_jobs.engine.windows.kinds.sessions import Sessions
from spark_jobs.engine.windows.kinds.sliding import Sliding

Planned = tuple[WindowCall, WindowKind]
REASONS = ("null_key", "null_time", "null_value", "negative_time", "late", "late_row", "repeated_id")
"""The reasons for which a row does not count, see `skipped_rows`."""
_MOST_WINDOWS_A_ROW = 1_000_000
"""The greatest number of windows of a row: no worker could keep more in memory."""


def sliding_windows(
    df: DataFrame,
    *,
    size: Duration,
    clip_at_zero: bool | None = None,
    **options: Unpack[AggregateOptions],
) -> DataFrame:
    """Exact sliding windows, as KIP-450 defines them: set by the rows themselves, both bounds inclusive.

    Per key: for each row at t the window `[t-size, t]`, and `[t+1, t+1+size]` if it contains a row; one window per
    start.

        size 10, rows at 103 107 112 119:
        [93,103] [97,107] [102,112] [104,114] [108,118] [109,119] [113,123]

    The result depends only on the multiset of rows, floats to the last bit. A row counts in no window if its key, its
    time or any column that an aggregate reads is null.

    Args:
        key: column name(s); each key has its own windows.
        time: an integer or timestamp column; one unit of its resolution is the tick (timestamps: 1 µs).
        size: the greatest distance of two rows of a window, 0 or more: ticks, or a timedelta for timestamps.
        aggregates: output column name to aggregate, e.g. `{"n": count(), "total": sum_("value")}`.
        grace: a row counts for a window if the end of the window is at or after the stream time at the row's arrival
            less `grace`; else it is late for it. The stream time is the greatest time among the rows that have arrived
            so far. None: no row is late.
        arrival: the column that orders arrivals. Rows with the same value arrive together, those without one first. It
            also breaks ties of time for `first` and `last` (without it, the greater value is later).
        stream: column(s) whose rows share one stream time; None: the whole DataFrame, all keys together. Then arrivals
            are cut into ranges, which separate tasks order with the same result. That takes arrivals that are numbers,
            dates or timestamps, and `rows_a_slice`. Otherwise one task orders all rows, with a OneTaskWarning.
        clip_at_zero: times start at 0, as in Kafka: rows at t <= size share `[0, size]` as their left window, and rows
            before 0 count in no window. None: yes for an integer time, no for a timestamp.
        rows_a_slice: the approximate number of rows of a task. A key with more rows is cut by time into slices, which
            separate tasks process with the same result. Rows are counted in a sample, by jobs that run at once. None:
            no sample; Spark's shuffle sets the number of tasks, and all rows of a key are in one task.
        memory_max_bytes: the greatest memory of a worker, 1 MiB or more, besides Python itself and the rows of one open
            window. Beyond it, sorted rows are written to the worker's disk.
        metrics: an observation that gets `rows`, `flushed_runs`, `flushed_bytes` (of all workers together) and
            `peak_bytes` and `peak_percent` (of one worker) of the first action on the result.

    Returns:
        One row per window: key columns, `window_start`, `window_end` (both inclusive; int64 or the type of the time),
        aggregates. The rows are in no particular order.

    Raises:
        ParameterError: a parameter is not as described above; no job has been started.
    """
    call, kind = _plan_sliding(df, size=size, clip_at_zero=clip_at_zero, **options)
    return call.windows(kind)


def session_windows(
    df: DataFrame,
    *,
    gap: Duration,
    **options: Unpack[AggregateOptions],
) -> DataFrame:
    """Sessions: the rows of a key, cut where the distance to the row before is greater than `gap`.

    `window_start` and `window_end` are the first and the last time, both inclusive. An aggregate skips nulls in the
    column that it reads; the row still counts in the session. A row with a null key or time is in no session.

    Args:
        gap: the greatest distance of neighbours, above 0: ticks, or a timedelta for timestamps.
        grace: a row at t is late, and in no session, if `t + gap` is before the stream time at its arrival less
            `grace`.

    Other arguments, result and errors: see `sliding_windows`.
    """
    call, kind = _plan_sessions(df, gap=gap, **options)
    return call.windows(kind)


def hopping_windows(
    df: DataFrame,
    *,
    size: Duration,
    advance: Duration,
    offset: Duration = 0,
    **options: Unpack[AggregateOptions],
) -> DataFrame:
    """Hopping windows `[k*advance + offset, k*advance + offset + size)` for every integer k, half open.

    Only windows in which a row counts are in the result. Nulls are treated as in `session_windows`.

    Args:
        size: the length of a window, above 0: ticks, or a timedelta for timestamps.
        advance: the distance of two starts, above 0; at most `size` (else there would be gaps between windows), and at
            least a millionth of it.
        offset: shifts all starts; timestamps count from 1970-01-01.
        grace: a row counts for a window if the end of the window is after the stream time at the row's arrival less
            `grace`; else it is late for it.

    Other arguments, result and errors: see `sliding_windows`.
    """
    call, kind = _plan_hopping(df, size=size, advance=advance, offset=offset, **options)
    return call.windows(kind)


def tumbling_windows(
    df: DataFrame,
    *,
    size: Duration | str,
    offset: Duration = 0,
    zone: str | None = None,
    **options: Unpack[AggregateOptions],
) -> DataFrame:
    """Tumbling windows `[k*size + offset, (k+1)*size + offset)`: hopping windows with an advance of `size`.

    Args:
        size: as in `hopping_windows`, or a period of the calendar for timestamps: `"1 day"`, `"2 weeks"`, `"1 month"`,
            `"1 quarter"`, `"1 year"`, from local midnight to local midnight of `zone`.
        offset: as in `hopping_windows`; must be 0 with a period of the calendar.
        zone: an IANA time zone such as `"America/New_York"`, with a period of the calendar only; None: UTC.

    Other arguments, result and errors: see `sliding_windows`.
    """
    call, kind = _plan_tumbling(df, size=size, offset=offset, zone=zone, **options)
    return call.windows(kind)


def skipped_rows(df: DataFrame, kind: str, **parameters: Any) -> DataFrame:
    """The rows that the windows of the same parameters leave out, so that no row is lost silently.

    Args:
        kind: sliding, session, hopping, tumbling or adaptive.
        parameters: the parameters of the function of that kind.

    Returns:
        The key, time, arrival and value columns of each row left out, with `window_start`, `window_end` and `reason`.
        For each row that can't count there is one row without bounds: `null_key`, `null_time`, `null_value`,
        `negative_time`. With a grace, there is one row for each pair of a late row and a window that had closed before
        it (`late`); the window is one that would contain the row if no row were late. A row that is late for its
        session, or for its cell of adaptive windows, has no bounds. A late row that is in no window is listed once
        more, without bounds: `late_row`. For adaptive windows, a row whose id another row of its cell has, which
        counts in its place, is a `repeated_id` (no bounds).

    Raises:
        ParameterError: as for the function of the kind, or for an unknown kind.
    """
    if kind == "adaptive":
        call, adaptive = adaptive_plan(df, **parameters)
        return call.skipped_rows(adaptive)
    if kind not in _PLANS:
        raise refuse("kind", expected=f"one of {sorted([*_PLANS, 'adaptive'])}", found=kind)
    planned, windows = _PLANS[kind](df, **parameters)
    return planned.skipped_rows(windows)


def skipped_counts(df: DataFrame, kind: str, **parameters: Any) -> dict[str, int]:
    """The numbers of rows that the windows of the same parameters leave out, by reason; parameters as `skipped_rows`.

    Returns:
        A number per reason, which may be 0. `null_key`, `null_time`, `null_value`, `negative_time`: rows that can't
        count. `late`: pairs of a late row and a window that had closed. `late_row`: late rows that are in no window.
        `repeated_id`: rows in no adaptive window, because another row has their id.
    """
    counts = skipped_rows(df, kind, **parameters).groupBy("reason").count().collect()
    return dict.fromkeys(REASONS, 0) | {row["reason"]: row["count"] for row in counts}


def _call(df: DataFrame, **options: Unpack[AggregateOptions]) -> WindowCall:
    return WindowCall.of_options(df, WindowOptions(**options))


def _plan_sliding(
    df: DataFrame, *, size: Duration, clip_at_zero: bool | None = None, **options: Unpack[AggregateOptions]
) -> Planned:
    call = _call(df, **options)
    if clip_at_zero is not None and not isinstance(clip_at_zero, bool):
        raise refuse("clip_at_zero", expected="True, False or None", found=clip_at_zero)
    clip = is_integer(call.time_type) if clip_at_zero is None else clip_at_zero
    return call, Sliding(ticks("size", size, call.time_type, least=0), clip)


def _plan_sessions(df: DataFrame, *, gap: Duration, **options: Unpack[AggregateOptions]) -> Planned:
    call = _call(df, **options)
    return call, Sessions(ticks("gap", gap, call.time_type, least=1))


def _plan_hopping(
    df: DataFrame, *, size: Duration, advance: Duration, offset: Duration = 0, **options: Unpack[AggregateOptions]
) -> Planned:
    call = _call(df, **options)
    length = ticks("size", size, call.time_type, least=1)
    step = ticks("advance", advance, call.time_type, least=1)
    if step > length:
        raise refuse(
            "advance",
            expected=f"at most the size, {length}; beyond it rows between two windows would count nowhere",
            found=step,
            value=step,
            size=length,
        )
    if -(-length // step) > _MOST_WINDOWS_A_ROW:
        raise refuse(
            "advance",
            expected=f"a millionth of the size, {length}, or more, as each row would be in size / advance windows",
            found=step,
            next_step="sliding_windows has a window wherever the rows in it change",
            value=step,
            size=length,
        )
    return call, Hopping(length, step, ticks("offset", offset, call.time_type, least=None))


def _plan_tumbling(
    df: DataFrame,
    *,
    size: Duration | str,
    offset: Duration = 0,
    zone: str | None = None,
    **options: Unpack[AggregateOptions],
) -> Planned:
    if not isinstance(size, str):
        if zone is not None:
            raise refuse("zone", expected='a size of the calendar such as "1 day" with it', found=zone)
        return _plan_hopping(df, size=size, advance=size, offset=offset, **options)
    call = _call(df, **options)
    if not isinstance(call.time_type, TimestampType):
        raise refuse("time", expected="a timestamp for a size of the calendar", found=call.time_type.simpleString())
    if offset != 0:
        raise refuse("offset", expected="0 with a size of the calendar", found=offset, value=offset)
    return call, calendar(size, zone)


_PLANS: dict[str, Callable[..., Planned]] = {
    "sliding": _plan_sliding,
    "session": _plan_sessions,
    "hopping": _plan_hopping,
    "tumbling": _plan_tumbling,
}
