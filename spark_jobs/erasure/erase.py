"""Erase the rows of an entity, or of one value in another column: they leave the lake, and results in which they
counted are restated without them.

Such rows that land again are counted and not kept. The steps are recorded in the lake, and each may be done
twice: an erasure that was interrupted anywhere goes on if it is started again. Until it is finished no run of the
source begins.
"""

from __future__ import annotations

import getpass
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.config import Settings
from spark_jobs.definitions.catalog import check_tables, ensure_source
from spark_jobs.definitions.definition import definitions
from spark_jobs.engine.arrangement import StoredBatch
from spark_jobs.engine.columns import Flags, numbers
from spark_jobs.erasure.account import Bronze, count_out, left_without
from spark_jobs.erasure.history import Replacement, Restatement, histories_without, is_traced
from spark_jobs.erasure.search import counted_out, given_up_histories, landed_files, left_in_tables
from spark_jobs.erasure.texts import redact_quality, scrub_home
from spark_jobs.errors import ParameterError
from spark_jobs.jobs.in_force import in_force
from spark_jobs.jobs.marts import marts_follow
from spark_jobs.jobs.published import check_published
from spark_jobs.jobs.visits import sweep_under, visit_source
from spark_jobs.landing.choices import Choice
from spark_jobs.landing.chunking import chunks_without
from spark_jobs.landing.erasures import (
    BEGUN,
    COUNTED,
    FINISHED,
    Erasure,
    is_repeated,
    new_erasure,
    record_step,
)
from spark_jobs.lifecycle.environments import drop_tables
from spark_jobs.model import Frontier
from spark_jobs.publish.marts import MartsFailed
from spark_jobs.reads.sql_reads import count_noted_reads
from spark_jobs.sources import Source, environments
from spark_jobs.storage.coordination.leases import Lease
from spark_jobs.storage.coordination.publication import Publication
from spark_jobs.storage.delta.dense_files import dense_layout, page_rows
from spark_jobs.storage.delta.fences import Fence
from spark_jobs.storage.delta.rewriting import forget_versions
from spark_jobs.storage.delta.table_notes import properties
from spark_jobs.storage.descriptions.chain_tables import CHAINS
from spark_jobs.storage.descriptions.quality_tables import QUALITY
from spark_jobs.storage.descriptions.schema import IDENTITY, Table
from spark_jobs.storage.descriptions.tables import DUPLICATES, LATE, QUARANTINE, STATE, chunks, updates
from spark_jobs.storage.lakes.spark_lake import SparkLake
from spark_jobs.storage.names.shown_marts import ShownMarts, note_shown, remove_mart, shown_marts
from spark_jobs.trace import frontiers
from spark_jobs.trace.frontiers import SourceFrontiers
from spark_jobs.trace.source_plane import SourcePlane
from spark_jobs.upkeep.pins import copy_again

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class EntityUnknown(ParameterError):
    """The source has no row with the value, and no erasure of it was begun. Facts: `source`."""

    code = "entity_unknown"


@dataclass
class Erased:
    """The report of an erasure.

    rows: the number of landed rows and duplicates with the value. records: the number of records in quarantine that
    had it. tables: how many rows `went` and `came`, by table; of chunks those that went whole. files: landed files that
    still have such rows or name the value, for their owner to rewrite. texts: logs and reports in which it was blacked
    out. left: places that still have it, each with what to do. since: the time from which on the past of restated
    windows and states is known; None if since did not move. pins: the pins' tables that were copied again.
    environments: those that lost their tables of the source, and have to be built again. marts: what was done about the
    marts. again: drops and files to be read again, since other rows count now that were duplicates of erased rows.
    """

    erasure: str
    source: str
    rows: int = 0
    records: int = 0
    tables: dict[str, dict[str, int]] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    since: datetime | None = None
    pins: list[str] = field(default_factory=list)
    environments: list[str] = field(default_factory=list)
    marts: str | None = None
    again: list[tuple[int, str]] = field(default_factory=list)


