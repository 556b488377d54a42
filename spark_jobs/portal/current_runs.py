"""Words about the run that has its turn on a source, and about a run that has published nothing.

Each function returns the words, the parts of the page's name, and the arguments of `tidemark` that go on from there.
"""

from __future__ import annotations

from spark_jobs.portal.runs import Run, Runs
from spark_jobs.sources import Source
from spark_jobs.storage.coordination.turns import CurrentRun

Words = tuple[str, tuple[str, ...], str]


def describe_current(source: Source, current: CurrentRun, runs: Runs) -> Words:
    """Words about a run that is on its way; `runs` are those that have left rows in the lake."""
    # the lake has no rows of a run that has just begun, so a site of files has no page of it
    has_page = current.turn.run_id in runs.ids
    page = ("runs", source.name, current.turn.run_id) if has_page else ("sources", source.name)
    return f"a run is on its way: {current.turn}", page, f"status --drops {source.name}"


def describe_unpublished(source: Source, last: Run, current: CurrentRun | None) -> Words:
    """Words about the last run, which has published nothing and on which no process works; `current` has the turn."""
    page, looks = ("runs", source.name, last.run_id), f"status --drops {source.name}"
    if current is not None:
        words = "it is between two stages in Airflow, or was interrupted there"
        return f"the last run has published nothing: {words}", page, looks
    words = "the last run was interrupted and has published nothing: run its drops again"
    if not last.drops:
        return words, page, looks
    first, end = (source.drops.label(drop) for drop in (last.drops[0], last.drops[-1]))
    return words, page, f"run {source.name} --from {first}{'' if first == end else f' --to {end}'}"
