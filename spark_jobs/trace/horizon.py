"""The horizon: before it states are not kept exact, so that neither a read nor a drop from before it is taken, and a
row from before it that lands in a later drop changes nothing that is published.

Which rows those are is decided once, when a row lands, by the horizon of then: see `horizon_of_run`.
"""

from __future__ import annotations

from spark_jobs.kernels.deltas.frontiers import BelowHorizon
from spark_jobs.kernels.placing import Horizon
from spark_jobs.sources import Source
from spark_jobs.storage.publication import Publication
from spark_jobs.storage.times import instant
from spark_jobs.trace.frontiers import SourceFrontiers

SHOWN_DROPS = 5
"""Drops that a refusal's sentence names; its facts hold all of them."""


def published_horizon(source: Source, frontiers: SourceFrontiers, publication: Publication) -> int:
    """The horizon that reads meet, in microseconds: retention's distance before `reached` of what is published, never
    before the one that stands. It moves with the publication that a run makes; the one that stands follows with the
    next upkeep, so that a run which fails its gates moves none."""
    kept_us = source.retention.horizon_us
    if kept_us is None or publication.published_us == 0:
        return frontiers.horizon_us
    return max(frontiers.horizon_us, publication.reached_us - kept_us)


def check_state_time(horizon_us: int, event_us: int) -> None:
    """Refuse to tell a state at an event time before the horizon, as `published_horizon` gives it."""
    if event_us >= horizon_us:
        return
    raise BelowHorizon(
        expected=f"an event time at or after the horizon, {instant(horizon_us).isoformat()}",
        found=instant(event_us).isoformat(),
        consequence="no answer was given, since states before the horizon are not kept exact",
        next_step="ask for a later event time; `retention.horizon` in the source file says how far back states go",
        at_us=event_us,
        horizon_us=horizon_us,
    )


def landing_horizon(source: Source, frontiers: SourceFrontiers) -> int:
    """The horizon that a run meets, in microseconds: retention's distance before what has been reached; never before
    the one that stands, which follows only when a run has been published. The first run of a source meets none."""
    kept_us = source.retention.horizon_us
    if kept_us is None or not frontiers.landed:
        return frontiers.horizon_us
    return max(frontiers.horizon_us, frontiers.reached_us - kept_us)


def check_drops(source: Source, frontiers: SourceFrontiers, drops: range) -> None:
    """Refuse drops that lie wholly before the horizon and have not landed: nothing that is published may change
    there."""
    horizon_us = landing_horizon(source, frontiers)
    below = [
        n for n in drops if source.drops.interval(n)[1] <= horizon_us and not frontiers.has_landed(range(n, n + 1))
    ]
    if not below:
        return
    labels = [source.drops.label(n) for n in below]
    more = ", …" if len(labels) > SHOWN_DROPS else ""
    raise BelowHorizon(
        expected=f"drops of {source.name} that end after its horizon, {instant(horizon_us).isoformat()}",
        found=f"{len(labels)} before it: {', '.join(labels[:SHOWN_DROPS])}{more}",
        consequence="nothing was landed",
        next_step="run later drops only; `retention.horizon` in the source file says how far back drops are taken",
        drops=labels,
        horizon_us=horizon_us,
    )


def horizon_of_run(source: Source, frontiers: SourceFrontiers, first_drop: int) -> Horizon:
    """By which a run judges the rows that it takes in: `frontiers` are those before it, `first_drop` the first that it
    takes in."""
    return Horizon(
        landing_horizon(source, frontiers),
        source.retention.horizon_us,
        source.drops,
        source.drops.interval(first_drop)[0],
    )
