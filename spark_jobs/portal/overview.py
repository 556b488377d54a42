"""The facts of a source as a whole, and the concerns that need a person."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from itertools import islice
from typing import Any

import pyarrow.compute as pc

from spark_jobs.definitions.definition import definitions
from spark_jobs.gates.drift import totals
from spark_jobs.model import pluralize
from spark_jobs.portal import drops as of_drops
from spark_jobs.portal.charts import Chart, Series, drops_chart, heat_chart
from spark_jobs.portal.current_runs import describe_current, describe_unpublished
from spark_jobs.portal.drop_states import DropState, DropStates, Override, drop_states
from spark_jobs.portal.drops import LATE_BY, DropFigures, LateRows
from spark_jobs.portal.freshness import SourceFreshness, freshness_of
from spark_jobs.portal.held_lake import HeldLake
from spark_jobs.portal.months import VERDICTS, Month, calendar
from spark_jobs.portal.quarantine import OPEN, records_in_quarantine
from spark_jobs.portal.rates import rate_charts
from spark_jobs.portal.results import checks
from spark_jobs.portal.runs import Run, Runs, runs
from spark_jobs.portal.trace_space import TraceSpace, trace_space
from spark_jobs.portal.values import format_value
from spark_jobs.portal.windows import WindowFigures, published_entities, published_windows
from spark_jobs.reads.chain_metrics import ChainMetrics, chain_metrics
from spark_jobs.sources import Source
from spark_jobs.sources.quantities import MINUTE_US
from spark_jobs.storage.coordination import publication
from spark_jobs.storage.coordination.audit_notes import AuditNote
from spark_jobs.storage.coordination.publication import Publication
from spark_jobs.storage.coordination.source_changes import SourceChange, unfinished_change
from spark_jobs.storage.coordination.turns import CurrentRun
from spark_jobs.storage.descriptions.chain_tables import CHAINS
from spark_jobs.storage.descriptions.people_tables import DISMISSALS, ERASURES, FINISHED, SOURCE_CHANGES, last_steps
from spark_jobs.storage.descriptions.quality_tables import METRICS
from spark_jobs.storage.descriptions.schema import Table
from spark_jobs.storage.descriptions.tables import FILES, FRONTIERS, LATE, PUBLISHED, QUARANTINE, STATE
from spark_jobs.storage.descriptions.times import instant
from spark_jobs.trace import frontiers
from spark_jobs.trace.frontiers import NO_HORIZON_US, SourceFrontiers

Row = dict[str, Any]
_READ = (FILES, FRONTIERS, PUBLISHED, QUARANTINE, DISMISSALS, LATE, ERASURES)
_CHECKED = tuple(Table("quality", name, "", ()) for name in ("results", "runs", "verdicts", "overrides"))
Cell = tuple[int, str, str, str | None]
"""A drop in the calendar: its number, its verdict, a sentence about it, and a run."""
LAST_DROPS = 28
"""The newest drops of which a card shows rows and verdicts."""
BEHIND = 2
"""The drops that a scheduled source may lack before it counts as behind: the drop that is filling up, and the drop
whose run is on its way."""


@dataclass(frozen=True)
class Concern:
    """A fact that needs a person: its weight (0 is the most urgent), its words, and the parts of its page's name.

    `command`: the arguments of `tidemark` that show more of it, or end it.
    """

    weight: int
    words: str
    page: tuple[str, ...]
    command: str


@dataclass(frozen=True)
class SourceFacts:
    """The facts of a source as it is now.

    `runs` are newest first; `records`: the number of records in quarantine, of which `open_records` are neither
    dismissed nor erased; `late`: the number of late rows, each counted once; `drop_states` has the state of each drop.
    `change`: the rename, drop or reset that was interrupted, if there is one. `current_run`: the run that has its turn
    now.
    """

    source: Source
    publication: Publication
    frontiers: SourceFrontiers
    drops: dict[int, DropFigures]
    runs: Runs
    records: int
    open_records: int
    late: int
    drop_states: DropStates
    erasures: list[Mapping[str, Any]]
    change: SourceChange | None
    audit: AuditNote | None = None
    current_run: CurrentRun | None = None

    @property
    def name(self) -> str:
        """The source's name."""
        return self.source.name

    @property
    def is_published(self) -> bool:
        """True if anything of the source is published."""
        return self.publication.published_us > 0

    @cached_property
    def last_run(self) -> Run | None:
        """The newest run of drops."""
        return next((run for run in self.runs if run.ran_drops), None)

    @property
    def reached(self) -> datetime | None:
        """The end of the newest drop that is published; None if nothing is."""
        return instant(self.publication.reached_us) if self.is_published else None

    def overrides(self, published: datetime | None = None) -> list[Override]:
        """The overrides of the drops that are published now, or that were with the publication of time `published`."""
        return self.drop_states.overrides_in(published)

    @cached_property
    def gaps(self) -> list[int]:
        """The numbers of the drops that were never run, although a later one was."""
        landed = self.frontiers.landed
        ends = [0, *(hi for _, hi in landed)]
        return [seq_no for hi, (lo, _) in zip(ends, landed, strict=False) for seq_no in range(hi, lo)]

    @property
    def frontier_times(self) -> dict[str, datetime | None]:
        """The times of the frontiers, by name; `since` and `horizon` are None if retention never moved them."""
        moved, current = self.frontiers, self.publication
        horizon = moved.horizon_us
        return {
            "horizon": None if horizon == NO_HORIZON_US else instant(horizon),
            "since": instant(since) if (since := moved.arrangement.since.time) else None,
            "complete": instant(current.complete_us),
            "published": instant(current.published_us),
            "reached": instant(current.reached_us),
            "seal": instant(moved.seal_us),
        }

    @property
    def audit_page(self) -> tuple[str, ...] | None:
        """The parts of the name of the last audit's page; None if its results are no longer kept."""
        kept = self.audit is not None and self.audit.run_id in self.runs.ids
        return ("runs", self.name, self.audit.run_id) if kept and self.audit is not None else None

    @property
    def cells(self) -> list[Cell]:
        """The cell of the calendar of each drop, with the last run over it."""
        return self._last_cells(len(self.drop_states.numbers) + len(self.gaps))

    @cached_property
    def recent_cells(self) -> list[Cell]:
        """The cells of the newest drops, up to LAST_DROPS, oldest first; they stay in memory for the first page."""
        return self._last_cells(LAST_DROPS)

    def _last_cells(self, most: int) -> list[Cell]:
        """The cells of the newest drops, up to `most`, oldest first."""
        numbers = sorted({*self.drop_states.numbers, *self.gaps}, reverse=True)
        cells = (_cell(self, number) for number in numbers)
        return [*islice((cell for cell in cells if cell is not None), most)][::-1]

    @property
    def freshness(self) -> SourceFreshness:
        """The freshness of the source now."""
        return freshness_of(self.source, self.reached, datetime.now(UTC))

    @property
    def concerns(self) -> list[Concern]:
        """The concerns that need a person, the most urgent first."""
        return sorted([*self._recorded_concerns, *self._timely_concerns()], key=lambda concern: concern.weight)

    def _timely_concerns(self) -> Iterator[Concern]:
        """The concerns that come with time alone, without a change of the lake."""
        fresh, page, command = self.freshness, ("sources", self.name), f"status --drops {self.name}"
        if fresh.behind > BEHIND:
            yield Concern(1, f"{pluralize(fresh.behind, 'drop')} behind its schedule", page, command)
        elif fresh.is_late and fresh.due is not None:
            words = f"the drop {fresh.next_drop} is late: it was due at {format_value(fresh.due)}"
            yield Concern(1, words, page, command)

    @cached_property
    def _recorded_concerns(self) -> list[Concern]:
        """The concerns that the lake and the home have recorded."""
        facts, last, current = [], self.last_run, self.current_run
        is_on_its_way = current is not None and current.is_at_work
        if current is not None and is_on_its_way:
            facts.append(Concern(2, *describe_current(self.source, current, self.runs)))
        if last is not None and last.has_failed:
            what = ", ".join(dict.fromkeys(f"{result['gate']}: {result['name']}" for result in last.failed))
            left = "nothing of it is published" if last.published is None else "what it published stands"
            words = f"the last run failed{' at ' + what if what else ''}; {left}"
            facts.append(
                Concern(0, words, ("runs", self.name, last.run_id), f"quality {self.name} --run {last.run_id}")
            )
        elif last is not None and last.state == "refused":
            words = f"the last run was refused ({last.error_code}): nothing was changed, and what is published stands"
            facts.append(Concern(2, words, ("runs", self.name, last.run_id), f"report {self.name}"))
        elif last is not None and last.state == "not published" and not is_on_its_way:
            facts.append(Concern(2, *describe_unpublished(self.source, last, current)))
        if self.change is not None:
            words = f"a {self.change.kind} was interrupted, and runs wait for its end: `{self.change.command}`"
            facts.append(Concern(0, words, ("sources", self.name), self.change.command.removeprefix("tidemark ")))
        unfinished = sum(erasure["step"] != FINISHED for erasure in self.erasures)
        if unfinished:
            words = f"{pluralize(unfinished, 'erasure')} interrupted, and runs wait for the end: `tidemark erase` again"
            facts.append(Concern(0, words, ("sources", self.name), "erase --help"))
        if self.open_records:
            words = f"{pluralize(self.open_records, 'record')} in quarantine"
            facts.append(Concern(1, words, ("quarantine", self.name), f"quarantine list {self.name}"))
        if self.gaps:
            words = f"{pluralize(len(self.gaps), 'drop')} never run"
            facts.append(Concern(1, words, ("sources", self.name), f"status --drops {self.name}"))
        if last is not None and last.notable:
            words, page = f"{pluralize(len(last.notable), 'check')} to look at", ("runs", self.name, last.run_id)
            facts.append(Concern(2, words, page, f"quality {self.name} --run {last.run_id}"))
        if self.audit is not None and self.audit.failed:
            words = f"the last audit found {pluralize(self.audit.failed, 'invariant')} that the lake breaks"
            shows = f"quality {self.name} --run {self.audit.run_id}" if self.audit_page else f"audit {self.name}"
            facts.append(Concern(0, words, self.audit_page or ("sources", self.name), shows))
        if last is None and not is_on_its_way:
            facts.append(Concern(3, "nothing has run yet", ("sources", self.name), f"status --drops {self.name}"))
        return facts

    @property
    def urgency(self) -> tuple[int, str]:
        """The key by which sources are sorted, the most urgent first."""
        concerns = self.concerns
        return (concerns[0].weight if concerns else 9, self.name)


