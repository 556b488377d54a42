"""Retention's frontiers as the chain kernels take them, and the reads that they refuse."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spark_jobs.kernels.deltas.ops import DeltaError
from spark_jobs.model import Frontier

ALWAYS = int(np.iinfo(np.int64).min)
"""A time that every other one is at or beyond: where a frontier stands before it moves."""

STILL_KNOWN = int(np.iinfo(np.int64).max)
"""`known_to` of a delta that was not taken back."""

LATEST = STILL_KNOWN - 1
"""A time later than every one that a delta has."""


class BelowHorizon(DeltaError):
    """A state was asked for at an event time below horizon: facts `event_time`, `horizon`; or a source was asked for
    one, or given a drop, from before it: `horizon_us`, and `at_us` or `drops`."""

    code = "below_horizon"


class BelowSince(DeltaError):
    """A read asks for the knowledge at a visible time below since. Facts: `known_at`, `since`; of a source `at_us`,
    `since_us`."""

    code = "below_since"


class FrontierRegressionError(DeltaError):
    """Compaction was asked for with a frontier below the one it was done for. Facts: `frontier`, `now`, `asked`."""

    code = "frontier_regression"


@dataclass(frozen=True, slots=True)
class Frontiers:
    """Retention's frontiers in ticks, as far as they have moved; `ALWAYS` before they did."""

    since: int = ALWAYS
    horizon: int = ALWAYS

    @classmethod
    def of(cls, since: Frontier, horizon: Frontier) -> Frontiers:
        """Of frontiers that may be empty: then every time that a delta has lies behind them."""
        return cls(*(LATEST if frontier.time is None else frontier.time for frontier in (since, horizon)))

    def advanced_to(self, other: Frontiers) -> Frontiers:
        """`other`, which may lie behind in nothing. Raises FrontierRegressionError."""
        for name in ("since", "horizon"):
            now, asked = getattr(self, name), getattr(other, name)
            if asked < now:
                raise FrontierRegressionError(
                    expected=f"{name} at or beyond {now}", found=str(asked),
                    next_step="compact with the frontiers that retention has now", frontier=name, now=now, asked=asked,
                )  # fmt: skip
        return other

    def check_read(self, event_time: int | None, known_at: int | None) -> None:
        """Raise BelowHorizon or BelowSince for a time before the frontiers; None: no time is asked for."""
        if event_time is not None and event_time < self.horizon:
            raise BelowHorizon(
                expected=f"an event time at or after the horizon, {self.horizon}", found=str(event_time),
                consequence="no answer was given, since states before the horizon are not kept exact",
                next_step="leave out what lies before it", event_time=event_time, horizon=self.horizon,
            )  # fmt: skip
        if known_at is not None and known_at < self.since:
            raise BelowSince(
                expected=f"a visible time at or after since, {self.since}", found=str(known_at),
                consequence="no answer was given, since times before it are no longer told apart",
                next_step="leave out what lies before it, or ask as known later", known_at=known_at, since=self.since,
            )  # fmt: skip


UNMOVED = Frontiers()
"""Nothing has passed."""
