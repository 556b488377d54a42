"""The portal's pages by name, and the facts that each shows. Code that serves or writes pages calls `Portal.page`."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from pyarrow import ArrowInvalid

from spark_jobs.config import Settings
from spark_jobs.definitions.catalog import lake_older, source_tables
from spark_jobs.errors import TidemarkError
from spark_jobs.portal import overview
from spark_jobs.portal.docs import DBT_DOCS, docs_file, docs_of_run
from spark_jobs.portal.glossary import WORDS
from spark_jobs.portal.held_lake import HeldLake
from spark_jobs.portal.links import Links
from spark_jobs.portal.marts import Mart, MartRows, mart_rows, marts
from spark_jobs.portal.names import decoded, decoded_key
from spark_jobs.portal.results import newest_test_results, tests_version
from spark_jobs.portal.runs import Run, changes
from spark_jobs.portal.standing import Override
from spark_jobs.portal.values import counted, moment, shown
from spark_jobs.reads.row_keys import published_table
from spark_jobs.reads.why import why
from spark_jobs.sources import Source, environments, read_sources
from spark_jobs.storage.coordination.audit_notes import audit_note
from spark_jobs.storage.coordination.kept_plans import plan_of_run
from spark_jobs.storage.delta.table_notes import column_types
from spark_jobs.storage.names.shown_marts import shown_marts

TEMPLATES = Path(__file__).parent / "templates"
STYLES = "portal.css"
CHANGED_ROWS = 3
"""The most keys of each published table whose change a run's page shows."""
MART_ROWS = 20
LISTED = 100
"""The most records, drops or runs that a page lists; it counts the rest."""
_HTML = ".html"


class PageMissing(TidemarkError):
    """There is no such page. Facts: `page`."""

    code = "page_missing"


def _missing(page: str) -> PageMissing:
    return PageMissing(
        expected="a page of the portal",
        found=page,
        consequence="nothing is shown",
        next_step="begin at the first page; a run's page is there once the run has landed something",
        page=page,
    )


@dataclass(frozen=True)
class Scope:
    """The sources that the user may see. `sees(None)` is true if the user may see all sources, also future ones."""

    sees: Callable[[str | None], bool] = lambda _: True


