"""Rename a source: its tables, records, past and pins get another name, and nothing is landed or computed again.

First the rows are copied under the new name, where nothing shows them. Then both names are published, the names that
users read follow, and the old name is removed. So reads by a source's name have an answer at every moment; only tables
of all sources list it under both names meanwhile. A command that was interrupted anywhere goes on if it is started
again, and until it is finished no run of either name begins.
"""

from __future__ import annotations

import getpass
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from spark_jobs.config import Settings
from spark_jobs.definitions.catalog import check_tables
from spark_jobs.definitions.definition import definitions
from spark_jobs.definitions.versions import FIXED_PART, check_version
from spark_jobs.errors import ParameterError
from spark_jobs.jobs.in_force import take_fingerprints
from spark_jobs.jobs.names import forget_names, names_follow
from spark_jobs.jobs.published import check_published
from spark_jobs.landing.erasures import check_finished
from spark_jobs.lifecycle.environments import drop_tables
from spark_jobs.lifecycle.source_parts import SHARED, hold_source, known_parts, own_tables, remove_rows, source_parts
from spark_jobs.sources import Source, environments, find_source, read_sources
from spark_jobs.sources.folder import source_files
from spark_jobs.sources.problems import SourceFileError
from spark_jobs.sources.renaming import renamed_source
from spark_jobs.storage.coordination import publication
from spark_jobs.storage.coordination.leases import Lease
from spark_jobs.storage.coordination.source_changes import (
    FINISHED,
    RENAME,
    SourceChange,
    begin_change,
    record_change,
    source_changes,
    unfinished_change,
)
from spark_jobs.storage.delta.fences import Fence
from spark_jobs.storage.delta.fingerprints import to_json
from spark_jobs.storage.delta.rewriting import copy_partition
from spark_jobs.storage.delta.table_notes import properties
from spark_jobs.storage.descriptions.people_tables import ERASURES, PINS
from spark_jobs.storage.descriptions.quality_tables import QUALITY
from spark_jobs.storage.descriptions.schema import IDENTITY, Table
from spark_jobs.storage.descriptions.sql import literal, qualified
from spark_jobs.storage.descriptions.tables import PUBLISHED, chunks, updates
from spark_jobs.storage.lakes.lake import FrameLake
from spark_jobs.storage.lakes.spark_lake import SparkLake
from spark_jobs.storage.names.shown_marts import forget_shown, note_shown, shown_marts
from spark_jobs.trace import frontiers
from spark_jobs.upkeep.pins import pins

SWITCHED = "switched"
"""The step of a rename after which people read the new name, and remains of the old name are removed."""
_OF_PINS = ("late", "state", "versions")


class NameTaken(ParameterError):
    """There is a source, or there are tables, of the new name. Facts: `source`, `new_name`."""

    code = "name_taken"


@dataclass
class Renamed:
    """The report of a rename.

    file: the source file's new path. tables: the rows that get the new name, by table. marts: the source's marts, whose
    models name the old one. pins: those that have copies of the source. environments: those that lose their tables of
    the source, and have to be built again.
    """

    source: str
    new_name: str
    file: str = ""
    tables: dict[str, int] = field(default_factory=dict)
    marts: list[str] = field(default_factory=list)
    pins: list[str] = field(default_factory=list)
    environments: list[str] = field(default_factory=list)


def find_rename(settings: Settings, spark: SparkSession, old: str, new: str) -> Renamed:
    """The report of a rename before it is done; changes nothing.

    Raises:
        SourceUnknown: there is no source `old`.
        NameTaken, SourceFileError: there is a source, or a table, of the new name, or no source can have that name.
        SourceUnpublished: rows have landed or are sealed, and are not published.
        DefinitionChanged: the source file differs from the published definition.
    """
    lake = SparkLake(spark)
    known_parts(settings, lake, old)
    source, renamed = _both(settings, old, new)
    _refuse_taken(settings, lake, source, renamed)
    check_tables(lake, source)
    check_finished(lake, source)
    current_publication = publication.load(lake, source)
    check_published(lake, source, frontiers.load(lake, source), current_publication, "renamed")
    check_version(source, current_publication, accepted=False)
    return _report(settings, lake, old, new)


def _both(settings: Settings, old: str, new: str) -> tuple[Source, Source]:
    """The source under its old name and under its new name; its file may have been renamed by hand already."""
    files = source_files(settings.sources)
    if old in files or new not in files:
        source = find_source(settings.sources, old)
        return source, renamed_source(files[old], new)[1]
    renamed = find_source(settings.sources, new)
    return renamed.model_copy(update={"source": old}), renamed