def source_facts(
    lake: HeldLake, source: Source, audit: AuditNote | None = None, current: CurrentRun | None = None
) -> SourceFacts:
    """The facts of a source, from memory unless its tables, its last audit or the run on its way have changed since."""
    versions = (lake.version(SOURCE_CHANGES), *(lake.version_of(table, source.name) for table in (*_READ, *_CHECKED)))
    return lake.remember(
        ("facts", source.name),
        (versions, source, audit, current),
        lambda: replace(_facts(lake, source), audit=audit, current_run=current),
    )


def _facts(lake: HeldLake, source: Source) -> SourceFacts:
    files = of_drops.ledger(lake, source)
    current = publication.load(lake, source)
    drops, late = of_drops.drops(files), of_drops.late_by_drop(lake, source, current)
    records = records_in_quarantine(lake, source, files)
    in_open = records.filter(pc.equal(records["replay_state"], OPEN))["seq_no"].to_pylist()
    for seq_no, count in Counter(in_open).items():
        if seq_no in drops:
            drops[seq_no].open = count
    for seq_no, count in late.items():
        if seq_no in drops:
            drops[seq_no].late = count
    of_checks = checks(lake, source)
    of_source = runs(lake, source, current, files, of_checks)
    newest = lake.newest_of_source(FRONTIERS, source.name, ["state"])
    return SourceFacts(
        *(source, current, frontiers.of_row(source, newest), drops, of_source),
        *(len(records), len(in_open), sum(late.values())),
        drop_states=drop_states(lake, source, drops, of_source, of_checks.telling),
        erasures=_erasures(lake, source),
        change=unfinished_change(lake, source.name),
    )


