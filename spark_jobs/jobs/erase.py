"""Erase an entity: its rows leave the lake, and results in which they counted are restated without them.

Rows of the entity that land again are counted and not kept. The steps are recorded in the lake, and each may be done
twice: an erasure that was interrupted anywhere goes on if it is started again. Until it is finished no run of the
source begins.
"""

from __future__ import annotations

import getpass
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.config import Settings
from spark_jobs.definitions.catalog import check_tables, ensure_source
from spark_jobs.definitions.definition import definitions
from spark_jobs.errors import ParameterError
from spark_jobs.jobs.environments import drop_tables
from spark_jobs.jobs.erase_account import Bronze, count_out, left_without
from spark_jobs.jobs.erase_history import Restatement, histories_without
from spark_jobs.jobs.erase_search import counted_out, given_up_histories, landed_files, left_in_tables
from spark_jobs.jobs.erase_texts import redact_quality, scrub_home
from spark_jobs.jobs.in_force import in_force
from spark_jobs.jobs.marts import marts_follow
from spark_jobs.jobs.pins import copy_again
from spark_jobs.jobs.published import check_published
from spark_jobs.jobs.visits import sweep_under, visit_source
from spark_jobs.kernels.records.erased import Erasures
from spark_jobs.landing.erasures import (
    BEGUN,
    COUNTED,
    FINISHED,
    Erasure,
    new_erasure,
    record_step,
)
from spark_jobs.model import Frontier
from spark_jobs.publish.marts import MartsFailed
from spark_jobs.sources import Source, environments
from spark_jobs.storage.chain_tables import CHAINS
from spark_jobs.storage.dense_files import dense_layout, page_rows
from spark_jobs.storage.fence import Fence, Lease
from spark_jobs.storage.lake import Lake
from spark_jobs.storage.publication import Publication
from spark_jobs.storage.quality_tables import QUALITY
from spark_jobs.storage.schema import IDENTITY, Table
from spark_jobs.storage.shown_marts import ShownMarts, note_shown, remove_mart, shown_marts
from spark_jobs.storage.tables import DUPLICATES, LATE, QUARANTINE, STATE, chunks, updates
from spark_jobs.trace import frontiers
from spark_jobs.trace.frontiers import SourceFrontiers
from spark_jobs.trace.source_plane import SourcePlane

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class EntityUnknown(ParameterError):
    """The source has no row of the entity, and no erasure of it was begun. Facts: `source`."""

    code = "entity_unknown"


