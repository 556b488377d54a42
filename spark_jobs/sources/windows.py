"""The windows of a source, as its file declares them: bounds, keys, aggregates and what becomes of late rows."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import BeforeValidator, Field, PositiveInt, ValidationInfo, field_validator, model_validator

from spark_jobs.sources.calls import AggregateCall, TriggerCall
from spark_jobs.sources.columns import Zone
from spark_jobs.sources.emissions import EarlyTriggerCall
from spark_jobs.sources.problems import refuse, refuse_in_words
from spark_jobs.sources.quantities import (
    DAY_US,
    SECOND_US,
    Duration,
    Period,
    PositiveDuration,
    Size,
    format_duration,
)
from spark_jobs.sources.section import Identifier, Section


def as_tuple(value: Any) -> Any:
    """A single name as a tuple of one, so that `key: origin` and `key: [origin, carrier]` are both accepted."""
    return (value,) if isinstance(value, str) else value


MOST_WINDOWS_A_ROW = 1_000_000
"""The most windows that one row may be in: a worker has no memory for more."""
Names = Annotated[
    tuple[str, ...], BeforeValidator(as_tuple, json_schema_input_type=str | tuple[str, ...]), Field(min_length=1)
]
"""One name or a list of names."""


PolicyName = Literal["discard", "next_window", "reemit"]
"""The names of the policies for late rows; `POLICIES` of the engine has what each does."""


class Late(Section):
    """The policy for a row that is late for a window.

    `discard`: the row is only kept in `silver.late`. `next_window`: a row that is late for every window that it makes
    counts as a row at the start of its drop, with its own event time for `first` and `last`. `reemit`: the window is
    published again with the row, if it ended at most `limit` before (no limit: always). The default is `reemit` without
    a limit.
    """

    short_forms: ClassVar = ({"enum": [*get_args(PolicyName)]},)

    policy: PolicyName = "reemit"
    """The policy for late rows, as above."""
    limit_us: Duration | None = Field(default=None, alias="limit")
    """The time before the start of a row's drop within which a window must have ended, for the policy `reemit`."""

    @model_validator(mode="before")
    @classmethod
    def _accept_a_bare_policy(cls, value: Any) -> Any:
        return {"policy": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _check_limit(self) -> Late:
        if self.limit_us is not None and self.policy != "reemit":
            raise refuse("no `limit`: only the policy reemit has one", self.policy)
        return self


class Grace(Section):
    """The time for which a window stays open behind the stream time, as in Kafka Streams.

    The stream time at which a row arrives is the greatest time among the rows of its stream up to this row, in the
    order of drops; within a drop in that of the source's `sequence`, if it has one. The row does not count in windows
    that ended more than `period` before it. A duration alone is the period.
    """

    short_forms: ClassVar = ({"type": "string"},)

    period_us: Duration = Field(alias="period")
    """The grace period."""
    stream: Annotated[tuple[str, ...], BeforeValidator(as_tuple, json_schema_input_type=str | tuple[str, ...])] = ()
    """The columns whose rows share one stream time, such as the partition; if left out, all rows of the source do."""

    @model_validator(mode="before")
    @classmethod
    def _accept_a_bare_period(cls, value: Any) -> Any:
        return {"period": value} if isinstance(value, str) else value


class WindowBase(Section):
    """The fields that every kind of window has.

    They are key columns, a timeline, aggregates, a policy for late rows, and the time for which it is kept.
    """

    refused_keys: ClassVar[dict[str, str]] = {
        "step": "`advance` (of kind hopping)",
        "target": "`target_batch_size` (of kind adaptive)",
        "emit": "no such key for kind adaptive: its triggers close windows, so its table has what they emit",
    }
    key: Names
    """The column, or columns, whose values have windows of their own."""
    time: str | None = None
    """The timeline of the windows; if left out, the primary one."""
    aggregates: dict[Identifier, AggregateCall] = Field(min_length=1)
    """The columns of the table, each with a call such as `count()` or `sum(amount)`."""
    late: Late = Late()
    grace: Grace | None = None
    """In place of `late`: rows count by stream time, as in Kafka Streams."""
    keep_us: PositiveDuration | None = Field(default=None, alias="keep")
    """The time after its end for which a window stays published; if left out, for ever. The first run that reaches that
    time removes it from the published table; its history stays."""


class EmittingWindow(WindowBase):
    """The fields of windows that can emit early results: all but adaptive ones, which triggers close."""

    emit: Literal["end", "early"] = "end"
    """`early`: the table `silver.<name>_emissions` has the early results of each window that `triggers` emit, and its
    result. `end`: there is no such table."""
    triggers: tuple[EarlyTriggerCall, ...] = ()
    """The triggers of early results, beside `emit: early`. Of several that fire at a row, the first in this list is
    named."""

    @model_validator(mode="after")
    def _check_triggers(self) -> EmittingWindow:
        names = [trigger.function for trigger in self.triggers]
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise refuse_in_words("each trigger once", f"{', '.join(repeated)} repeated")
        if self.emit == "early" and not names:
            raise refuse_in_words("`triggers` beside `emit: early`: what emits early results", "none")
        if names and self.emit == "end":
            raise refuse_in_words("`emit: early` beside `triggers`, which only emit early results", "none")
        return self


class SlidingWindow(EmittingWindow):
    """KIP-450 windows `[s, s + size]`, both ends inclusive."""

    kind: Literal["sliding"]
    size_us: PositiveDuration = Field(alias="size")
    """The length of a window."""
    tick_us: PositiveDuration = Field(default=1, alias="tick")
    """The granularity: rows count at whole ticks, and the window after a row starts a tick after it. Kafka's is 1 ms. A
    whole number of ticks makes up a second, the size and the grace."""
    clip_at_zero: bool = False
    """True: as in Kafka, no window starts before 1970-01-01, earlier rows count nowhere, and rows within one size after
    it share the window that starts there."""

    @field_validator("tick_us")
    @classmethod
    def _check_tick(cls, tick_us: int, info: ValidationInfo) -> int:
        grace = info.data.get("grace")
        lengths = SECOND_US, info.data.get("size_us") or 0, 0 if grace is None else grace.period_us
        if any(length_us % tick_us for length_us in lengths):
            expected = "a tick of which a whole number makes up a second, the size and the grace"
            raise refuse_in_words(expected, format_duration(tick_us))
        return tick_us


class SessionWindow(EmittingWindow):
    """Sessions: rows of one key that are at most `gap` apart. The bounds are the first and the last time."""

    kind: Literal["session"]
    gap_us: PositiveDuration = Field(alias="gap")
    """The longest pause within a session."""


class TumblingWindow(EmittingWindow):
    """Windows `[k * size + offset, (k + 1) * size + offset)`; `fixed` is another name for it."""

    kind: Literal["tumbling", "fixed"]
    size_us: PositiveDuration = Field(alias="size")
    """The length of a window."""
    offset_us: Duration = Field(default=0, alias="offset")
    """The distance of the grid of windows from 1970-01-01."""


class HoppingWindow(EmittingWindow):
    """Windows `[k * advance + offset, k * advance + offset + size)`, where `advance` is at most `size`."""

    kind: Literal["hopping"]
    size_us: PositiveDuration = Field(alias="size")
    """The length of a window."""
    advance_us: PositiveDuration = Field(alias="advance")
    """The distance between the starts of two windows."""
    offset_us: Duration = Field(default=0, alias="offset")
    """The distance of the grid of windows from 1970-01-01."""

    @field_validator("advance_us")
    @classmethod
    def _check_advance(cls, advance_us: int, info: ValidationInfo) -> int:
        size_us = info.data.get("size_us")
        if size_us is not None and advance_us > size_us:
            raise refuse_in_words(
                f"at most the size, {format_duration(size_us)}: rows between two windows would count nowhere",
                format_duration(advance_us),
            )
        if size_us is not None and -(-size_us // advance_us) > MOST_WINDOWS_A_ROW:
            raise refuse_in_words(
                f"a millionth of the size, {format_duration(size_us)}, or more: each row is in size / advance windows"
                " (kind sliding has a window wherever the rows in it change)",
                format_duration(advance_us),
            )
        return advance_us


class CalendarWindow(EmittingWindow):
    """Days, weeks, months, quarters or years of a time zone, from local midnight to local midnight, half open."""

    kind: Literal["calendar"]
    period: Period
    """The length of a window, in units of the calendar."""
    zone: Zone = "UTC"
    """The time zone whose midnights bound the windows."""


class WindowMemory(Section):
    """The limit of which the trigger `memory_pressure` takes a share: bytes of the rows of one open window."""

    max_bytes: Size = 100 << 20
    """The size of that memory."""


class AdaptiveWindow(WindowBase):
    """Windows that last `target_batch_size / rate`, kept between `min` and `max`, or until a trigger fires.

    Rates and windows start afresh at every cell `[n * reset, (n + 1) * reset)` of a key.
    """

    kind: Literal["adaptive"]
    target_batch_size: PositiveInt = 100
    """The number of rows that a window should have."""
    min_us: PositiveDuration = Field(default=10_000, alias="min")
    """The least length of a window."""
    max_us: PositiveDuration = Field(default=5_000_000, alias="max")
    """The greatest length of a window."""
    reset_us: PositiveDuration = Field(default=DAY_US, alias="reset")
    """The length of a cell, at whose start rates and windows begin afresh."""
    rate_window_us: PositiveDuration | None = Field(default=None, alias="rate_window")
    """The length of time before a row over which its rate is measured; `stats` then has the fields `rate` and
    `rate_window`. If left out, it is `max`, and `stats` has neither."""
    triggers: tuple[TriggerCall, ...] | None = None
    """By default time, count(target_batch_size), memory_pressure(0.95)."""
    memory: WindowMemory = WindowMemory()
    vector: str | None = None
    """The column whose different values `stats` counts (default: the entity)."""
    size_bytes: str | None = None
    """The column with the size of a row (default: the bytes of its values)."""

    @field_validator("max_us")
    @classmethod
    def _check_bounds(cls, max_us: int, info: ValidationInfo) -> int:
        min_us = info.data.get("min_us")
        if min_us is not None and min_us > max_us:
            raise refuse_in_words(f"at least `min`, {format_duration(min_us)}", format_duration(max_us))
        return max_us

    @field_validator("triggers")
    @classmethod
    def _check_triggers(cls, triggers: tuple[TriggerCall, ...] | None) -> tuple[TriggerCall, ...] | None:
        if triggers == ():
            raise refuse("at least one trigger, or no such key", [])
        return triggers


Window = Annotated[
    SlidingWindow | SessionWindow | TumblingWindow | HoppingWindow | CalendarWindow | AdaptiveWindow,
    Field(discriminator="kind"),
]
"""A window of any kind, which the field `kind` names."""
