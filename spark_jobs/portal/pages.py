"""The portal's pages by name, and the facts that each shows. Code that serves or writes pages calls `Portal.page`."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from pyarrow import ArrowInvalid

from spark_jobs.config import Settings
from spark_jobs.definitions.catalog import lake_older, source_tables
from spark_jobs.engine.deltas import entity_class
from spark_jobs.errors import TidemarkError
from spark_jobs.model import pluralize
from spark_jobs.portal import overview
from spark_jobs.portal.actions.airflow import AirflowFacts
from spark_jobs.portal.actions.forms import BY_NAME
from spark_jobs.portal.asking import VisibleSources, missing_page, page_of_list, pages_of
from spark_jobs.portal.assets import CHARTS, EDITOR, SCRIPT, SQL_SCRIPT, STYLES, TEMPLATES, inline_styles
from spark_jobs.portal.cards import NEED_MEANINGS, NEEDS, by_need, mart_card, source_card
from spark_jobs.portal.changes import changes, with_components
from spark_jobs.portal.charts import planned_chart
from spark_jobs.portal.docs import docs_of_run
from spark_jobs.portal.flow import lineage, run_flow
from spark_jobs.portal.glossary import entries
from spark_jobs.portal.held_lake import HeldLake
from spark_jobs.portal.history import state_charts, steps_chart
from spark_jobs.portal.late_rows import duration, late_rows, with_places
from spark_jobs.portal.links import Links
from spark_jobs.portal.markup import cell, has_numbers, markup, moment, term
from spark_jobs.portal.marts import Mart
from spark_jobs.portal.names import decode_key, decode_part, encode_part
from spark_jobs.portal.quarantine import quarantine_groups
from spark_jobs.portal.runs import WholeRun, stage_numbers, whole_run
from spark_jobs.portal.seen_marts import SeenMarts
from spark_jobs.reads.row_keys import published_table
from spark_jobs.reads.why import why
from spark_jobs.sources import Source, environments, read_sources
from spark_jobs.storage.coordination.audit_notes import audit_note
from spark_jobs.storage.coordination.kept_plans import plan_of_run
from spark_jobs.storage.coordination.read_counts import count_read
from spark_jobs.storage.coordination.turns import current_run
from spark_jobs.storage.delta.table_notes import column_types
from spark_jobs.storage.descriptions.tables import LATE, PUBLISHED, STATE
from spark_jobs.storage.descriptions.times import parse_time

CHANGED_ROWS = 3
"""The most keys of each published table whose change a run's page shows."""
FIRST_RECORDS = 10
"""The records of each rule that the page of a quarantine shows; further pages have all of them."""
LISTED = 100
"""The most records, drops or runs that a page lists; it counts the rest."""
_HTML = ".html"


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
        self._marts = SeenMarts(settings, self.lake, self.sources, self.facts)
        self._templates = Environment(
            autoescape=True,
            loader=FileSystemLoader(TEMPLATES),
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters |= {
            "text": markup,
            "cell": cell,
            "moment": moment,
            "pluralize": pluralize,
            "duration": duration,
            "quoted": lambda text: shlex.quote(str(text)),
        }
        self._templates.globals |= {
            "term": term,
            "has_numbers": has_numbers,
            "stage_numbers": stage_numbers,
            "listed": LISTED,
            "first_records": FIRST_RECORDS,
            "need_words": NEEDS,
            "need_meanings": NEED_MEANINGS,
            "styles": STYLES,
            "script": SCRIPT,
            "charts": CHARTS,
            "is_live": is_live,
        }

    def sources(self) -> dict[str, Source]:
        """The sources whose files have no problem, by name."""
        return self._folder().sources

    def page(
        self,
        name: str,
        asked: Mapping[str, Sequence[str]] | None = None,
        scope: VisibleSources | None = None,
        links: Links | None = None,
        airflow: AirflowFacts | None = None,
    ) -> str:
        """The HTML of a page. `asked` has the values of a form, by name of the field.

        `airflow`: the facts of Airflow that the page shows; None where there is no Airflow.

        Raises:
            PageMissing: there is no page of this name, or the user may not see it.
            TidemarkError: a read for the page is refused, such as one with a key that fits no table.
        """
        scope = scope or VisibleSources()
        links = links or Links(name)
        with self.lake.one_look():
            try:
                kind, content = self._content(name, asked or {}, scope, links)
            except OSError:
                # a file that was listed is gone: the table was rewritten and cleaned, or made anew
                self.lake.forget()
                kind, content = self._content(name, asked or {}, scope, links)
            shows = {"airflow": airflow, "may_act": scope.acts_on, "has_sql": self._has_sql(scope)}
            return self._render(kind, links, content | shows)

    def _has_sql(self, scope: VisibleSources) -> bool:
        """True if the user may use the SQL page: a reader reads all sources."""
        return self._is_live and scope.sees(None)

    def _render(self, kind: str, links: Links, content: Mapping[str, Any], styles: str | None = None) -> str:
        """The HTML of a page. `styles`: the style sheets of a page that is one file by itself."""
        common = {"links": links, "now": datetime.now(UTC), "inline_styles": styles}
        common |= {"airflow": None, "may_act": VisibleSources().acts_on, "has_sql": False}
        page = self._templates.get_template(f"{kind}.html.j2").render(common | dict(content))
        # a name may have bytes that are no UTF-8, which no page can
        return page.encode(errors="replace").decode()

    def _content(
        self, name: str, asked: Mapping[str, Sequence[str]], scope: VisibleSources, links: Links
    ) -> tuple[str, dict[str, Any]]:
        """The name of a page's template, and the values that the page shows."""
        kind, _, tail = name.removesuffix(_HTML).partition("/")
        makers: dict[str, Callable[..., dict[str, Any]]] = {
            "sources": partial(self._source, scope, links),
            "runs": partial(self._run, scope, links),
            "quarantine": self._quarantine,
            "late": self._late,
            "why": partial(self._why, scope),
            "act": partial(self._act, scope),
            "activity": self._activity,
        }
        if kind == "index" and not tail:
            content = self._index(scope)
        elif kind == "glossary" and not tail:
            content = {"entries": entries()}
        elif kind == "sql" and not tail and self._has_sql(scope):
            content = {"sql_script": SQL_SCRIPT, "editor": EDITOR}
        elif kind == "marts":
            content = (
                self._mart(tail, scope, links)
                if tail
                else {"marts": self._marts.with_rows(scope), "dbt_docs": self._marts.dbt_docs()}
            )
            kind = "mart" if tail else "marts"
        elif kind in makers:
            of_source, _, more = tail.partition("/")
            source = self.sources().get(decode_part(of_source))
            if source is None or not scope.sees(source.name):
                raise missing_page(name)
            try:
                content = makers[kind](source, more, asked)
            except (ArrowInvalid, KeyError) as error:
                raise self._older(source, error) from error
            kind = kind.removesuffix("s")
        else:
            raise missing_page(name)
        return kind, content

    def report(self, source: Source) -> str:
        """The page of a source as one file, without links and with its styles."""
        links = Links("", is_alone=True)
        return self._render("source", links, self._source(VisibleSources(), links, source, "", {}), inline_styles())

    def _older(self, source: Source, error: Exception) -> Exception:
        """The refusal of an older lake, if its tables lack the column that `error` is about; else `error`."""
        present = [table for table in source_tables(source) if self.lake.version(table) >= 0]
        columns = {table: column_types(self.lake.folder.handle(table)) for table in present}
        missing = {t: [c.name for c in t.columns if c.name not in has] for t, has in columns.items()}
        older = lake_older(source, {table.qualified: names for table, names in missing.items() if names})
        return older if older.explains(str(error)) else error

    def refusal(self, name: str, error: TidemarkError) -> str:
        """The HTML of a page that shows `error` in place of the page `name`."""
        return self._render("refused", Links(name), {"error": str(error)})

    def _folder(self) -> Any:
        return self.lake.once("sources", self._read_folder)

    def _read_folder(self) -> Any:
        folder = Path(self.settings.sources)
        stamps = tuple(sorted((path.name, path.stat().st_mtime_ns) for path in folder.iterdir() if path.is_file()))
        return self.lake.remember("sources", stamps, lambda: read_sources(folder))

    def marts(self) -> dict[str, Mart]:
        """The marts that dbt has built, by name."""
        return self._marts.all()

    def facts(self, source: Source) -> overview.SourceFacts:
        """The facts of a source that its pages show; they are looked up once for a page."""
        return self.lake.once(("facts", source.name), lambda: self._look_up_facts(source))

    def _look_up_facts(self, source: Source) -> overview.SourceFacts:
        home = self.settings.home
        current = current_run(home / "leases", source.name)
        return overview.source_facts(self.lake, source, audit_note(home, source.name), current)

    def _index(self, scope: VisibleSources) -> dict[str, Any]:
        folder = self._folder()
        seen = [source for name, source in folder.sources.items() if scope.sees(name)]
        facts = {source.name: self.facts(source) for source in seen}
        cards = [source_card(each) for each in facts.values()]
        of_marts = [mart_card(mart, rows, passed, facts) for mart, rows, passed in self._marts.with_rows(scope)]
        errors = [str(error) for error in folder.errors if scope.sees(Path(error.file).stem)]
        return {
            "cards": sorted(cards, key=by_need),
            "mart_cards": sorted(of_marts, key=by_need),
            "tally": Counter([*(card.need for card in cards), *(card.need for card in of_marts)]),
            "owners": sorted({source.dag.owner for source in seen}),
            "tags": sorted({tag for source in seen for tag in source.dag.tags}),
            "errors": errors,
            "environments": list(self._environments(scope)),
        }

    def _environments(self, scope: VisibleSources) -> Iterator[dict[str, str]]:
        """The sources of environments that differ from production's or have been built, one at a time."""
        for environment in environments(self.settings.home):
            built = environment.builds()
            for source, file in environment.differences(Path(self.settings.sources)).items():
                if scope.sees(source) and (file != "same" or source in built):
                    tables = "built" if source in built else "not built"
                    yield {"environment": environment.name, "source": source, "file": file, "tables": tables}

    def _source(
        self, scope: VisibleSources, links: Links, source: Source, _: str, __: Mapping[str, Sequence[str]]
    ) -> dict[str, Any]:
        facts = self.facts(source)
        marts = [mart for mart in self._marts.visible(scope) if source.name in (mart.sources or ())]
        tables = [published_table(source, name) for name in overview.published_names(source)]
        page = overview.source_page(self.lake, facts)
        chains = None if page.chains is None else asdict(page.chains)
        way = lineage([source], marts, links, f"From the files of {source.name} to its marts")
        content = {"facts": facts, "page": page, "chains": chains, "tables": tables, "lineage": way, "marts": marts}
        return content | {"overrides": facts.overrides()}

    def _run(
        self, scope: VisibleSources, links: Links, source: Source, name: str, __: Mapping[str, Sequence[str]]
    ) -> dict[str, Any]:
        facts = self.facts(source)
        listed = facts.runs.find(name) or facts.runs.find(decode_part(name))
        if listed is None and not self._is_live:
            raise missing_page(f"runs/{source.name}/{name}")
        # links in Airflow and in the output of commands also lead to runs that have found nothing new
        run = WholeRun(decode_part(name)) if listed is None else whole_run(self.lake, source, listed)
        changed = []
        if run.published is not None:
            version = tuple(self.lake.version(table) for table in overview.histories(source))
            changed = self.lake.remember(
                ("changes", source.name, run.run_id),
                version,
                lambda: changes(self.lake, source, run.published, CHANGED_ROWS),  # type: ignore[arg-type]
            )
        labels = {seq_no: source.drops.label(seq_no) for seq_no in run.drops}
        docs = docs_of_run(self.settings, source.name, run.run_id)
        plan = plan_of_run(self.settings.home, run.run_id)
        content = {"source": source, "run": run, "changes": changed, "plan": plan, "labels": labels, "docs": docs}
        flow = run_flow(run, changed, self._marts.visible(scope), links, source)
        newest = [*islice((each for each in facts.runs if each.ran_drops), 3)]
        numbers = run.numbers(source)
        span = [source.drops.label(number) for number in (numbers[0], numbers[-1])] if numbers else None
        return content | {"span": span, "flow": flow, "planned": planned_chart(changed, plan), "newest": newest}

    def _quarantine(self, source: Source, tail: str, __: Mapping[str, Sequence[str]]) -> dict[str, Any]:
        facts = self.facts(source)
        groups = quarantine_groups(self.lake, source)
        if not tail:
            return {"source": source, "groups": groups, "facts": facts, "list_page": None}
        of_group, _, number = tail.partition("/")
        group = next((each for each in groups if encode_part(each.name) == of_group), None)
        if group is None:
            raise missing_page(f"quarantine/{source.name}/{tail}")
        list_page = page_of_list(group.records, number or "1", f"quarantine/{source.name}/{tail}")
        return {"source": source, "groups": [group], "facts": facts, "list_page": list_page}

    def _late(self, source: Source, tail: str, _: Mapping[str, Sequence[str]]) -> dict[str, Any]:
        """The late rows of a source: `tail` is the number of a page, or a drop and perhaps a number.

        Only a server has the pages of drops: as files there would be too many.
        """
        encoded, number = ("", tail) if tail.isdigit() else tail.partition("/")[::2]
        drop = decode_part(encoded)
        rows = [row for row in self._late_rows(source) if drop in ("", row["drop"])]
        if drop and not (rows and self._is_live):
            raise missing_page(f"late/{source.name}/{tail}")
        list_page = page_of_list(rows, number or "1", f"late/{source.name}/{tail}")
        placed = with_places(self.lake, source, list_page.records)
        state = None if source.state is None else source.name
        return {"source": source, "drop": drop, "rows": placed, "list_page": list_page, "state": state}

    def list_pages(self, source: Source) -> Iterator[tuple[str, ...]]:
        """The parts of the names of the pages of a source's long lists."""
        for group in quarantine_groups(self.lake, source):
            if len(group.records) > FIRST_RECORDS:
                for number in range(1, pages_of(len(group.records)) + 1):
                    yield "quarantine", source.name, group.name, str(number)
        late = pages_of(len(self._late_rows(source)))
        for number in range(1, late + 1) if late > 1 else ():
            yield "late", source.name, str(number)

    def _late_rows(self, source: Source) -> list[dict[str, Any]]:
        version = tuple(self.lake.version_of(table, source.name) for table in (LATE, PUBLISHED))
        return self.lake.recent(("late", source.name), version, lambda: late_rows(self.lake, source))

    def _why(
        self, scope: VisibleSources, source: Source, tail: str, asked: Mapping[str, Sequence[str]]
    ) -> dict[str, Any]:
        name, _, encoded_values = tail.partition("/")
        table = published_table(source, decode_part(name))
        if encoded_values:
            key = decode_key(encoded_values)
        else:
            given = {column: values[0].strip() for column, values in asked.items() if column in table.key and values}
            key = [f"{column}={value}" for column, value in given.items()]
        reasons = why(self.lake, source, table.name, key, LISTED)
        if table.definition is None:
            named = [replace(each, values=with_components(source, each.values)) for each in reasons.revisions]
            reasons = replace(reasons, revisions=named)
        of_marts = [mart for mart in self._marts.visible(scope) if mart.follows and mart.follows.name == table.name]
        key_values = [*reasons.key.values()]
        named_key = {name: parse_time(text) if name == "window_start" else text for name, text in reasons.key.items()}
        content = {"source": source, "why": reasons, "marts": of_marts, "key": key_values, "named_key": named_key}
        known_times = [revision.known_from for revision in reasons.revisions]
        is_state = table.definition is None and reasons.published is not None
        entity = key_values[0]
        states = []
        if is_state:
            if self._is_live:
                count_read(self.settings.home, source.name, of_class=int(entity_class(reasons.n_deltas)))
            of = (entity, self.lake.version_of(STATE, source.name))
            drawn = partial(state_charts, self.lake, source, entity, known_times)
            states = self.lake.remember(("states", source.name), of, drawn)
        steps = None if states else steps_chart(reasons, datetime.now(UTC))
        return content | {"steps": steps, "states": states}

    def _act(
        self, scope: VisibleSources, source: Source, name: str, asked: Mapping[str, Sequence[str]]
    ) -> dict[str, Any]:
        """The form of an action. `asked` has the first values of its fields."""
        if name not in BY_NAME or not scope.acts_on(source.name):
            raise missing_page(f"act/{source.name}/{name}")
        return {"source": source, "action": BY_NAME[name], "values": asked}

    def _activity(self, source: Source, tail: str, _: Mapping[str, Sequence[str]]) -> dict[str, Any]:
        if tail or not self._is_live:
            raise missing_page(f"activity/{source.name}/{tail}")
        return {"source": source, "facts": self.facts(source)}

    def _mart(self, name: str, scope: VisibleSources, links: Links) -> dict[str, Any]:
        mart = self.marts().get(decode_part(name))
        if mart is None or not self._marts.may_see(mart.sources, scope):
            raise missing_page(f"marts/{name}")
        tests = [test if self._marts.may_see(test.sources, scope) else test.without_rows() for test in mart.tests]
        visible_sources = [name for name in self.sources() if scope.sees(name)]
        rows = self._marts.rows(mart)
        followed = self.facts(self.sources()[mart.source]) if mart.source in visible_sources else None
        published = followed.frontier_times["published"] if followed is not None and followed.is_published else None
        content = {"mart": mart, "rows": rows, "tests": tests, "seen_sources": visible_sources, "published": published}
        way = lineage(*self._marts.before(mart, scope), links, f"From files to marts.{mart.name}")
        return content | {"overrides": self._marts.let_pass(mart, rows), "lineage": way}
