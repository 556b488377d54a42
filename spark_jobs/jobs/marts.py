"""The marts of a source follow its publication: they are built aside, tested, and then shown."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from spark_jobs.config import Settings
from spark_jobs.publish.changes import changes_since, rows_of_windows
from spark_jobs.publish.marts import BuiltMart, MartsResult, MartTest, build_marts, marts_failed
from spark_jobs.publish.project import Project, laid_out
from spark_jobs.session import session_kind
from spark_jobs.sources import Source
from spark_jobs.storage.delta.table_notes import NotedTable, noted_table
from spark_jobs.storage.lakes.lake import Lake
from spark_jobs.storage.lakes.spark_lake import SparkLake
from spark_jobs.storage.names.shown_marts import MARTS, NO_VERSION, STAGING, ShownMarts, note_shown, show, shown_marts


def marts_follow(
    settings: Settings,
    lake: SparkLake,
    source: Source,
    published_us: int,
    keep: Callable[[Sequence[MartTest]], None] | None = None,
) -> str | None:
    """Build and show the marts for the publication; returns a sentence about the work, None if there was none.

    Views that only the catalog has lost are made again as they were. dbt works through the lake server, so a classic
    session builds no marts. `keep` is called with the results of dbt's tests.

    Raises:
        MartsFailed: the project, a model or a test failed; the marts that passed are shown.
    """
    if published_us == 0:
        return None
    marts_on_view, project = shown_marts(settings.home, source.name), laid_out(settings)
    visible = lake.catalog.names_if_present(MARTS)
    regained = _show_again(
        lake, project, {mart: v for mart, v in marts_on_view.versions.items() if mart not in visible}
    )
    visible = visible | regained
    # a mart that has lost its view and has no model any more is gone: nothing could build it
    with_model = project.models
    left = {mart: v for mart, v in marts_on_view.versions.items() if mart in visible or mart in with_model}
    if left != marts_on_view.versions:
        marts_on_view = replace(marts_on_view, versions=left)
        note_shown(settings.home, source.name, marts_on_view)
    if (marts_on_view.published_us, marts_on_view.project) == (published_us, project.version) and visible.issuperset(
        marts_on_view.versions
    ):
        return f"{', '.join(sorted(regained))} shown again" if regained else None
    if session_kind(settings) == "classic":
        return "left behind: they are built through the lake server"
    versions = {mart: version for mart, version in marts_on_view.versions.items() if mart in visible}
    built_marts = {
        mart: _built_mart(noted, versions.get(mart)) for mart, noted in _stored_tables(lake, project).items()
    }
    # of the source's own marts only: for each publication all histories of the source are searched for changes
    reflected = {
        built_mart.published for mart, built_mart in built_marts.items() if mart in versions and built_mart.published
    }
    build = partial(
        build_marts,
        settings,
        project,
        source,
        published_us=published_us,
        built=built_marts,
        changes=changes_since(lake, source, reflected),
        rows=rows_of_windows(lake, source),
    )
    start_time = time.time()
    result = build()
    if _remove_remains(lake, result, start_time):
        result = build()
    if keep is not None:
        keep(result.tests)
    versions |= _show(lake, result.passed, versions)
    note_shown(
        settings.home, source.name, ShownMarts(None if result.failed else published_us, project.version, versions)
    )
    if result.failed:
        label = source.drops.label(source.drops.number_at(published_us) - 1)
        again = f"tidemark run {source.name} --from {label}"
        raise marts_failed(settings, project, source, result, visible=visible, again=again)
    return result.describe() if result.passed else None


def _show_again(lake: SparkLake, project: Project, lost: Mapping[str, int]) -> set[str]:
    """Make the views of marts again that have lost theirs, unless the table has changed; returns these marts' names.

    `lost`: the version of the table that each mart showed.
    """
    if not lost:
        return set()
    stored = _stored_tables(lake, project)
    unchanged = {mart for mart, version in lost.items() if mart in stored and stored[mart].version == version}
    for mart in unchanged:
        show(lake, mart, stored[mart])
    return unchanged


def _remove_remains(lake: Lake, result: MartsResult, start_time: float) -> bool:
    """Remove the files of interrupted creations in the folders of marts that failed; True if there were any.

    Delta creates no table in a folder with files. A folder with files younger than this build is left alone, since
    somebody writes them; so is a table with a log.
    """
    remains = [
        mart
        for mart in result.models_failed
        if not lake.folder.is_stored(STAGING, mart)
        and 0 < lake.folder.newest_write(f"{STAGING}.db/{mart}") < start_time
    ]
    for mart in remains:
        lake.folder.remove(f"{STAGING}.db/{mart}")
    return bool(remains)


def marts_lacking(settings: Settings, lake: Lake, source: Source) -> list[str]:
    """The marts of the source that people saw last and that the catalog does not have."""
    versions = shown_marts(settings.home, source.name).versions
    return sorted(f"{MARTS}.{mart}" for mart in {*versions} - lake.catalog.names_if_present(MARTS)) if versions else []


def _stored_tables(lake: SparkLake, project: Project) -> dict[str, NotedTable]:
    """The stored table of each model that has one; tables that only the catalog has lost are registered in it again."""
    present = lake.catalog.names_if_present(STAGING)
    stored = {mart for mart in project.models if lake.folder.is_stored(STAGING, mart)}
    for mart in stored - present:
        lake.catalog.take_up(STAGING, mart)
    return {mart: noted_table(lake.folder.handle_of(STAGING, mart)) for mart in stored}


def _built_mart(stored: NotedTable, visible_version: int | None) -> BuiltMart:
    published = stored.note.get("published")
    return BuiltMart(
        stored.columns,
        None if published is None else int(published),
        stored.note.get("model"),
        stored.version == visible_version,
    )


def _show(lake: SparkLake, passed: Sequence[str], visible_versions: Mapping[str, int]) -> dict[str, int]:
    """Show the marts that passed, if people see another version; returns the version of each."""
    versions = {}
    for mart in passed:
        tested = noted_table(lake.folder.handle_of(STAGING, mart)) if lake.folder.is_stored(STAGING, mart) else None
        versions[mart] = NO_VERSION if tested is None else tested.version
        if visible_versions.get(mart) != versions[mart]:
            show(lake, mart, tested)
    return versions