def find(settings: Settings, source: Source, spark: SparkSession, choice: Choice) -> Erased:
    """The report of an erasure before it is done: the rows, records and files that would go. Changes nothing.

    Raises:
        EntityUnknown: the lake and the landed files have nothing with the value.
    """
    _check_named(source, choice)
    lake = SparkLake(spark)
    check_tables(lake, source)
    bronze = Bronze(lake, source, choice, new_erasure(lake, source, choice, "", "").erases)
    account = bronze.account()
    landed = landed_files(settings, lake, source, choice.value, account.files)
    report = Erased("", source.name, account.rows, bronze.rejects(), files=[*landed.paths], left=[*landed.unsearched])
    has_rows = bool(account.lines) or is_traced(lake, source, choice, frontiers.load(lake, source))
    if not (has_rows or report.records or report.files):
        raise _unknown(source, choice)
    if has_rows:
        current_frontiers, current_publication = in_force(lake, source)
        counted = histories_without(lake, source, choice, account, current_frontiers, current_publication).count(lake)
        removals = [_of_whole_chunks(bronze), *_of_rows(bronze)]
        counted |= {each.table.qualified: each.count(lake) for each in removals}
        report.tables = {table: counts for table, counts in counted.items() if any(counts.values())}
    return report


def erase(
    settings: Settings,
    source: Source,
    spark: SparkSession,
    choice: Choice,
    because: str,
    on_step: Callable[[str], None] = lambda _: None,
) -> Erased:
    """Erase the chosen rows, or go on with an interrupted erasure of them.

    The caller has the source's turn. `on_step` is called with the name of each step before it begins.

    Raises:
        EntityUnknown: the lake and the landed files have nothing with the value.
        SourceUnpublished: rows have landed or are sealed, and are not published.
        ParameterError: no reason is given.
    """
    if not because.strip():
        raise ParameterError(
            expected="a reason, which is kept", found="none", next_step='say it: --because "asked on 2026-11-02"'
        )
    _check_named(source, choice)
    lake = SparkLake(spark)
    with visit_source(settings, source, lake, erases=True) as lease:
        check_tables(lake, source)
        ensure_source(lake, source)
        work = _Work.of(settings, lake, source, choice, because, lease)
        if work.erasure.step != COUNTED:
            sweep_under(lease, lake, source)
            work.begin(on_step)
        work.remove(on_step)
    return work.report


