"""The facts of a source as a whole, and the concerns that need a person."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import pyarrow.compute as pc

from spark_jobs.definitions.definition import definitions
from spark_jobs.gates.drift import totals
from spark_jobs.portal import drops as of_drops
from spark_jobs.portal.drops import OPEN, Drop, LateRows
from spark_jobs.portal.held_lake import HeldLake
from spark_jobs.portal.plots import VERDICTS, Month, Plot, bars, calendar
from spark_jobs.portal.runs import Run, runs
from spark_jobs.portal.standing import DropStanding, Override, Standing, standing
from spark_jobs.portal.values import counted
from spark_jobs.portal.windows import Windows, published_entities, published_windows
from spark_jobs.reads.chain_metrics import ChainMetrics, chain_metrics
from spark_jobs.sources import Source
from spark_jobs.sources.quantities import MINUTE_US
from spark_jobs.storage.coordination import publication
from spark_jobs.storage.coordination.audit_notes import AuditNote
from spark_jobs.storage.coordination.publication import Publication
from spark_jobs.storage.coordination.source_changes import SourceChange, unfinished_change
from spark_jobs.storage.descriptions.chain_tables import CHAINS
from spark_jobs.storage.descriptions.people_tables import DISMISSALS, ERASURES, FINISHED, SOURCE_CHANGES, last_steps
from spark_jobs.storage.descriptions.quality_tables import METRICS
from spark_jobs.storage.descriptions.schema import Table
from spark_jobs.storage.descriptions.tables import FILES, FRONTIERS, LATE, PUBLISHED, QUARANTINE, STATE
from spark_jobs.storage.descriptions.times import instant, micros
from spark_jobs.trace import frontiers
from spark_jobs.trace.frontiers import NO_HORIZON_US, SourceFrontiers

Row = dict[str, Any]
_READ = (FILES, FRONTIERS, PUBLISHED, QUARANTINE, DISMISSALS, LATE, ERASURES, SOURCE_CHANGES)
_CHECKED = tuple(Table("quality", name, "", ()) for name in ("results", "runs", "verdicts", "overrides"))
BEHIND = 2
"""The drops that a scheduled source may lack before it counts as behind: the drop that is filling up, and the drop
whose run is on its way."""


@dataclass(frozen=True)
class Concern:
    """A fact that needs a person: its weight (0 is the most urgent), its words, and the parts of its page's name."""

    weight: int
    words: str
    page: tuple[str, ...]


