"""The marts of an installation as a user may see them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from spark_jobs.config import Settings
from spark_jobs.portal.asking import VisibleSources
from spark_jobs.portal.docs import DBT_DOCS, docs_file
from spark_jobs.portal.drop_states import Override
from spark_jobs.portal.held_lake import HeldLake
from spark_jobs.portal.marts import Mart, MartRows, mart_rows, marts
from spark_jobs.portal.overview import SourceFacts
from spark_jobs.portal.results import newest_test_results, tests_version
from spark_jobs.sources import Source
from spark_jobs.storage.names.shown_marts import ShownMarts, shown_marts

MART_ROWS = 20
"""The most rows of a mart that its page shows."""


class SeenMarts:
    """The marts that dbt has built.

    Args:
        settings: those of the installation.
        lake: its lake.
        sources: returns the sources whose files have no problem, by name.
        facts: returns the facts of a source.
    """

    def __init__(
        self,
        settings: Settings,
        lake: HeldLake,
        sources: Callable[[], Mapping[str, Source]],
        facts: Callable[[Source], SourceFacts],
    ) -> None:
        self._settings = settings
        self._lake = lake
        self._sources = sources
        self._facts = facts

    def all(self) -> dict[str, Mart]:
        """The marts that dbt has built, by name."""
        manifest = self._settings.home / "dbt" / "target" / "manifest.json"
        sources = self._sources()
        of = (manifest.stat().st_mtime_ns if manifest.exists() else 0, tests_version(self._lake), sources)
        return self._lake.remember("marts", of, lambda: self._read(sources))

    def _read(self, sources: Mapping[str, Source]) -> dict[str, Mart]:
        built = marts(self._settings, sources, {})
        # results are read where there is something to show them for
        return marts(self._settings, sources, newest_test_results(self._lake, sources)) if built else built

    def with_rows(self, scope: VisibleSources) -> list[tuple[Mart, MartRows | None, list[Override]]]:
        """The marts that the user may see, each with its rows and the checks that were let pass in them."""
        seen = [(mart, self.rows(mart)) for mart in self.visible(scope)]
        return [(mart, rows, self.let_pass(mart, rows)) for mart, rows in seen]

    def let_pass(self, mart: Mart, rows: MartRows | None) -> list[Override]:
        """The overrides of the drops that the mart includes.

        The mart may show an earlier publication of the source that it follows; then they are the overrides of that one.
        """
        sources, made_of = self._sources(), mart.sources or frozenset()
        published = {mart.source: rows.published} if rows is not None else {}
        return [
            override
            for name in sorted(made_of & sources.keys())
            for override in self._facts(sources[name]).overrides(published.get(name))
        ]

    def visible(self, scope: VisibleSources) -> list[Mart]:
        """The marts that the user may see."""
        return [mart for mart in self.all().values() if self.may_see(mart.sources, scope)]

    def may_see(self, made_of: frozenset[str] | None, scope: VisibleSources) -> bool:
        """True if the user may see data that is made of these sources.

        The user has to be allowed to see each of them. If they are unknown (None), or one of them is gone, the user has
        to be allowed to see all sources.
        """
        sources = self._sources()
        if made_of is not None and made_of <= sources.keys():
            return all(map(scope.sees, made_of))
        return scope.sees(None) and all(map(scope.sees, sources))

    def dbt_docs(self) -> str | None:
        """The path of dbt's documentation among the pages; None if it does not exist."""
        return DBT_DOCS if docs_file(self._settings, DBT_DOCS) else None

    def rows(self, mart: Mart) -> MartRows | None:
        """The rows of a mart that people see; None if they see none."""
        showing = [note for note in self._lake.once("mart notes", self._notes) if mart.name in note.versions]
        newest = max(showing, key=lambda note: (note.versions[mart.name], note.published_us or 0), default=None)
        return mart_rows(self._lake, mart, newest, MART_ROWS)

    def _notes(self) -> list[ShownMarts]:
        """The note of each source on the versions of marts that people see."""
        return [shown_marts(self._settings.home, source) for source in self._sources()]

    def before(self, mart: Mart, scope: VisibleSources) -> tuple[list[Source], list[Mart]]:
        """The sources that a mart is made of, and the marts that it reads, with itself."""
        seen = {each.name: each for each in self.visible(scope)}
        read, left = {mart.name: mart}, [mart]
        while left:
            for table in left.pop().reads:
                name = table.removeprefix("marts.")
                if name in seen and name not in read:
                    read[name] = seen[name]
                    left.append(seen[name])
        sources = self._sources()
        return [sources[name] for name in sorted(mart.sources or ()) if name in sources], list(read.values())
