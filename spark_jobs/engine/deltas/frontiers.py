"""The frontiers of retention in the form of the chain kernels, and the refusals of reads before them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spark_jobs.engine.deltas.ops import DeltaError
from spark_jobs.model import Frontier

ALWAYS = int(np.iinfo(np.int64).min)
"""The least time, which is the value of a frontier before it has moved."""

STILL_KNOWN = int(np.iinfo(np.int64).max)
"""The value of `known_to` for a delta that was not taken back."""

LATEST = STILL_KNOWN - 1
"""A time later than all times of deltas."""


class BelowHorizon(DeltaError):
    """A read asks for a state at an event time below horizon, or a drop is from before it. Facts: `event_time`,
    `horizon`; of a source `horizon_us`, and `at_us` (of a read) or `drops`."""

    code = "below_horizon"


class BelowSince(DeltaError):
    """A read asks for the knowledge at a visible time below since. Facts: `known_at`, `since`; of a source `at_us`,
    `since_us`."""

    code = "below_since"


class FrontierRegressionError(DeltaError):
    """A compaction has a frontier below that of an earlier compaction. Facts: `frontier`, `now`, `asked`."""

    code = "frontier_regression"


@dataclass(frozen=True, slots=True)
class Frontiers:
    """The frontiers of retention, in ticks; `ALWAYS` for one that has not moved yet."""

    since: int = ALWAYS
    horizon: int = ALWAYS

    @classmethod
    def of(cls, since: Frontier, horizon: Frontier) -> Frontiers:
        """The frontiers as ticks. An empty frontier is LATEST: all times of deltas are behind it."""
        return cls(*(LATEST if frontier.time is None else frontier.time for frontier in (since, horizon)))

    def advanced_to(self, other: Frontiers) -> Frontiers:
        """`other`, if neither of its frontiers is before this one's. Raises FrontierRegressionError."""
        for name in ("since", "horizon"):
            now, asked = getattr(self, name), getattr(other, name)
            if asked < now:
                raise FrontierRegressionError(
                    expected=f"{name} at or beyond {now}", found=str(asked),
                    next_step="compact with the frontiers that retention has now", frontier=name, now=now, asked=asked,
                )  # fmt: skip
        return other

    def check_read(self, event_time: int | None, known_at: int | None) -> None:
        """Raise BelowHorizon or BelowSince for a time before its frontier; None is a read without that time."""
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
"""The frontiers before either has moved."""