def rename_source(
    settings: Settings, spark: SparkSession, old: str, new: str, on_step: Callable[[str], None] = lambda _: None
) -> Renamed:
    """Rename a source, or go on with an interrupted rename; the caller has the turns of both names.

    `on_step` is called with the name of each step before it begins.

    Raises:
        As `find_rename`, and SourceChangeUnfinished: another change of the source was interrupted.
    """
    lake = SparkLake(spark)
    under_way = unfinished_change(lake, old)
    if under_way is None and _has_ended(settings, lake, old, new):
        return _report(settings, lake, old, new)
    report = find_rename(settings, spark, old, new) if under_way is None else _report(settings, lake, old, new)
    switched = under_way is not None and under_way.step == SWITCHED
    source = None if switched else _both(settings, old, new)[0]
    with _hold_both_names(settings, lake, old, new, source) as (leaving, coming):
        change = begin_change(lake, old, RENAME, getpass.getuser(), new_name=new)
        work = _Work(settings, lake, change, leaving, coming, report)
        if change.step != SWITCHED:
            work.switch(on_step)
        work.end(on_step)
    return report


def _has_ended(settings: Settings, lake: FrameLake, old: str, new: str) -> bool:
    """True if the source has got the new name before: a rename was killed after its last step, so nobody was told."""
    changes = [(change.source, change.new_name, change.step) for change in source_changes(lake)]
    if (old, new, FINISHED) not in changes or source_parts(settings, lake, old).are_any:
        return False
    return source_parts(settings, lake, new).file is not None


@contextmanager
def _hold_both_names(
    settings: Settings, lake: FrameLake, old: str, new: str, source: Source | None
) -> Iterator[tuple[Lease, Lease]]:
    """Hold both names; the token of the new one is greater than all tokens that either name ever had."""
    with hold_source(settings, lake, old, source) as leaving, hold_source(settings, lake, new) as coming:
        if coming.fence.token <= leaving.fence.token:
            coming.rise_above(leaving.fence.token)
        yield leaving, coming


