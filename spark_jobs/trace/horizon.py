"""The horizon: states before it are not kept exact.

So reads and drops from before it are refused, and a row from before it that lands in a later drop changes nothing that
is published. A row is below the horizon or not by the horizon at the time when it lands: see `horizon_of_run`.
"""

from __future__ import annotations

from spark_jobs.engine.deltas import BelowHorizon
from spark_jobs.engine.updates import Horizon
from spark_jobs.sources import Source
from spark_jobs.storage.coordination.publication import Publication
from spark_jobs.storage.descriptions.times import instant
from spark_jobs.trace.frontiers import SourceFrontiers

SHOWN_DROPS = 5
"""The most drops that a refusal's sentence names; its facts list all of them."""


def published_horizon(source: Source, frontiers: SourceFrontiers, publication: Publication) -> int:
    """The horizon for reads, in microseconds: retention's distance before `reached` of the publication, and never
    before the horizon of `frontiers`.

    It moves with the publication that a run makes. The horizon of the frontiers follows with the next upkeep, so a run
    that fails its gates moves neither.
    """
    kept_us = source.retention.horizon_us
    if kept_us is None or publication.published_us == 0:
        return frontiers.horizon_us
    return max(frontiers.horizon_us, publication.reached_us - kept_us)


def check_state_time(horizon_us: int, event_us: int) -> None:
    """Raise BelowHorizon for the read of a state at an event time before the horizon; see `published_horizon`."""
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
    """The horizon for a run, in microseconds: retention's distance before the time that runs have reached, and never
    before the horizon of `frontiers`.

    The horizon of the frontiers follows only when a run has been published. Retention sets no horizon for the first
    run of a source.
    """
    kept_us = source.retention.horizon_us
    if kept_us is None or not frontiers.landed:
        return frontiers.horizon_us
    return max(frontiers.horizon_us, frontiers.reached_us - kept_us)


def check_drops(source: Source, frontiers: SourceFrontiers, drops: range) -> None:
    """Raise BelowHorizon for drops that end at or before the horizon and have not landed: nothing that is published may
    change there."""
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
    """The horizon by which a run judges the rows that it takes in. `frontiers` are those before the run, `first_drop`
    is the first drop that it takes in."""
    return Horizon(
        landing_horizon(source, frontiers),
        source.retention.horizon_us,
        source.drops,
        source.drops.interval(first_drop)[0],
    )