@dataclass
class _Work:
    """An erasure in progress."""

    settings: Settings
    lake: SparkLake
    source: Source
    choice: Choice
    lease: Lease
    erasure: Erasure
    current_frontiers: SourceFrontiers
    current_publication: Publication
    report: Erased

    @classmethod
    def of(
        cls, settings: Settings, lake: SparkLake, source: Source, choice: Choice, because: str, lease: Lease
    ) -> _Work:
        erasure = new_erasure(lake, source, choice, because, getpass.getuser())
        current_frontiers, current_publication = in_force(lake, source, near=lease.fence.token)
        report = Erased(erasure.erasure, source.name, erasure.rows or 0)
        return cls(settings, lake, source, choice, lease, erasure, current_frontiers, current_publication, report)

    @property
    def fence(self) -> Fence:
        """The lease's right to write, with its token of now."""
        return self.lease.fence

    @property
    def bronze(self) -> Bronze:
        """The chosen rows and records in bronze."""
        return Bronze(self.lake, self.source, self.choice, self.erasure.erases)

    def begin(self, on_step: Callable[[str], None]) -> None:
        """The steps that need the chosen rows: restate the histories without them, and count them as erased."""
        check_published(self.lake, self.source, self.current_frontiers, self.current_publication, "erased")
        account, rejects = self.bronze.account(), self.bronze.rejects()
        # an erasure that was killed at its end has printed no report, and may be repeated
        has_cause = (
            account.lines
            or rejects
            or self.erasure.step
            or is_traced(self.lake, self.source, self.choice, self.current_frontiers)
            or is_repeated(self.lake, self.source, self.erasure)
        )
        if not has_cause and not landed_files(self.settings, self.lake, self.source, self.choice.value, set()).paths:
            raise _unknown(self.source, self.choice)
        self.erasure = record_step(self.lake, self.source, self.erasure, BEGUN)
        on_step("histories")
        restatement = histories_without(
            self.lake, self.source, self.choice, account, self.current_frontiers, self.current_publication
        )
        self._move_since(restatement)
        self.report.tables |= restatement.write(self.lake)
        on_step("account")
        count_out(self.bronze, account, self.erasure.erasure, self.fence)
        self.report.rows, self.report.records = account.rows, rejects
        self.erasure = record_step(self.lake, self.source, self.erasure, COUNTED, account.rows + rejects)

    def _move_since(self, restatement: Restatement) -> None:
        """Move since to the first time from which restated rows have a past; earlier reads are then refused."""
        since_us = restatement.since_us
        if since_us is None:
            return
        state = self.current_frontiers.arrangement
        moved = replace(state, since=max(state.since, Frontier.at(since_us)))
        self.current_frontiers = replace(self.current_frontiers, arrangement=moved)
        frontiers.commit(self.lake, self.source, self.fence, self.erasure.erasure, self.current_frontiers)
        # Delta accepts one commit of the frontiers per token, and `_recount` makes another
        self.lease.next_token()
        self.lease.save()
        self.report.since = datetime.fromtimestamp(since_us / 1e6, UTC)

    def remove(self, on_step: Callable[[str], None]) -> None:
        """The steps that remove the chosen rows, and the value from texts; each may be done again."""
        on_step("rows")
        bronze = self.bronze
        self._remove_chunk_rows(bronze)
        for removal in _of_rows(bronze):
            self._note(removal.table, removal.write(self.lake)["went"])
        for table in given_up_histories(self.lake, self.source):
            self._remove_given_up(table)
        self._recount()
        on_step("texts")
        # the lake server's notes name the entities that statements asked for, until they are counted
        count_noted_reads(self.lake, self.settings.home, self.settings.sources)
        redact_quality(self.lake, self.source, self.choice.value, bronze.erased, self.fence)
        on_step("pins")
        self.report.pins = copy_again(self.lake, self.source)
        self.report.environments = [
            environment.name
            for environment in environments(self.settings.home)
            if drop_tables(self.lake, environment, [self.source.name])
        ]
        on_step("marts")
        self._marts()
        on_step("versions")
        for table in self._tables():
            forget_versions(self.lake.folder.handle(table), self.source.name if "source" in table.partitions else None)
        on_step("search")
        self._search()
        self.report.again = sorted(left_without(bronze))
        self.erasure = record_step(self.lake, self.source, self.erasure, FINISHED)

    def _remove_chunk_rows(self, bronze: Bronze) -> None:
        """Remove the chosen rows from chunks; the other rows of their chunks stay."""
        table, looked_at = chunks(self.source), ["rows", self.choice.stored]

        def change(stored: pa.Table) -> pa.Table | None:
            going = bronze.of_chunks(stored)
            if not going.any():
                return None
            is_whole = {"row_ids", *looked_at} <= {*stored.column_names}
            return chunks_without(self.source, stored, going) if is_whole else stored

        stored = self.lake.stored(table, ["rows"])
        rows = sum(int(pc.sum(part["rows"]).as_py() or 0) for part in stored.tables())
        layout = dense_layout(page_rows(rows, stored.n_rows))
        self._note(table, self.lake.rewrite(table, change, looked_at, layout=layout).removed)

    def _remove_given_up(self, table: Table) -> None:
        """Remove the chosen rows from the history of a window that left the source file.

        Such a history can't be restated: if the chosen column is not part of its key, the whole table is dropped.
        """
        column, keys = self.choice.column, properties(self.lake.folder.handle(table)).get(IDENTITY, "").split(",")
        if column in keys:
            removal = Replacement(table, [column], lambda rows: self.choice.flags(rows[column]), None)
            self._note(table, removal.write(self.lake)["went"])
        else:
            rows = self.lake.stored(table, keys[:1]).n_rows
            self.lake.catalog.drop(table)
            self._note(table, rows)

    def _search(self) -> None:
        """Black the value out of texts, and report the files and tables that still have it."""
        settings, lake, source, value = self.settings, self.lake, self.source, self.choice.value
        self.report.texts, left = scrub_home(settings, value)
        landed = landed_files(settings, lake, source, value, counted_out(lake, source, self.erasure.erasure))
        self.report.files = [*landed.paths]
        self.report.left += [*left_in_tables(settings, lake, source, value), *left, *landed.unsearched]

    def _note(self, table: Table, removed: int) -> None:
        if removed:
            self.report.tables[table.qualified] = {"went": removed, "came": 0}

    def _recount(self) -> None:
        """Commit frontiers with the number, size, bounds and checksum of each batch's updates as they are now."""
        state, plane = self.current_frontiers.arrangement, SourcePlane(self.lake, self.source)
        stored = plane.stored()

        def recount(batch: Any) -> Any:
            now = stored.get(batch.handle, StoredBatch(batch.handle, 0, 0, 0, 0))
            facts = {name: getattr(now, name) for name in ("n_updates", "size", "least", "greatest", "checksum")}
            return replace(batch, **facts)

        trace = tuple(recount(batch) for batch in state.trace)
        unsealed = tuple(batch for batch in map(recount, state.unsealed) if batch.n_updates)
        floor = state.seqno_upper
        after = replace(state, trace=trace, unsealed=unsealed, seqno_floor=floor)
        recounted = replace(self.current_frontiers, arrangement=after)
        if recounted != self.current_frontiers:
            frontiers.commit(self.lake, self.source, self.fence, self.erasure.erasure, recounted)

    def _marts(self) -> None:
        """Remove the marts and build them anew, since the rows from which they were built are gone."""
        visible_marts = shown_marts(self.settings.home, self.source.name)
        for mart in visible_marts.versions:
            remove_mart(self.lake, mart)
        note_shown(self.settings.home, self.source.name, ShownMarts())
        try:
            self.report.marts = marts_follow(
                self.settings, self.lake, self.source, self.current_publication.published_us
            )
        except MartsFailed as error:
            # the erasure goes on: the mart may need a run of its source before it can be built
            self.report.left.append(
                f"marts: removed, and not built anew, since {', '.join(sorted(error.failed))} failed ({error.log});"
                f" correct the model or the data, then `tidemark run {self.source.name}`"
            )

    def _tables(self) -> list[Table]:
        """The tables whose earlier versions may have the chosen rows."""
        tables = [
            *(chunks(self.source), updates(self.source), DUPLICATES, LATE, STATE, CHAINS),
            QUARANTINE,
            *(d.table() for d in definitions(self.source)),
            *given_up_histories(self.lake, self.source),
            *QUALITY,
        ]
        return [table for table in dict.fromkeys(tables) if self.lake.folder.is_stored(table.database, table.table)]