@dataclass
class _Work:
    """A rename in progress."""

    settings: Settings
    lake: SparkLake
    change: SourceChange
    leaving: Lease
    coming: Lease
    report: Renamed

    @property
    def old(self) -> str:
        """The source's old name."""
        return self.change.source

    @property
    def new(self) -> str:
        """The source's new name."""
        return self.report.new_name

    def switch(self, on_step: Callable[[str], None]) -> None:
        """Make people read the source by its new name; each part of this may be done again."""
        on_step("copies")
        for table, copy in zip(own_tables(self.old), own_tables(self.new), strict=True):
            if self.lake.folder.is_stored(table.database, table.table):
                self.lake.catalog.copy_folder(table, copy)
        for table in SHARED:
            if self.lake.folder.is_stored(table.database, table.table):
                copy_partition(self.lake.destination(table), "source", self.old, self.new)
        on_step("file")
        source = self._rename_file()
        on_step("publication")
        was_published = self._publish(source)
        on_step("names")
        if was_published:
            self._describe(source)
            names_follow(self.settings, self.lake, source)
        visible_marts = shown_marts(self.settings.home, self.old)
        if visible_marts.versions:
            note_shown(self.settings.home, self.new, visible_marts)
        on_step("pins")
        self._rename_pins()
        self.change = record_change(self.lake, self.change, SWITCHED)

    def end(self, on_step: Callable[[str], None]) -> None:
        """Remove all that is left under the old name; each part of this may be done again."""
        on_step("old name")
        if self.lake.folder.is_stored(PUBLISHED.database, PUBLISHED.table):
            self.lake.replace_records(PUBLISHED, [], self.leaving.fence)
        forget_names(self.settings, self.lake, self.old, ())
        forget_shown(self.settings.home, self.old)
        for environment in environments(self.settings.home):
            drop_tables(self.lake, environment, [self.old])
            file = source_files(environment.folder).get(self.old)
            if file is not None:
                _put(file, self.new)
        for table in own_tables(self.old):
            self.lake.catalog.drop(table)
        for pin in pins(self.lake):
            for what in _OF_PINS:
                self.lake.catalog.drop(Table(PINS.database, f"{pin.name}__{self.old}_{what}", "", ()))
        remove_rows(self.lake, self.old)
        self.change = record_change(self.lake, self.change, FINISHED)

    def _rename_file(self) -> Source:
        file = source_files(self.settings.sources).get(self.old)
        if file is not None:
            _put(file, self.new)
        return find_source(self.settings.sources, self.new)

    def _publish(self, source: Source) -> bool:
        """Publish the new name beside the old one; False if the old one is not published."""
        rows = self.lake.records(PUBLISHED, pc.field("source") == self.old)
        for row in rows:
            definition = json.loads(row["definition"])
            definition[FIXED_PART] = source.definition_parts()[FIXED_PART]
            text = json.dumps(definition, sort_keys=True, separators=(",", ":"))
            fence = Fence(self.new, self.coming.fence.token)
            tables = to_json(take_fingerprints(self.lake, source, {}))
            row |= {"source": self.new, "definition": text, "tables": tables}
            self.lake.replace_records(PUBLISHED, [row], fence)
        return bool(rows)

    def _describe(self, source: Source) -> None:
        """Write the new name into the tables' comments and properties."""
        tables = [chunks(source), updates(source), *(definition.table() for definition in definitions(source))]
        for table in tables:
            if not self.lake.folder.is_stored(table.database, table.table):
                continue
            place = qualified(table.database, table.table)
            self.lake.catalog.define(f"COMMENT ON TABLE {place} IS {literal(table.comment)}")
            if table.identity:
                _, *keys = properties(self.lake.folder.handle(table)).get(IDENTITY, "").split(",")
                identity = ",".join([self.new, *keys])
                self.lake.catalog.define(
                    f"ALTER TABLE {place} SET TBLPROPERTIES ({literal(IDENTITY)} = {literal(identity)})"
                )

    def _rename_pins(self) -> None:
        """Copy the pins' tables under the new name, and list them by it."""
        for pin in pins(self.lake):
            for what in _OF_PINS:
                one, other = (
                    Table(PINS.database, f"{pin.name}__{name}_{what}", "", ()) for name in (self.old, self.new)
                )
                if self.lake.folder.is_stored(one.database, one.table):
                    self.lake.catalog.copy_folder(one, other)
        if self.report.pins:
            self.lake.rewrite(PINS, self._renamed_pins, ["sources"])

    def _renamed_pins(self, rows: pa.Table) -> pa.Table | None:
        if not any(self.old in sources for sources in rows["sources"].to_pylist()):
            return None
        if "tables" not in rows.column_names:
            return rows
        listed = rows.to_pylist(maps_as_pydicts="strict")
        for row in listed:
            names = {f"{row['name']}__{self.old}_{what}": f"{row['name']}__{self.new}_{what}" for what in _OF_PINS}
            row["sources"] = [self.new if name == self.old else name for name in row["sources"]]
            row["tables"] = [names.get(table, table) for table in row["tables"]]
            times = row.get("times") or {}
            row["times"] = {self.new if name == self.old else name: time for name, time in times.items()} or None
        return pa.Table.from_pylist(listed, schema=rows.schema)


def _put(file: Path, new: str) -> None:
    """Replace a source file by one with the new name, in its contents and as its file name."""
    text, _ = renamed_source(file, new)
    beside = file.with_name(f".{new}{file.suffix}.new")
    beside.write_text(text, encoding="utf-8")
    beside.replace(file.with_name(f"{new}{file.suffix}"))
    file.unlink()


def _report(settings: Settings, lake: FrameLake, old: str, new: str) -> Renamed:
    parts = source_parts(settings, lake, old)
    file = parts.file or settings.sources / f"{old}.yml"
    renamed = str(Path(file).with_name(f"{new}{Path(file).suffix}"))
    return Renamed(old, new, renamed, parts.rows(lake), parts.marts, parts.pins, parts.environments)


def _refuse_taken(settings: Settings, lake: FrameLake, source: Source, renamed: Source) -> None:
    parts = source_parts(settings, lake, renamed.name)
    by_hand = source.name not in source_files(settings.sources)
    # a refused run of a file that was renamed by hand has left tables without rows, and a record of that run
    ignored = {table.qualified for table in (ERASURES, *QUALITY)}
    stand = [table for table, rows in parts.rows(lake).items() if rows and table not in ignored]
    taken = [str(parts.file)] if parts.file and not by_hand else stand
    if taken:
        raise NameTaken(
            expected="a name that no source has",
            found=f"{renamed.name!r}, and {', '.join(taken[:3])}",
            consequence="nothing was renamed",
            next_step=f"choose another name, or `tidemark source drop {renamed.name}` first",
            source=source.name,
            new_name=renamed.name,
        )
    folder = read_sources(settings.sources)
    others = {name: other for name, other in folder.sources.items() if name != source.name}
    clashes = replace(folder, sources=others).clashes(renamed)
    if clashes:
        raise SourceFileError(f"{renamed.name}.yml", clashes)
