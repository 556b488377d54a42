"""Held reads: a reader keeps since at or before a time, so that the time stays readable, until its lease ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from spark_jobs.kernels.arrangement import ArrangementState, Lease
from spark_jobs.sources import Source
from spark_jobs.storage.fence import Fence
from spark_jobs.storage.lake import Lake
from spark_jobs.trace.frontiers import SourceFrontiers, commit, load


def hold(lake: Lake, source: Source, fence: Fence, run_id: str, lease: Lease) -> SourceFrontiers:
    """Add the lease, in place of one of its name; it holds until it expires or is released.

    Raises:
        ReadBelowSince: its time is no longer readable.
    """
    return _changed(lake, source, fence, run_id, lambda state: state.hold(lease))


def release(lake: Lake, source: Source, fence: Fence, run_id: str, name: str) -> SourceFrontiers:
    """End the lease of this name; since itself moves with the next run. Nothing if there is none."""
    return _changed(lake, source, fence, run_id, lambda state: state.release(name))


def _changed(
    lake: Lake, source: Source, fence: Fence, run_id: str, step: Callable[[ArrangementState], ArrangementState]
) -> SourceFrontiers:
    before = load(lake, source, near=fence.token)
    after = replace(before, arrangement=step(before.arrangement))
    if after != before:
        commit(lake, source, fence, run_id, after)
    return after
