"""Withdraw what a run has sealed and not published.

A run that is interrupted, or fails a gate, may leave the frontiers beyond the publication. No reader has seen them: a
read at or beyond `published` is refused. So the next run goes on from the frontiers of the publication, and what the
earlier run landed enters the trace anew, at the times that it would have had if that run had never sealed. The
reference has the same step as `force_seal`, the roll-back of a commit that failed.
"""

from __future__ import annotations

from dataclasses import replace

from spark_jobs.trace.frontiers import SourceFrontiers


def withdrawn(unpublished: SourceFrontiers, published: SourceFrontiers, token: int) -> SourceFrontiers:
    """The frontiers `published`, once those that followed them are withdrawn under `token`.

    Batches that only the withdrawn frontiers name are obsolete from then on. Since, the horizon and held reads stay:
    they follow from what is published and from readers, not from what the unpublished run took in.
    """
    state = unpublished.arrangement
    arrangement = state.rolled_back(published.arrangement)
    known = {*arrangement.handles(), *(handle for handle, _ in published.obsolete)}
    came = sorted({*state.handles(), *(handle for handle, _ in unpublished.obsolete)} - known)
    return replace(
        published,
        arrangement=arrangement,
        horizon_us=max(published.horizon_us, unpublished.horizon_us),
        obsolete=(*published.obsolete, *((handle, token) for handle in came)),
    )