def _erasures(lake: HeldLake, source: Source) -> list[Mapping[str, Any]]:
    """The last step of each erasure, with the `column` of what was erased; it is the entity's unless it is recorded."""
    last = last_steps(lake.records(ERASURES, pc.field("source") == source.name), "erasure")
    return [{**row, "column": row.get("erased_column") or source.entity} for row in last]


def published_names(source: Source) -> list[str]:
    """The names of a source's published tables, without their databases."""
    return [*source.windows, *([source.name] if source.state is not None else [])]


def histories(source: Source) -> list[Table]:
    """The history tables of a source's windows and states."""
    return [*(each.table() for each in definitions(source)), *([STATE] if source.state is not None else [])]


@dataclass(frozen=True)
class SourcePage:
    """The content of a source's page beside the source's facts."""

    months: list[Month]
    charts: list[Chart]
    late: LateRows
    lateness: Chart | None
    windows: list[WindowFigures]
    entities: int | None
    chains: ChainMetrics | None
    trace: TraceSpace


def source_page(lake: HeldLake, facts: SourceFacts) -> SourcePage:
    """The calendar, charts, windows, chains and trace of a source."""
    source = facts.source
    rows = {seq_no: drop.rows for seq_no, drop in facts.drops.items()}
    rejects = {seq_no: drop.rejects for seq_no, drop in facts.drops.items() if drop.rejects}
    duplicates = {seq_no: drop.duplicates for seq_no, drop in facts.drops.items() if drop.duplicates}
    late_by_drop = {seq_no: drop.late for seq_no, drop in facts.drops.items()} if facts.late else {}
    counts = [published_windows(lake, each) for each in definitions(source)]
    windows = [each for each in counts if each is not None]
    came = [
        Series("Rows", "rows", rows),
        Series("Late rows", "rows", late_by_drop),
        Series("Rejected records", "records", rejects),
        Series("Duplicates", "rows", duplicates),
    ]
    charts = [
        drops_chart("What came, by drop", came, source),
        drops_chart("What was measured, by drop", _measures(lake, source), source),
        drops_chart(
            "Windows by the drop in which they start",
            [Series(f"Windows of {each.definition}", "windows", each.by_drop) for each in windows],
            source,
        ),
    ]
    late_rows = of_drops.late(lake, source, facts.publication)
    keeps = source.keeps_chains and facts.is_published and lake.version(CHAINS) >= 0
    return SourcePage(
        calendar(facts.cells, source),
        [*(each for each in charts if each is not None), *rate_charts(lake, source)],
        late_rows,
        heat_chart("How late rows were, by drop", "rows", LATE_BY, late_rows.by_lateness_of_drop, source),
        windows,
        published_entities(lake, source) if facts.is_published else None,
        chain_metrics(lake, source) if keeps else None,
        trace_space(lake, source, facts.frontiers),
    )


