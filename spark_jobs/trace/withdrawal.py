"""Withdraw the frontiers that a run has sealed and not published.

A run that is interrupted, or fails a gate, may leave the frontiers beyond the publication. No reader has seen them: a
read at or beyond `published` is refused. So the next run starts from the frontiers of the publication. The rows that
the earlier run landed enter the trace anew, at the times that they would have had if that run had never sealed. The
reference has the same step as `force_seal`, the roll-back of a commit that failed.
"""

from __future__ import annotations

from dataclasses import replace

from spark_jobs.trace.frontiers import SourceFrontiers


def withdraw(unpublished: SourceFrontiers, published: SourceFrontiers, token: int) -> SourceFrontiers:
    """The frontiers `published`, after the later frontiers have been withdrawn under `token`.

    Batches that only the withdrawn frontiers name are obsolete from `token` on. Since, the horizon, the time from which
    on bronze has all rows, and held reads keep their new values: they follow from the publication and from readers, not
    from the rows of the unpublished run.
    """
    state = unpublished.arrangement
    arrangement = state.rolled_back(published.arrangement)
    handles = {*arrangement.handles(), *(handle for handle, _ in published.obsolete)}
    came = sorted({*state.handles(), *(handle for handle, _ in unpublished.obsolete)} - handles)
    return replace(
        published,
        arrangement=arrangement,
        horizon_us=max(published.horizon_us, unpublished.horizon_us),
        rows_from_us=max(published.rows_from_us, unpublished.rows_from_us),
        obsolete=(*published.obsolete, *((handle, token) for handle in came)),
    )
