"""The windows of a source, as its file declares them: bounds, keys, aggregates and what becomes of late rows."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, PositiveInt, model_validator

from spark_jobs.sources.problems import refuse, refuse_in_words
from spark_jobs.sources.quantities import Duration, PositiveDuration
from spark_jobs.sources.section import Identifier, Section

AGGREGATE_FUNCTIONS = ("count", "sum", "min", "max", "avg", "first", "last")
_AGGREGATE = re.compile(r"\s*([a-z_]+)\s*\(\s*([a-z][a-z0-9_]*)?\s*\)\s*")


def as_tuple(value: Any) -> Any:
    """A single name as a list of one, so that `key: origin` and `key: [origin, carrier]` both read."""
    return (value,) if isinstance(value, str) else value


Names = Annotated[tuple[str, ...], BeforeValidator(as_tuple), Field(min_length=1)]
"""One name or a list of names."""


class Aggregate(Section):
    """One aggregate of a window: `count()`, or one of `AGGREGATE_FUNCTIONS` over a column."""

    function: Literal["count", "sum", "min", "max", "avg", "first", "last"]
    column: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _accept_a_call(cls, value: Any) -> Any:
        match = _AGGREGATE.fullmatch(value) if isinstance(value, str) else None
        if match is None or match[1] not in AGGREGATE_FUNCTIONS or (match[2] is None and match[1] != "count"):
            names = ", ".join(f"{name}(column)" for name in AGGREGATE_FUNCTIONS[1:])
            raise refuse(f"count(), count(column), {names}", value)
        return {"function": match[1], "column": match[2]}


class Late(Section):
    """What becomes of a row that is late for a window.

    `discard`: kept in `silver.late` alone. `next_window`: goes to the window that is open, with its own event time.
    `reemit`: the window is published again with the row, as long as it ended at most `limit` before (no limit: always);
    the default, without limit.
    """

    policy: Literal["discard", "next_window", "reemit"] = "reemit"
    limit_us: Duration | None = Field(default=None, alias="limit")

    @model_validator(mode="before")
    @classmethod
    def _accept_a_bare_policy(cls, value: Any) -> Any:
        return {"policy": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _check_limit(self) -> Late:
        if self.limit_us is not None and self.policy != "reemit":
            raise refuse("no `limit`: only the policy reemit has one", self.policy)
        return self


class WindowBase(Section):
    """What every kind of window has: key columns, a timeline, aggregates, and a policy for late rows."""

    refused_keys: ClassVar[dict[str, str]] = {"grace": "`late` (a source file takes `late`, not `grace`)"}

    key: Names
    time: str | None = None
    aggregates: dict[Identifier, Aggregate] = Field(min_length=1)
    late: Late = Late()


class SlidingWindow(WindowBase):
    """KIP-450 windows `[s, s + size]`, both ends inclusive."""

    kind: Literal["sliding"]
    size_us: PositiveDuration = Field(alias="size")


class SessionWindow(WindowBase):
    """Sessions: rows of one key whose distance is at most `gap`, bounds the first and last time."""

    kind: Literal["session"]
    gap_us: PositiveDuration = Field(alias="gap")


class TumblingWindow(WindowBase):
    """Windows `[k * size, (k + 1) * size)`."""

    kind: Literal["tumbling"]
    size_us: PositiveDuration = Field(alias="size")


class HoppingWindow(WindowBase):
    """Windows `[k * step, k * step + size)`; a step beyond the size would leave gaps and is refused."""

    kind: Literal["hopping"]
    size_us: PositiveDuration = Field(alias="size")
    step_us: PositiveDuration = Field(alias="step")

    @model_validator(mode="after")
    def _check_step(self) -> HoppingWindow:
        if self.step_us > self.size_us:
            raise refuse_in_words("a step of at most the size", "a greater one, which leaves gaps between windows")
        return self


class AdaptiveWindow(WindowBase):
    """Windows whose duration is `target / rate`, kept between `min` and `max`."""

    kind: Literal["adaptive"]
    target: PositiveInt = 100
    min_us: PositiveDuration = Field(default=10_000, alias="min")
    max_us: PositiveDuration = Field(default=5_000_000, alias="max")

    @model_validator(mode="after")
    def _check_bounds(self) -> AdaptiveWindow:
        if self.min_us > self.max_us:
            raise refuse_in_words("a `min` of at most `max`", "a greater one")
        return self


Window = Annotated[
    SlidingWindow | SessionWindow | TumblingWindow | HoppingWindow | AdaptiveWindow, Field(discriminator="kind")
]
"""Any of the window kinds, told apart by `kind`."""