class Portal:
    """The pages of an installation. Safe to use from several threads.

    Args:
        settings: those of the installation.
        is_live: true if pages are made on request, also pages that nothing links to yet: then forms are shown.
    """

    def __init__(self, settings: Settings, *, is_live: bool) -> None:
        self.settings = settings
        self.lake = HeldLake(settings.lake)
        self._is_live = is_live
        self._templates = Environment(
            autoescape=True,
            loader=FileSystemLoader(TEMPLATES),
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters |= {
            "shown": shown,
            "moment": moment,
            "counted": counted,
            "quoted": lambda text: shlex.quote(str(text)),
        }

    def sources(self) -> dict[str, Source]:
        """The sources whose files have no problem, by name."""
        return self._folder().sources

    def page(
        self,
        name: str,
        asked: Mapping[str, Sequence[str]] | None = None,
        scope: Scope | None = None,
        links: Links | None = None,
    ) -> str:
        """The HTML of a page. `asked` has the values of a form, by name of the field.

        Raises:
            PageMissing: there is no page of this name, or the user may not see it.
            TidemarkError: a read for the page is refused, such as one with a key that fits no table.
        """
        scope = scope or Scope()
        links = links or Links(name)
        try:
            kind, content = self._content(name, asked or {}, scope)
        except OSError:
            # a file that was listed is gone: the table was rewritten and cleaned, or made anew
            self.lake.forget()
            kind, content = self._content(name, asked or {}, scope)
        template = self._templates.get_template(f"{kind}.html.j2")
        common = {"links": links, "now": datetime.now(UTC), "is_live": self._is_live, "inline_styles": None}
        return template.render(common | content)

    def _content(self, name: str, asked: Mapping[str, Sequence[str]], scope: Scope) -> tuple[str, dict[str, Any]]:
        """The name of a page's template, and the values that the page shows."""
        kind, _, rest = name.removesuffix(_HTML).partition("/")
        makers: dict[str, Callable[..., dict[str, Any]]] = {
            "sources": self._source,
            "runs": self._run,
            "quarantine": self._quarantine,
            "why": partial(self._why, scope),
        }
        if kind == "index" and not rest:
            content = self._index(scope)
        elif kind == "glossary" and not rest:
            content = {"words": WORDS}
        elif kind == "marts":
            content = self._mart(rest, scope) if rest else {"marts": self._marts(scope), "dbt_docs": self._dbt_docs()}
            kind = "mart" if rest else "marts"
        elif kind in makers:
            of_source, _, more = rest.partition("/")
            source = self.sources().get(decoded(of_source))
            if source is None or not scope.sees(source.name):
                raise _missing(name)
            try:
                content = makers[kind](source, more, asked)
            except (ArrowInvalid, KeyError) as error:
                raise self._older(source, error) from error
            kind = kind.removesuffix("s")
        else:
            raise _missing(name)
        return kind, content

    def report(self, source: Source) -> str:
        """The page of a source as one file, without links and with its styles."""
        content = self._source(source, "", {})
        links = Links("", is_alone=True)
        styles = (TEMPLATES / STYLES).read_text(encoding="utf-8")
        common = {"links": links, "now": datetime.now(UTC), "is_live": False, "inline_styles": styles}
        return self._templates.get_template("source.html.j2").render(common | content)

    def _older(self, source: Source, error: Exception) -> Exception:
        """The refusal of an older lake, if its tables lack the column that `error` is about; else `error`."""
        present = [table for table in source_tables(source) if self.lake.version(table) >= 0]
        columns = {table: column_types(self.lake.folder.handle(table)) for table in present}
        missing = {t: [c.name for c in t.columns if c.name not in has] for t, has in columns.items()}
        older = lake_older(source, {table.qualified: names for table, names in missing.items() if names})
        return older if older.explains(str(error)) else error

    def refusal(self, name: str, error: TidemarkError) -> str:
        """The HTML of a page that shows `error` in place of the page `name`."""
        common = {"links": Links(name), "now": datetime.now(UTC), "is_live": self._is_live, "inline_styles": None}
        return self._templates.get_template("refused.html.j2").render(common | {"error": str(error)})

    def _folder(self) -> Any:
        folder = Path(self.settings.sources)
        stamps = tuple(sorted((path.name, path.stat().st_mtime_ns) for path in folder.iterdir() if path.is_file()))
        return self.lake.kept("sources", stamps, lambda: read_sources(folder))

    def marts(self) -> dict[str, Mart]:
        """The marts that dbt has built, by name."""
        manifest = self.settings.home / "dbt" / "target" / "manifest.json"
        sources = self.sources()
        of = (manifest.stat().st_mtime_ns if manifest.exists() else 0, tests_version(self.lake), sources)
        return self.lake.kept("marts", of, lambda: marts(self.settings, sources, newest_test_results(self.lake)))

    def facts(self, source: Source) -> overview.SourceFacts:
        """The facts of a source that its pages show."""
        return overview.source_facts(self.lake, source, audit_note(self.settings.home, source.name))

    def _index(self, scope: Scope) -> dict[str, Any]:
        folder = self._folder()
        seen = [source for name, source in folder.sources.items() if scope.sees(name)]
        facts = sorted((self.facts(source) for source in seen), key=lambda f: f.urgency)
        errors = [str(error) for error in folder.errors if scope.sees(Path(error.file).stem)]
        return {"sources": facts, "errors": errors, "environments": list(self._environments(scope))}

    def _environments(self, scope: Scope) -> Iterator[dict[str, str]]:
        """The sources of environments that differ from production's or have been built, one at a time."""
        for environment in environments(self.settings.home):
            built = environment.builds()
            for source, file in environment.differences(Path(self.settings.sources)).items():
                if scope.sees(source) and (file != "same" or source in built):
                    tables = "built" if source in built else "not built"
                    yield {"environment": environment.name, "source": source, "file": file, "tables": tables}

    def _source(self, source: Source, _: str, __: Mapping[str, Sequence[str]]) -> dict[str, Any]:
        facts = self.facts(source)
        tables = [published_table(source, name) for name in overview.published_names(source)]
        page = overview.source_page(self.lake, facts)
        chains = None if page.chains is None else asdict(page.chains)
        shown = {"facts": facts, "page": page, "chains": chains, "tables": tables, "listed": LISTED}
        return shown | {"overrides": facts.overrides()}

    def _run(self, source: Source, name: str, _: Mapping[str, Sequence[str]]) -> dict[str, Any]:
        facts = self.facts(source)
        by_id = {run.run_id: run for run in facts.runs}
        run: Run | None = by_id.get(name) or by_id.get(decoded(name))
        if run is None and not self._is_live:
            raise _missing(f"runs/{source.name}/{name}")
        # links in Airflow and in the output of commands also lead to runs that have found nothing new
        run = run or Run(decoded(name))
        changed = []
        if run.published is not None:
            version = tuple(self.lake.version(table) for table in overview.histories(source))
            changed = self.lake.kept(
                ("changes", source.name, run.run_id),
                version,
                lambda: changes(self.lake, source, run.published, CHANGED_ROWS),  # type: ignore[arg-type]
            )
        labels = {seq_no: source.drops.label(seq_no) for seq_no in run.drops}
        docs = docs_of_run(self.settings, run.run_id)
        plan = plan_of_run(self.settings.home, run.run_id)
        content = {"source": source, "run": run, "changes": changed, "plan": plan, "labels": labels, "docs": docs}
        return content | {"listed": LISTED}

    def _quarantine(self, source: Source, _: str, __: Mapping[str, Sequence[str]]) -> dict[str, Any]:
        facts = self.facts(source)
        return {"source": source, "groups": overview.quarantine_groups(facts), "facts": facts, "listed": LISTED}

    def _why(self, scope: Scope, source: Source, rest: str, asked: Mapping[str, Sequence[str]]) -> dict[str, Any]:
        name, _, encoded_values = rest.partition("/")
        table = published_table(source, decoded(name))
        if encoded_values:
            key = decoded_key(encoded_values)
        else:
            given = {column: values[0].strip() for column, values in asked.items() if column in table.key and values}
            key = [f"{column}={value}" for column, value in given.items()]
        reasons = why(self.lake, source, table.name, key, LISTED)
        of_marts = [mart for mart in self._seen_marts(scope) if mart.follows and mart.follows.name == table.name]
        return {"source": source, "why": reasons, "marts": of_marts, "key": list(reasons.key.values())}

    def _marts(self, scope: Scope) -> list[tuple[Mart, MartRows | None, list[Override]]]:
        shown = [(mart, self._mart_rows(mart)) for mart in self._seen_marts(scope)]
        return [(mart, rows, self._let_pass(mart, rows)) for mart, rows in shown]

    def _let_pass(self, mart: Mart, rows: MartRows | None) -> list[Override]:
        """The overrides of the drops that the mart includes.

        The mart may show an earlier publication of the source that it follows; then they are the overrides of that one.
        """
        known, made_of = self.sources(), mart.sources or frozenset()
        shown = {mart.source: rows.published} if rows is not None else {}
        return [
            override
            for name in sorted(made_of & known.keys())
            for override in self.facts(known[name]).overrides(shown.get(name))
        ]

    def _seen_marts(self, scope: Scope) -> list[Mart]:
        return [mart for mart in self.marts().values() if self._may_see(mart.sources, scope)]

    def _may_see(self, made_of: frozenset[str] | None, scope: Scope) -> bool:
        """True if the user may see data that is made of these sources.

        The user has to be allowed to see each of them. If they are unknown (None), or one of them is gone, the user has
        to be allowed to see all sources.
        """
        known = self.sources()
        if made_of is not None and made_of <= known.keys():
            return all(map(scope.sees, made_of))
        return scope.sees(None) and all(map(scope.sees, known))

    def _dbt_docs(self) -> str | None:
        return DBT_DOCS if docs_file(self.settings, DBT_DOCS) else None

    def _mart_rows(self, mart: Mart) -> MartRows | None:
        notes = [shown_marts(self.settings.home, source) for source in self.sources()]
        showing = [note for note in notes if mart.name in note.versions]
        newest = max(showing, key=lambda note: (note.versions[mart.name], note.published_us or 0), default=None)
        return mart_rows(self.lake, mart, newest, MART_ROWS)

    def _mart(self, name: str, scope: Scope) -> dict[str, Any]:
        mart = self.marts().get(decoded(name))
        if mart is None or not self._may_see(mart.sources, scope):
            raise _missing(f"marts/{name}")
        tests = [test if self._may_see(test.sources, scope) else test.without_rows() for test in mart.tests]
        known = [name for name in self.sources() if scope.sees(name)]
        shown = self._mart_rows(mart)
        content = {"mart": mart, "shown": shown, "tests": tests, "seen_sources": known}
        return content | {"overrides": self._let_pass(mart, shown)}
