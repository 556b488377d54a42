"""`adaptive_windows`: windows whose length follows the rate of rows, cut by triggers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Unpack

from pyspark.sql import DataFrame
from pyspark.sql.types import ByteType, DataType, IntegerType, LongType, ShortType

from spark_jobs.engine.spark.windows.adapter import WindowCall
from spark_jobs.engine.spark.windows.options import AdaptiveOptions, SharedOptions, WindowOptions
from spark_jobs.engine.spark.windows.parameters import LEAST_MEMORY_BYTES, Duration, Frame, is_integer, refuse, ticks
from spark_jobs.engine.windows.kinds.adaptive import AdaptiveKind, Deltas
from spark_jobs.engine.windows.kinds.cuts import Cuts, Trigger
from spark_jobs.engine.windows.monoid import Aggregate

DEFAULT_TARGET = 100
_DEFAULTS = {
    "min_duration": timedelta(milliseconds=10),
    "max_duration": timedelta(seconds=5),
    "reset": timedelta(days=1),
}
_SECOND = 1_000_000
_TAKEN = ("window_start", "window_end", "window_id", "delta_ids", "stats", "trigger")


def at_time() -> Trigger:
    """The trigger that closes a window when its duration is over."""
    return Trigger("time")


def at_count(rows: int) -> Trigger:
    """The trigger that closes a window once it has `rows` rows, 1 or more."""
    if isinstance(rows, bool) or not isinstance(rows, int) or rows < 1:
        raise refuse("triggers", expected="at_count: 1 row or more", found=rows, value=rows)
    return Trigger("count", rows)


def at_size(size_bytes: int) -> Trigger:
    """The trigger that closes a window once its rows have `size_bytes` bytes, 1 or more."""
    if isinstance(size_bytes, bool) or not isinstance(size_bytes, int) or size_bytes < 1:
        raise refuse("triggers", expected="at_size: 1 byte or more", found=size_bytes, value=size_bytes)
    return Trigger("size", size_bytes)


def at_rate_change(share: float) -> Trigger:
    """The trigger that closes a window when the rate changes by more than `share`.

    It compares the mean of the last 5 rates with that of the 10 before. Rates are rows per second (for integer times:
    per tick) at each row of the cell; ten rates are needed.
    """
    if isinstance(share, bool) or not isinstance(share, (int, float)) or not share > 0:
        raise refuse("triggers", expected="at_rate_change: a share above 0", found=share, value=share)
    return Trigger("rate_change", float(share))


def at_memory_pressure(share: float = 0.95) -> Trigger:
    """The trigger that closes a window once its rows take a share (above 0, at most 1) of `memory_max_bytes`."""
    if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 < share <= 1:
        raise refuse("triggers", expected="at_memory_pressure: above 0, at most 1", found=share, value=share)
    return Trigger("memory_pressure", float(share))


def adaptive_windows(df: DataFrame, **options: Unpack[AdaptiveOptions]) -> DataFrame:
    """Windows that last `target_batch_size / rate`, within limits, or until a trigger fires: a function of the rows.

    Rates and windows start anew at every cell `[n*reset, (n+1)*reset)` of a key, and no window crosses its end. The
    exact rules are in `spark_jobs.engine.twins.adaptive_windows`.

    Args:
        delta: the column with the id of a row, which breaks ties of time. Rows of one cell with the same id are one
            delta: the first of them in time counts, and of several at that time the one with the least values.
        aggregates: further columns, as in `sliding_windows`; none by default.
        vector: the column with the name of the vector that a row changes; `stats.vectors_affected` counts the different
            ones.
        size_bytes: the integer column with the size of a row; None: sizes are 0, and no trigger may use sizes.
        min_duration, max_duration, reset: 10 ms, 5 s and one UTC day for timestamps; must be given for integers.
        rate_window: the time before a row over which its rate is measured, which `stats` then has; None: over
            `max_duration`.
        triggers: tested in this order; None: time, `at_count(target_batch_size)` and, with sizes, memory pressure.
        memory_max_bytes: the greatest memory of a worker, of which `at_memory_pressure` is a share.
        grace: a row counts if its cell ends after the stream time at its arrival less `grace`, else it is late.

    Other arguments: see `sliding_windows`.

    Returns:
        One row per window: key columns, `window_start` (the time of the first row), `window_end` (the instant of
        closing), `window_id` (unique within a key), `delta_ids` in order, `stats` (`delta_count`, `vectors_affected`,
        `total_bytes`, `avg_delta_size`, `duration` in ticks; with `rate_window` also `rate`, the rows per second or
        tick before the first row, and `rate_window`, the ticks over which they were counted), `trigger` (time, count,
        size, rate_change, memory_pressure, or reset if the cell ended), aggregates.

    Raises:
        ParameterError: a parameter is not as described above; no job has been started. IntegerOverflow, from the
            action: the bytes of a window exceed int64.
    """
    call, kind = adaptive_plan(df, **options)
    return call.windows(kind)


def adaptive_plan(
    df: DataFrame,
    *,
    delta: str,
    aggregates: Mapping[str, Aggregate] | None = None,
    vector: str | None = None,
    size_bytes: str | None = None,
    target_batch_size: int = DEFAULT_TARGET,
    min_duration: Duration | None = None,
    max_duration: Duration | None = None,
    reset: Duration | None = None,
    rate_window: Duration | None = None,
    triggers: Sequence[Trigger] | None = None,
    **shared: Unpack[SharedOptions],
) -> tuple[WindowCall, AdaptiveKind]:
    """The checked parameters of `adaptive_windows`; `shared` are those of all kinds, see `WindowOptions`."""
    deltas, options = Deltas(delta, vector, size_bytes), WindowOptions(aggregates=aggregates or {}, **shared)
    frame = Frame.of(df)
    for parameter, name in (("delta", delta), ("vector", vector), ("size_bytes", size_bytes)):
        if name is not None:
            _check_column(parameter, name, frame.column(parameter, name))
    time_type = frame.time(options.time)
    chosen = tuple(_default_triggers(target_batch_size, size_bytes) if triggers is None else triggers)
    cuts = Cuts(
        target=_positive("target_batch_size", target_batch_size),
        shortest=_length("min_duration", min_duration, time_type),
        longest=_length("max_duration", max_duration, time_type),
        reset=_length("reset", reset, time_type),
        triggers=_check_triggers(chosen, size_bytes),
        memory_bytes=_positive("memory_max_bytes", options.memory_max_bytes),
        rate_unit=1 if is_integer(time_type) else _SECOND,
        rate_window=None if rate_window is None else ticks("rate_window", rate_window, time_type, least=1),
    )
    if cuts.shortest > cuts.longest:
        raise refuse("min_duration", expected=f"at most max_duration, {cuts.longest} ticks", found=cuts.shortest)
    # a small budget may be meant for the trigger alone
    options = replace(options, memory_max_bytes=max(options.memory_max_bytes, LEAST_MEMORY_BYTES))
    call = WindowCall.of_options(df, options, aggregates_needed=False, taken=_TAKEN, also_read=deltas.columns())
    return call, AdaptiveKind(cuts, deltas)


def _check_column(parameter: str, name: str, kind: DataType) -> None:
    if parameter == "size_bytes" and not isinstance(kind, (ByteType, ShortType, IntegerType, LongType)):
        raise refuse(parameter, expected="an integer column", found=f"{name}: {kind.simpleString()}", column=name)


def _default_triggers(target: int, size_bytes: str | None) -> list[Trigger]:
    return [at_time(), at_count(_positive("target_batch_size", target))] + (
        [] if size_bytes is None else [at_memory_pressure()]
    )


def _check_triggers(triggers: tuple[Any, ...], size_bytes: str | None) -> tuple[Trigger, ...]:
    for trigger in triggers:
        if not isinstance(trigger, Trigger):
            raise refuse("triggers", expected="triggers such as at_time() or at_count(100)", found=trigger)
        if size_bytes is None and trigger.reason in ("size", "memory_pressure"):
            raise refuse(
                "size_bytes", expected=f"the column of sizes that the trigger {trigger.reason} asks for", found=None
            )
    return triggers


def _positive(parameter: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < 2**63:
        raise refuse(parameter, expected="an integer of 1 or more", found=value, value=value)
    return value


def _length(parameter: str, length: Duration | None, time: DataType) -> int:
    if length is None:
        if is_integer(time):
            raise refuse(parameter, expected="a number of units of the integer time column", found=None)
        length = _DEFAULTS[parameter]
    return ticks(parameter, length, time, least=1)