@dataclass(frozen=True)
class SourceFacts:
    """The facts of a source as it is now.

    `runs` are newest first; `records` are those in quarantine; `standing` has the standing of each drop. `change`: the
    rename, drop or reset that was interrupted, if there is one.
    """

    source: Source
    publication: Publication
    frontiers: SourceFrontiers
    drops: dict[int, Drop]
    runs: list[Run]
    records: list[Row]
    late: LateRows
    standing: Standing
    erasures: list[Mapping[str, Any]]
    change: SourceChange | None
    audit: AuditNote | None = None

    @property
    def name(self) -> str:
        """The source's name."""
        return self.source.name

    @property
    def is_published(self) -> bool:
        """True if anything of the source is published."""
        return self.publication.published_us > 0

    @property
    def last_run(self) -> Run | None:
        """The newest run of drops."""
        return next((run for run in self.runs if run.ran_drops), None)

    @property
    def reached(self) -> datetime | None:
        """The end of the newest drop that is published; None if nothing is."""
        return instant(self.publication.reached_us) if self.is_published else None

    @property
    def open_records(self) -> int:
        """The number of records in quarantine that are open: neither dismissed nor erased."""
        return sum(record["replay_state"] == OPEN for record in self.records)

    def overrides(self, published: datetime | None = None) -> list[Override]:
        """The overrides of the drops that are published now, or that were with the publication of time `published`."""
        return self.standing.overrides_in(self.drops, published)

    @property
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
        kept = self.audit is not None and any(run.run_id == self.audit.run_id for run in self.runs)
        return ("runs", self.name, self.audit.run_id) if kept and self.audit is not None else None

    @cached_property
    def concerns(self) -> list[Concern]:
        """The concerns that need a person, the most urgent first."""
        facts = []
        last = self.last_run
        if last is not None and last.has_failed:
            what = ", ".join(dict.fromkeys(f"{result['gate']}: {result['name']}" for result in last.failed))
            left = "nothing of it is published" if last.published is None else "what it published stands"
            words = f"the last run failed{' at ' + what if what else ''}; {left}"
            facts.append(Concern(0, words, ("runs", self.name, last.run_id)))
        elif last is not None and last.state == "refused":
            code = last.manifest["error_code"] if last.manifest else "refused"
            words = f"the last run was refused ({code}): nothing was changed, and what is published stands"
            facts.append(Concern(2, words, ("runs", self.name, last.run_id)))
        elif last is not None and last.state == "not published":
            words = "the last run has published nothing: it is on its way, or was interrupted"
            facts.append(Concern(2, words, ("runs", self.name, last.run_id)))
        if self.change is not None:
            words = f"a {self.change.kind} was interrupted, and runs wait for its end: `{self.change.command}`"
            facts.append(Concern(0, words, ("sources", self.name)))
        unfinished = sum(erasure["step"] != FINISHED for erasure in self.erasures)
        if unfinished:
            words = f"{counted(unfinished, 'erasure')} interrupted, and runs wait for the end: `tidemark erase` again"
            facts.append(Concern(0, words, ("sources", self.name)))
        if self.open_records:
            facts.append(Concern(1, f"{counted(self.open_records, 'record')} in quarantine", ("quarantine", self.name)))
        if self.gaps:
            facts.append(Concern(1, f"{counted(len(self.gaps), 'drop')} never run", ("sources", self.name)))
        if last is not None and last.notable:
            facts.append(
                Concern(2, f"{counted(len(last.notable), 'check')} to look at", ("runs", self.name, last.run_id))
            )
        if self.audit is not None and self.audit.failed:
            words = f"the last audit found {counted(self.audit.failed, 'invariant')} that the lake breaks"
            facts.append(Concern(0, words, self.audit_page or ("sources", self.name)))
        behind = self.behind(datetime.now(UTC))
        if behind:
            facts.append(Concern(1, f"{counted(behind, 'drop')} behind its schedule", ("sources", self.name)))
        if last is None:
            facts.append(Concern(3, "nothing has run yet", ("sources", self.name)))
        return sorted(facts, key=lambda concern: concern.weight)

    def behind(self, now: datetime) -> int:
        """The number of drops that a scheduled source should have published by `now`; 0 if they are at most BEHIND."""
        if self.source.dag.schedule != "every" or self.reached is None:
            return 0
        passed = self.source.drops.number_at(micros(now)) - self.source.drops.number_at(micros(self.reached))
        return passed if passed > BEHIND else 0

    @property
    def urgency(self) -> tuple[int, str]:
        """The key by which sources are sorted, the most urgent first."""
        return (self.concerns[0].weight if self.concerns else 9, self.name)


def source_facts(lake: HeldLake, source: Source, audit: AuditNote | None = None) -> SourceFacts:
    """The facts of a source, from memory unless its tables or its last audit have changed since."""
    versions = tuple(lake.version(table) for table in (*_READ, *_CHECKED))
    return lake.kept(
        ("facts", source.name), (versions, source, audit), lambda: replace(_facts(lake, source), audit=audit)
    )