@dataclass
class Erased:
    """The report of an erasure.

    rows: the number of landed rows and duplicates of the entity. records: the number of records in quarantine that
    named it. tables: how many rows `went` and `came`, by table. files: landed files that still have rows of the entity
    or name it, for their owner to rewrite. texts: logs and reports in which it was blacked out. left: places that still
    have it, each with what to do. since: the time from which on the past of restated windows is known; None if since
    did not move. pins: the pins' tables that were copied again. environments: those that lost their tables of the
    source, and have to be built again. marts: what was done about the marts. again: drops and files to be read again,
    since rows of other entities count now that were duplicates of the entity's rows.
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


def find(settings: Settings, source: Source, spark: SparkSession, entity: str) -> Erased:
    """The report of an erasure before it is done: the rows, records and files of the entity. Changes nothing.

    Raises:
        EntityUnknown: the lake and the landed files have nothing of the entity.
    """
    _check_named(source, entity)
    lake = Lake(spark)
    check_tables(lake, source)
    bronze = _bronze(lake, source, entity, new_erasure(lake, source, entity, "", ""))
    account = bronze.account()
    landed = landed_files(settings, lake, source, entity, account.files)
    report = Erased("", source.name, account.rows, bronze.rejects(), files=[*landed.paths], left=[*landed.unsearched])
    if not (report.rows or report.records or report.files):
        raise _unknown(source, entity)
    for table in _of_entity(source):
        if lake.is_stored(table.database, table.table):
            rows = lake.stored(table, ["entity"], pc.field("entity") == entity, _part(table, source)).whole().num_rows
            if rows:
                report.tables[table.qualified] = {"went": rows, "came": 0}
    return report


def erase(
    settings: Settings,
    source: Source,
    spark: SparkSession,
    entity: str,
    because: str,
    on_step: Callable[[str], None] = lambda _: None,
) -> Erased:
    """Erase an entity, or go on with an interrupted erasure of it.

    The caller holds the source's turn. `on_step` is called with the name of each step before it begins.

    Raises:
        EntityUnknown: the lake and the landed files have nothing of the entity.
        SourceUnpublished: rows have landed or are sealed, and are not published.
        ParameterError: no reason is given.
    """
    if not because.strip():
        raise ParameterError(
            expected="a reason, which is kept", found="none", next_step='say it: --because "asked on 2026-11-02"'
        )
    _check_named(source, entity)
    lake = Lake(spark)
    with visit_source(settings, source, lake, erases=True) as lease:
        check_tables(lake, source)
        ensure_source(lake, source)
        work = _Work.of(settings, lake, source, entity, because, lease)
        if work.erasure.step != COUNTED:
            sweep_under(lease, lake, source)
            work.begin(on_step)
        work.remove(on_step)
    return work.report


@dataclass
class _Work:
    """An erasure in progress."""

    settings: Settings
    lake: Lake
    source: Source
    entity: str
    lease: Lease
    erasure: Erasure
    standing: SourceFrontiers
    shown: Publication
    report: Erased

    @classmethod
    def of(cls, settings: Settings, lake: Lake, source: Source, entity: str, because: str, lease: Lease) -> _Work:
        erasure = new_erasure(lake, source, entity, because, getpass.getuser())
        standing, shown = in_force(lake, source, near=lease.fence.token)
        report = Erased(erasure.erasure, source.name, erasure.rows or 0)
        return cls(settings, lake, source, entity, lease, erasure, standing, shown, report)

    @property
    def fence(self) -> Fence:
        """The lease's right to write, with its token of now."""
        return self.lease.fence

    @property
    def bronze(self) -> Bronze:
        """The rows and records of the entity in bronze."""
        return _bronze(self.lake, self.source, self.entity, self.erasure)

    def begin(self, on_step: Callable[[str], None]) -> None:
        """The steps that need the entity's rows: restate the histories without them, and count them as erased."""
        check_published(self.lake, self.source, self.standing, self.shown, "erased")
        account, rejects = self.bronze.account(), self.bronze.rejects()
        known = account.lines or rejects or self.erasure.step
        if not known and not landed_files(self.settings, self.lake, self.source, self.entity, set()).paths:
            raise _unknown(self.source, self.entity)
        self.erasure = record_step(self.lake, self.source, self.erasure, BEGUN)
        on_step("histories")
        restatement = histories_without(self.lake, self.source, self.entity, self.standing, self.shown)
        self._move_since(restatement)
        self.report.tables |= restatement.write(self.lake)
        on_step("account")
        count_out(self.bronze, account, self.erasure.erasure, self.fence)
        self.report.rows, self.report.records = account.rows, rejects
        self.erasure = record_step(self.lake, self.source, self.erasure, COUNTED, account.rows + rejects)

    def _move_since(self, restatement: Restatement) -> None:
        """Move since to where the past of restated windows is known again, so that no read asks for earlier times."""
        since_us = restatement.since_us
        if since_us is None:
            return
        state = self.standing.arrangement
        moved = replace(state, since=max(state.since, Frontier.at(since_us)))
        self.standing = replace(self.standing, arrangement=moved)
        frontiers.commit(self.lake, self.source, self.fence, self.erasure.erasure, self.standing)
        # Delta accepts one commit of the frontiers per token, and `_recount` makes another
        self.lease.next_token()
        self.lease.save()
        self.report.since = datetime.fromtimestamp(since_us / 1e6, UTC)

    def remove(self, on_step: Callable[[str], None]) -> None:
        """The steps that remove the entity's rows and its name from texts; each may be done again."""
        on_step("rows")
        for table in _of_entity(self.source):
            self._remove_from(table, "entity")
        for table in given_up_histories(self.lake, self.source):
            self._remove_given_up(table)
        bronze = self.bronze
        self._note(DUPLICATES, self.lake.rewrite(
            DUPLICATES, _without(bronze.of_duplicates), ["row"], source=self.source.name
        ).removed)  # fmt: skip
        self._recount()
        on_step("texts")
        redact_quality(self.lake, self.source, self.entity, bronze.erased, self.fence)
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
            self.lake.forget_versions(table, self.source.name if "source" in table.partitions else None)
        on_step("search")
        self._search()
        self.report.again = sorted(left_without(bronze))
        self.erasure = record_step(self.lake, self.source, self.erasure, FINISHED)

    def _remove_from(self, table: Table, column: str) -> None:
        if not self.lake.is_stored(table.database, table.table):
            return

        def of_entity(rows: pa.Table) -> Any:
            texts = rows[column].cast(pa.string())
            return pc.fill_null(pc.equal(texts, self.entity), False).to_numpy(zero_copy_only=False).astype(bool)

        options: dict[str, Any] = {"source": _part(table, self.source).get("source", [None])[0]}
        if table == chunks(self.source):
            stored = self.lake.stored(table, ["rows"])
            rows = sum(int(pc.sum(part["rows"]).as_py() or 0) for part in stored.tables())
            options["layout"] = dense_layout(page_rows(rows, stored.n_rows))
        self._note(table, self.lake.rewrite(table, _without(of_entity), [column], **options).removed)

    def _remove_given_up(self, table: Table) -> None:
        """Remove the entity from the history of a window that left the source file.

        Such a history can't be restated: if the entity is not part of its key, the whole table is dropped.
        """
        keys = self.lake.properties(table).get(IDENTITY, "").split(",")
        if self.source.entity in keys:
            self._remove_from(table, self.source.entity)
        else:
            rows = self.lake.stored(table, keys[:1]).n_rows
            self.lake.drop(table)
            self._note(table, rows)

    def _search(self) -> None:
        """Black the entity out of texts, and report the files and tables that still have it."""
        settings, lake, source = self.settings, self.lake, self.source
        self.report.texts, left = scrub_home(settings, self.entity)
        landed = landed_files(settings, lake, source, self.entity, counted_out(lake, source, self.erasure.erasure))
        self.report.files = [*landed.paths]
        self.report.left += [*left_in_tables(settings, lake, source, self.entity), *left, *landed.unsearched]

    def _note(self, table: Table, removed: int) -> None:
        if removed:
            self.report.tables[table.qualified] = {"went": removed, "came": 0}

    def _recount(self) -> None:
        """Commit frontiers with the number, size and bounds of each batch's updates as they are now."""
        state, plane = self.standing.arrangement, SourcePlane(self.lake, self.source)
        stored = plane.stored()

        def counted(batch: Any) -> Any:
            now = stored.get(batch.handle)
            facts = (0, 0, 0, 0) if now is None else (now.n_updates, now.size, now.least, now.greatest)
            return replace(batch, **dict(zip(("n_updates", "size", "least", "greatest"), facts, strict=True)))

        trace = tuple(counted(batch) for batch in state.trace)
        unsealed = tuple(batch for batch in map(counted, state.unsealed) if batch.n_updates)
        floor = state.seqno_upper
        after = replace(state, trace=trace, unsealed=unsealed, seqno_floor=floor)
        standing = replace(self.standing, arrangement=after)
        if standing != self.standing:
            frontiers.commit(self.lake, self.source, self.fence, self.erasure.erasure, standing)

    def _marts(self) -> None:
        """Remove the marts and build them anew, since the rows from which they were built are gone."""
        shown = shown_marts(self.settings.home, self.source.name)
        for mart in shown.versions:
            remove_mart(self.lake, mart)
        note_shown(self.settings.home, self.source.name, ShownMarts())
        try:
            self.report.marts = marts_follow(self.settings, self.lake, self.source, self.shown.published_us)
        except MartsFailed as error:
            # the erasure goes on: the mart may need a run of its source before it can be built
            self.report.left.append(
                f"marts: removed, and not built anew, since {', '.join(sorted(error.failed))} failed ({error.log});"
                f" correct the model or the data, then `tidemark run {self.source.name}`"
            )

    def _tables(self) -> list[Table]:
        """The tables whose earlier versions may contain the entity."""
        tables = [
            *_of_entity(self.source),
            QUARANTINE,
            DUPLICATES,
            *(d.table() for d in definitions(self.source)),
            *given_up_histories(self.lake, self.source),
            *QUALITY,
        ]
        return [table for table in dict.fromkeys(tables) if self.lake.is_stored(table.database, table.table)]