def _measures(lake: HeldLake, source: Source) -> list[Series]:
    """The values of `quality.metrics` by drop; only values above 0."""

    def read() -> list[Series]:
        by_drop_number = dict(sorted(totals(lake.of_source(METRICS, source.name).to_pylist()).items()))
        values = {
            "bytes": {n: drop["bytes"] for n, drop in by_drop_number.items()},
            "minutes": {n: max(drop["late_by_max"], 0) // MINUTE_US for n, drop in by_drop_number.items()},
            "values": {n: sum(drop["nulls"].values()) for n, drop in by_drop_number.items()},
        }
        return [
            Series(_MEASURED[unit], unit, {n: value for n, value in by_drop.items() if value > 0})
            for unit, by_drop in values.items()
        ]

    return lake.remember(("metrics", source.name), lake.version_of(METRICS, source.name), read)


_MEASURED = {
    "bytes": "Bytes",
    "minutes": "Greatest delay, from event to the start of the drop",
    "values": "Missing values, of all columns",
}
"""The titles of the series of `quality.metrics`, by unit."""


def _cell(facts: SourceFacts, number: int) -> Cell | None:
    drop, of_drop = facts.drops.get(number), facts.drop_states.of(number)
    verdict, words = _never_landed(of_drop) if drop is None else _verdict_on(drop, of_drop)
    if verdict is not None:
        last = of_drop.last_run
        return number, verdict, words, (drop.run_id if drop else None) if last is None else last.run_id
    is_gap = number in facts.gaps
    return (number, "missing", f"{facts.source.drops.label(number)} was never run", None) if is_gap else None


def _never_landed(state: DropState) -> tuple[str | None, str]:
    return ("failed", "the last run over it failed, and nothing has landed") if state.has_failed else (None, "")


def _verdict_on(drop: DropFigures, state: DropState) -> tuple[str, str]:
    """The worst verdict on a drop, and all verdicts in words: those on its last run and publication come first."""
    came = f"{pluralize(drop.rows, 'row')} in {pluralize(drop.files, 'file')}, {drop.late:,} late"
    verdicts, words = (["ok"], [came]) if drop.files else (["empty"], ["nothing came"])
    if state.warned:
        verdicts, words = [*verdicts, "warned"], [f"warned of by {', '.join(state.warned)}", *words]
    if state.overridden:
        verdicts, words = [*verdicts, "overridden"], [f"let pass: {', '.join(state.overridden)}", *words]
    if drop.open:
        verdicts, words = [*verdicts, "quarantine"], [f"{pluralize(drop.open, 'record')} in quarantine", *words]
    if state.is_published and state.has_failed:
        verdicts, words = [*verdicts, "warned"], ["it is published, and the last run over it failed", *words]
    elif state.has_failed:
        verdicts, words = [*verdicts, "failed"], ["the last run over it failed", *words]
    elif not state.is_published:
        verdicts, words = [*verdicts, "waiting"], ["not published yet", *words]
    return min(verdicts, key=list(VERDICTS).index), "; ".join(words)