def _facts(lake: HeldLake, source: Source) -> SourceFacts:
    current = publication.load(lake, source)
    files = of_drops.ledger(lake, source)
    drops, records, late = of_drops.drops(files, source), of_drops.quarantine(lake, source), of_drops.late(lake, source)
    for record in records:
        if record["seq_no"] in drops and record["replay_state"] == OPEN:
            drops[record["seq_no"]].open += 1
    for seq_no, rows in late.by_drop.items():
        if seq_no in drops:
            drops[seq_no].late = rows
    of_source = runs(lake, source, files)
    return SourceFacts(
        *(source, current, frontiers.load(lake, source), drops, of_source, records, late),
        standing=standing(lake, source, drops, of_source),
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
    plots: list[Plot]
    windows: list[Windows]
    entities: int | None
    chains: ChainMetrics | None
    newest: list[Drop] = field(default_factory=list)


def source_page(lake: HeldLake, facts: SourceFacts) -> SourcePage:
    """The calendar, plots, windows and chains of a source."""
    source = facts.source
    rows = {seq_no: drop.rows for seq_no, drop in facts.drops.items()}
    rejects = {seq_no: drop.rejects for seq_no, drop in facts.drops.items() if drop.rejects}
    late = {seq_no: drop.late for seq_no, drop in facts.drops.items()} if facts.late.total else {}
    counts = [published_windows(lake, each) for each in definitions(source)]
    windows = [each for each in counts if each is not None]
    measured = _measured(lake, source)
    plots = [
        bars("Rows per drop", rows, source, "rows"),
        bars("Late rows per drop", late, source, "late rows"),
        bars("Rejected records per drop", rejects, source, "records"),
        *(bars(title, measured[title], source, unit) for title, unit in _MEASURED.items()),
        *(bars(f"Windows of {each.definition} by their start", each.by_drop, source, "windows") for each in windows),
    ]
    keeps = source.keeps_chains and facts.is_published and lake.version(CHAINS) >= 0
    return SourcePage(
        calendar(_cells(facts), source),
        [plot for plot in plots if plot is not None],
        windows,
        published_entities(lake, source) if facts.is_published else None,
        chain_metrics(lake, source) if keeps else None,
        sorted(facts.drops.values(), key=lambda drop: -drop.seq_no),
    )


_MEASURED = {
    "Bytes per drop": "bytes",
    "Greatest delay per drop, from event to the start of the drop": "minutes",
    "Missing values per drop, of all columns": "values",
}
"""The titles of the plots of `quality.metrics`, and their units."""


def _measured(lake: HeldLake, source: Source) -> dict[str, dict[int, int]]:
    """The values of the plots in `_MEASURED`, by title and drop number; only values above 0."""

    def of_drops() -> dict[str, dict[int, int]]:
        known = totals(lake.records(METRICS, pc.field("source") == source.name))
        values = {
            seq_no: (drop["bytes"], max(drop["late_by_max"], 0) // MINUTE_US, sum(drop["nulls"].values()))
            for seq_no, drop in known.items()
        }
        return {
            title: {seq_no: of_drop[place] for seq_no, of_drop in values.items() if of_drop[place] > 0}
            for place, title in enumerate(_MEASURED)
        }

    return lake.kept(("metrics", source.name), lake.version(METRICS), of_drops)


def _cells(facts: SourceFacts) -> list[tuple[int, str, str, str | None]]:
    """The calendar's `(seq_no, verdict, sentence, run_id)` of each drop, with the last run over it."""
    cells: list[tuple[int, str, str, str | None]] = []
    for seq_no, stands in facts.standing.drops.items():
        drop, last = facts.drops.get(seq_no), stands.last_run
        verdict, said = _never_landed(stands) if drop is None else _stands(drop, stands)
        if verdict is not None:
            cells.append((seq_no, verdict, said, (drop.run_id if drop else None) if last is None else last.run_id))
    in_calendar = {cell[0] for cell in cells}
    missing = [n for n in facts.gaps if n not in in_calendar]
    cells += [(n, "missing", f"{facts.source.drops.label(n)} was never run", None) for n in missing]
    return sorted(cells)


def _never_landed(stands: DropStanding) -> tuple[str | None, str]:
    return ("failed", "the last run over it failed, and nothing has landed") if stands.has_failed else (None, "")


def _stands(drop: Drop, stands: DropStanding) -> tuple[str, str]:
    """The worst verdict on a drop, and all verdicts in words: those on its last run and publication come first."""
    came = f"{counted(drop.rows, 'row')} in {counted(drop.files, 'file')}, {drop.late:,} late"
    verdicts, said = (["ok"], [came]) if drop.files else (["empty"], ["nothing came"])
    if stands.warned:
        verdicts, said = [*verdicts, "warned"], [f"warned of by {', '.join(stands.warned)}", *said]
    if stands.overridden:
        verdicts, said = [*verdicts, "overridden"], [f"let pass: {', '.join(stands.overridden)}", *said]
    if drop.open:
        verdicts, said = [*verdicts, "quarantine"], [f"{counted(drop.open, 'record')} in quarantine", *said]
    if stands.is_published and stands.has_failed:
        verdicts, said = [*verdicts, "warned"], ["it is published, and the last run over it failed", *said]
    elif stands.has_failed:
        verdicts, said = [*verdicts, "failed"], ["the last run over it failed", *said]
    elif not stands.is_published:
        verdicts, said = [*verdicts, "waiting"], ["not published yet", *said]
    return min(verdicts, key=list(VERDICTS).index), "; ".join(said)


@dataclass(frozen=True)
class Group:
    """The records in quarantine that have the same rule and state."""

    rule: str
    state: str
    records: Sequence[Row]

    @property
    def files(self) -> list[tuple[str, int]]:
        """The files with their numbers of records, the largest number first."""
        return Counter(record["file"] or "" for record in self.records).most_common()


def quarantine_groups(facts: SourceFacts) -> list[Group]:
    """The records of a source, grouped by rule and state: open groups first, then the largest first."""
    by_rule: dict[tuple[str, str], list[Row]] = {}
    for record in facts.records:
        by_rule.setdefault((record["replay_state"], record["rule"]), []).append(record)
    groups = [Group(rule, state, records) for (state, rule), records in by_rule.items()]
    return sorted(groups, key=lambda group: (group.state != OPEN, -len(group.records), group.rule))
