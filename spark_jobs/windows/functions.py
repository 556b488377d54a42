"""`sliding_windows`, `session_windows`, `tumbling_windows`, `hopping_windows`: windows of any DataFrame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame

from spark_jobs.kernels.windows import Aggregate, hopping_table, session_table, sliding_table

from .adapter import WindowCall
from .parameters import Duration, is_integer, refuse, ticks

Columns = str | Sequence[str]


def sliding_windows(
    df: DataFrame,
    *,
    key: Columns,
    time: str,
    size: Duration,
    aggregates: Mapping[str, Aggregate],
    grace: Duration | None = None,
    arrival: str | None = None,
    stream: Columns | None = None,
    clip_at_zero: bool | None = None,
) -> DataFrame:
    """Exact sliding windows, as KIP-450 defines them: set by the rows themselves, both bounds inclusive.

    Per key: for each row at t the window `[t-size, t]`, and `[t+1, t+1+size]` if a row lies in it; one a start.

        size 10, rows at 103 107 112 119:
        [93,103] [97,107] [102,112] [104,114] [108,118] [109,119] [113,123]

    The result depends on the multiset of rows alone, floats to the last bit. A row counts nowhere if its key, its time
    or any column that an aggregate reads is null.

    Args:
        key: column name(s); windows are made for each key by itself.
        time: an integer or timestamp column; one unit of its resolution is the tick (timestamps: 1 µs).
        size: greatest distance of two rows of one window, 0 or more: ticks, or a timedelta for timestamps.
        aggregates: output column name to aggregate, e.g. `{"n": count(), "total": sum_("value")}`.
        grace: a row counts for a window iff the window's end is at or after the stream time at its arrival less
            `grace`. Stream time is the greatest time among the rows that arrived up to then. None: no row is late.
        arrival: the column that orders arrivals; rows of one arrival arrive together. It also breaks ties of time for
            `first` and `last` (else the greater value is later).
        stream: column(s) whose rows share one stream time; None: the whole DataFrame, all keys together.
        clip_at_zero: times start at 0, as in Kafka: rows at t <= size share `[0, size]` as their left window, and rows
            before 0 count nowhere. None: yes for an integer time, no for a timestamp.

    Returns:
        One row a window: key columns, `window_start`, `window_end` (both inclusive; int64 or the time's own type),
        aggregates. No order is promised.

    Raises:
        ParameterError: a parameter is outside of the above; no job has been started.
    """
    call = WindowCall.checked(
        df, key=key, time=time, aggregates=aggregates, grace=grace, arrival=arrival, stream=stream
    )
    if clip_at_zero is not None and not isinstance(clip_at_zero, bool):
        raise refuse("clip_at_zero", expected="True, False or None", found=clip_at_zero)
    parameters: dict[str, Any] = {
        "size": ticks("size", size, call.time_type, least=0),
        "clip_at_zero": is_integer(call.time_type) if clip_at_zero is None else clip_at_zero,
    }
    return call.compute(sliding_table, nulls_skip_row=True, parameters=parameters)


def session_windows(
    df: DataFrame,
    *,
    key: Columns,
    time: str,
    gap: Duration,
    aggregates: Mapping[str, Aggregate],
    grace: Duration | None = None,
    arrival: str | None = None,
    stream: Columns | None = None,
) -> DataFrame:
    """Sessions: the rows of a key, cut where the distance to the one before is greater than `gap`.

    `window_start` and `window_end` are the first and last time, both inclusive. Nulls in a column that an aggregate
    reads are passed over by that aggregate alone; a row with a null key or time is in no session.

    Args:
        gap: greatest distance of neighbours, above 0: ticks, or a timedelta for timestamps.
        grace: a row at t is in a session iff `t + gap` is at or after the stream time at its arrival less `grace`.

    Other arguments, result and errors: see `sliding_windows`.
    """
    call = WindowCall.checked(
        df, key=key, time=time, aggregates=aggregates, grace=grace, arrival=arrival, stream=stream
    )
    parameters = {"gap": ticks("gap", gap, call.time_type, least=1)}
    return call.compute(session_table, nulls_skip_row=False, parameters=parameters)


def hopping_windows(
    df: DataFrame,
    *,
    key: Columns,
    time: str,
    size: Duration,
    advance: Duration,
    offset: Duration = 0,
    aggregates: Mapping[str, Aggregate],
    grace: Duration | None = None,
    arrival: str | None = None,
    stream: Columns | None = None,
) -> DataFrame:
    """Hopping windows `[k*advance + offset, k*advance + offset + size)` for every integer k, half open.

    A window is there iff a row counts in it. Nulls as in `session_windows`.

    Args:
        size: length of a window, above 0: ticks, or a timedelta for timestamps.
        advance: distance of two starts, above 0 and at most `size` (there would be gaps between windows).
        offset: shifts all starts; timestamps count from 1970-01-01.
        grace: a row counts for a window iff the window's end is after the stream time at its arrival less `grace`.

    Other arguments, result and errors: see `sliding_windows`.
    """
    call = WindowCall.checked(
        df, key=key, time=time, aggregates=aggregates, grace=grace, arrival=arrival, stream=stream
    )
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
    shift = ticks("offset", offset, call.time_type, least=None)
    parameters = {"size": length, "advance": step, "offset": shift}
    return call.compute(hopping_table, nulls_skip_row=False, parameters=parameters)


def tumbling_windows(
    df: DataFrame,
    *,
    key: Columns,
    time: str,
    size: Duration,
    offset: Duration = 0,
    aggregates: Mapping[str, Aggregate],
    grace: Duration | None = None,
    arrival: str | None = None,
    stream: Columns | None = None,
) -> DataFrame:
    """Tumbling windows `[k*size + offset, (k+1)*size + offset)`: `hopping_windows` with an advance of `size`."""
    return hopping_windows(
        df,
        key=key,
        time=time,
        size=size,
        advance=size,
        offset=offset,
        aggregates=aggregates,
        grace=grace,
        arrival=arrival,
        stream=stream,
    )
