"""The marts of a source follow its publication: built aside, tested, and then shown."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from spark_jobs.config import Settings
from spark_jobs.publish.changes import changes_since, rows_of_windows
from spark_jobs.publish.marts import MartsResult, MartTest, StandingMart, build_marts, marts_failed
from spark_jobs.publish.project import Project, laid_out
from spark_jobs.session import session_kind
from spark_jobs.sources import Source
from spark_jobs.storage.lake import Lake
from spark_jobs.storage.shown_marts import MARTS, NO_VERSION, STAGING, ShownMarts, note_shown, show, shown_marts
from spark_jobs.storage.table_notes import NotedTable

ROWS_INTERPRETED = 2_000_000
"""Up to so many rows of windows Spark interprets the marts' queries. To make and compile code for them took 42 % of the
samples of a day of flights' marts."""


def marts_follow(
    settings: Settings,
    lake: Lake,
    source: Source,
    published_us: int,
    keep: Callable[[Sequence[MartTest]], None] | None = None,
) -> str | None:
    """Let the marts follow; what was done, None if they had. Views that the catalog alone has lost are made again as
    they were. dbt speaks to the lake server: a classic session leaves behind what is to be built. `keep` is given what
    came of dbt's tests.

    Raises:
        MartsFailed: the project, a model or a test failed; the marts that passed are shown.
    """
    if published_us == 0:
        return None
    shown, project = shown_marts(settings.home, source.name), laid_out(settings)
    visible = lake.names_if_present(MARTS)
    regained = _show_again(lake, project, {mart: v for mart, v in shown.versions.items() if mart not in visible})
    visible = visible | regained
    if (shown.published_us, shown.project) == (published_us, project.version) and visible.issuperset(shown.versions):
        return f"{', '.join(sorted(regained))} shown again" if regained else None
    if session_kind(settings) == "classic":
        return "left behind: they are built through the lake server"
    versions = {mart: version for mart, version in shown.versions.items() if mart in visible}
    standing = {mart: _standing(noted, versions.get(mart)) for mart, noted in _stored(lake, project).items()}
    # of the source's own marts: each publication is a look at all of its histories
    reflected = {stands.published for mart, stands in standing.items() if mart in versions and stands.published}
    build = partial(
        build_marts,
        settings,
        project,
        source,
        published_us=published_us,
        standing=standing,
        changes=changes_since(lake, source, reflected),
        compiled=rows_of_windows(lake, source) > ROWS_INTERPRETED,
    )
    begun = time.time()
    result = build()
    if _remove_remains(lake, result, begun):
        result = build()
    if keep is not None:
        keep(result.tests)
    versions |= _show(lake, result.passed, versions)
    note_shown(
        settings.home, source.name, ShownMarts(None if result.failed else published_us, project.version, versions)
    )
    if result.failed:
        raise marts_failed(settings, project, source, result)
    return f"{len(result.status)} models and tests in {result.seconds:.1f} s"


def _show_again(lake: Lake, project: Project, lost: Mapping[str, int]) -> set[str]:
    """Make views again for marts that have lost theirs (`lost`: the version that each showed), unless the table has
    changed since; the names of those marts."""
    if not lost:
        return set()
    stored = _stored(lake, project)
    unchanged = {mart for mart, version in lost.items() if mart in stored and stored[mart].version == version}
    for mart in unchanged:
        show(lake, mart, stored[mart])
    return unchanged


def _remove_remains(lake: Lake, result: MartsResult, begun: float) -> bool:
    """Remove what a creation that was ended has left in the places of marts that failed; whether there was anything.

    Delta creates no table where files lie. A mart whose files are younger than this build, or that has a log, is left
    alone: somebody writes it, or it stands.
    """
    remains = [
        mart
        for mart in result.models_failed
        if not lake.is_stored(STAGING, mart) and 0 < lake.newest_file(f"{STAGING}.db/{mart}") < begun
    ]
    for mart in remains:
        lake.remove_files(f"{STAGING}.db/{mart}")
    return bool(remains)


def marts_lacking(settings: Settings, lake: Lake, source: Source) -> list[str]:
    """The marts of the source that people saw last, and that the catalog does not have."""
    versions = shown_marts(settings.home, source.name).versions
    return sorted(f"{MARTS}.{mart}" for mart in {*versions} - lake.names_if_present(MARTS)) if versions else []


def _stored(lake: Lake, project: Project) -> dict[str, NotedTable]:
    """What stands of each model, once the catalog has again what it alone has lost."""
    present = lake.names_if_present(STAGING)
    stored = {mart for mart in project.models if lake.is_stored(STAGING, mart)}
    for mart in stored - present:
        lake.take_up(STAGING, mart)
    return {mart: lake.noted(STAGING, mart) for mart in stored}


def _standing(stored: NotedTable, shown: int | None) -> StandingMart:
    published = stored.note.get("published")
    return StandingMart(
        stored.columns,
        None if published is None else int(published),
        stored.note.get("model"),
        stored.version == shown,
    )


def _show(lake: Lake, passed: Sequence[str], shown: Mapping[str, int]) -> dict[str, int]:
    """Show what passed, where people see another version; the version of each."""
    versions = {}
    for mart in passed:
        tested = lake.noted(STAGING, mart) if lake.is_stored(STAGING, mart) else None
        versions[mart] = NO_VERSION if tested is None else tested.version
        if shown.get(mart) != versions[mart]:
            show(lake, mart, tested)
    return versions
