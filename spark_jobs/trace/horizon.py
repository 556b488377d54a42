"""The horizon: before it states are not kept exact, so that neither a read nor a drop from before it is taken."""

from __future__ import annotations

from spark_jobs.errors import TidemarkError
from spark_jobs.sources import Source
from spark_jobs.storage.times import instant
from spark_jobs.trace.frontiers import SourceFrontiers

SHOWN_DROPS = 5
"""Drops that a refusal's sentence names; its facts hold all of them."""


class BelowHorizon(TidemarkError):
    """An event time or a drop lies before the horizon. Facts: `horizon_us`, and `at_us` or `drops`."""

    code = "below_horizon"


def check_state_time(frontiers: SourceFrontiers, event_us: int) -> None:
    """Refuse to tell a state at an event time before the horizon."""
    if event_us >= frontiers.horizon_us:
        return
    raise BelowHorizon(
        expected=f"an event time at or after the horizon, {instant(frontiers.horizon_us).isoformat()}",
        found=instant(event_us).isoformat(),
        consequence="no answer was given, since states before the horizon are not kept exact",
        next_step="ask for a later event time; `retention.horizon` in the source file says how far back states go",
        at_us=event_us,
        horizon_us=frontiers.horizon_us,
    )


def check_drops(source: Source, frontiers: SourceFrontiers, drops: range) -> None:
    """Refuse drops that lie wholly before the horizon and have not landed: nothing that is published may change
    there."""
    below = [
        n
        for n in drops
        if source.drops.interval(n)[1] <= frontiers.horizon_us and not frontiers.has_landed(range(n, n + 1))
    ]
    if not below:
        return
    labels = [source.drops.label(n) for n in below]
    more = ", …" if len(labels) > SHOWN_DROPS else ""
    raise BelowHorizon(
        expected=f"drops of {source.name} that end after its horizon, {instant(frontiers.horizon_us).isoformat()}",
        found=f"{len(labels)} before it: {', '.join(labels[:SHOWN_DROPS])}{more}",
        consequence="nothing was landed",
        next_step="run later drops only; `retention.horizon` in the source file says how far back drops are taken",
        drops=labels,
        horizon_us=frontiers.horizon_us,
    )