def _bronze(lake: Lake, source: Source, entity: str, erasure: Erasure) -> Bronze:
    return Bronze(lake, source, entity, Erasures(erasure.salt, frozenset({erasure.entity_hash})))


def _of_entity(source: Source) -> list[Table]:
    """The source's tables with a column `entity`."""
    return [chunks(source), updates(source), LATE, STATE, CHAINS]


def _part(table: Table, source: Source) -> dict[str, list[str]]:
    return {"source": [source.name]} if "source" in table.partitions else {}


def _without(of_entity: Callable[[pa.Table], Any]) -> Callable[[pa.Table], pa.Table | None]:
    def change(rows: pa.Table) -> pa.Table | None:
        going = of_entity(rows)
        return rows.filter(pa.array(~going)) if going.any() else None

    return change


def _check_named(source: Source, entity: str) -> None:
    if not entity.strip():
        raise _unknown(source, entity)


def _unknown(source: Source, entity: str) -> EntityUnknown:
    return EntityUnknown(
        expected=f"an entity of {source.name}, by its {source.entity} as landed",
        found=f"no row, duplicate or record of quarantine with {entity!r}",
        consequence="nothing was erased",
        next_step=f"`tidemark state {source.name}` lists entities; texts are compared letter by letter",
        source=source.name,
    )