def _of_rows(bronze: Bronze) -> list[Replacement]:
    """The removals of the chosen rows from the tables that have a row for each row that landed."""
    choice, source = bronze.choice, bronze.source
    return [
        Replacement(updates(source), [choice.stored], choice.of_rows, None),
        Replacement(DUPLICATES, ["row"], bronze.of_duplicates, None, source.name),
    ]


def _of_whole_chunks(bronze: Bronze) -> Replacement:
    """The removal of chunks that have chosen rows alone; `chunks_without` also takes chosen rows out of others."""

    def flag_removed(stored: pa.Table) -> Flags:
        of_rows = np.repeat(np.arange(stored.num_rows), numbers(stored["rows"]))
        return np.bincount(of_rows[~bronze.of_chunks(stored)], minlength=stored.num_rows) == 0

    return Replacement(chunks(bronze.source), [bronze.choice.stored, "rows"], flag_removed, None)


def _check_named(source: Source, choice: Choice) -> None:
    if not choice.value.strip():
        raise _unknown(source, choice)
    graced = [definition.name for definition in definitions(source) if definition.grace_us is not None]
    if graced:
        raise ParameterError(
            expected="windows with a late policy: under a grace, erased rows decided which other rows count",
            found=f"a grace in {', '.join(graced)}",
            consequence="nothing was erased",
            next_step="give these windows `late` in place of `grace`, run with --accept-definition, and erase;"
            " afterwards the grace may come back",
        )


def _unknown(source: Source, choice: Choice) -> EntityUnknown:
    return EntityUnknown(
        expected=f"a value that {source.name} has in its column {choice.column}, as landed",
        found=f"no row, duplicate or record of quarantine with {choice.value!r}",
        consequence="nothing was erased",
        next_step=f"`tidemark state {source.name}` lists entities; texts are compared letter by letter",
        source=source.name,
    )
