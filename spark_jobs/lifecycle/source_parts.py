"""The parts of a source in a lake and a home, found by its name alone, since its file may be gone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from spark_jobs.config import Settings
from spark_jobs.errors import ParameterError
from spark_jobs.jobs.tokens import follow_lake
from spark_jobs.jobs.visits import WAIT_S
from spark_jobs.sources import Source, did_you_mean, environments
from spark_jobs.sources.folder import source_files
from spark_jobs.sources.section import is_identifier
from spark_jobs.storage.coordination import leases
from spark_jobs.storage.delta.file_upkeep import files_in_use
from spark_jobs.storage.delta.records import newest_token
from spark_jobs.storage.delta.table_notes import properties
from spark_jobs.storage.descriptions.chain_tables import CHAINS
from spark_jobs.storage.descriptions.people_tables import DISMISSALS, ERASURES
from spark_jobs.storage.descriptions.quality_tables import QUALITY
from spark_jobs.storage.descriptions.schema import IDENTITY, Table
from spark_jobs.storage.descriptions.tables import DUPLICATES, FILES, FRONTIERS, LATE, PUBLISHED, QUARANTINE, STATE
from spark_jobs.storage.lakes.lake import FrameLake, Lake, TableReader
from spark_jobs.storage.lakes.spark_lake import SparkLake
from spark_jobs.storage.names.shown_marts import shown_marts
from spark_jobs.upkeep.pins import pins

SHARED = (FRONTIERS, FILES, QUARANTINE, DUPLICATES, LATE, STATE, CHAINS, *QUALITY, DISMISSALS, ERASURES)
"""The tables in which all sources have rows, each in a partition of its own; without `trace.published`."""
_HISTORY, _CHUNKS = "_history", "_chunks"


class SourceUnknown(ParameterError):
    """There is neither a file nor a table of the source. Facts: `source`."""

    code = "source_unknown"


@dataclass(frozen=True)
class SourceParts:
    """The parts of a source.

    file: its source file, None if that is gone. tables: `bronze.<source>_chunks` and `trace.<source>_updates`, if they
    are stored. histories: those of its windows. shared: the shared tables with rows of it. marts: its marts that people
    see. pins: those with copies of it. environments: those with tables of it.
    """

    source: str
    file: Path | None
    tables: list[Table]
    histories: list[Table]
    shared: list[Table]
    marts: list[str]
    pins: list[str]
    environments: list[str]

    @property
    def are_any(self) -> bool:
        """True if there is such a source. Records of erasures outlive it, so they alone do not make one."""
        return bool(self.file or self.tables or self.histories or {*self.shared} - {ERASURES})

    @property
    def windows(self) -> list[str]:
        """The source's windows that have a table."""
        return [table.table.removesuffix(_HISTORY) for table in self.histories]

    def rows(self, lake: Lake) -> dict[str, int]:
        """The number of the source's rows by table, by the files' own counts, including rows that nothing shows."""
        counts = {}
        for table in (*self.tables, *self.histories):
            counts[table.qualified] = lake.stored(table, []).n_rows
        for table in self.shared:
            counts[table.qualified] = lake.stored(table, [], partitions={"source": [self.source]}).n_rows
        return counts


def source_parts(settings: Settings, lake: FrameLake, source: str) -> SourceParts:
    """The parts of a source, found by its name; all are empty for an unknown name."""
    shared = [
        table
        for table in (PUBLISHED, *SHARED)
        if lake.folder.is_stored(table.database, table.table) and files_in_use(lake.folder.handle(table), source).files
    ]
    return SourceParts(
        source,
        source_files(settings.sources).get(source),
        [table for table in own_tables(source) if lake.folder.is_stored(table.database, table.table)],
        histories(lake, source),
        shared,
        sorted(shown_marts(settings.home, source).versions),
        [pin.name for pin in pins(lake) if source in pin.sources],
        [one.name for one in environments(settings.home) if source in one.builds()],
    )


def known_parts(settings: Settings, lake: FrameLake, source: str) -> SourceParts:
    """The parts of a source that has a file or tables.

    Raises:
        SourceUnknown: neither a source file nor the lake has the name.
    """
    # a text that is no name could lead to other folders
    parts = source_parts(settings, lake, source) if is_identifier(source) else None
    if parts and parts.are_any:
        return parts
    names = sorted({*source_files(settings.sources), *sources_in_lake(lake)})
    raise SourceUnknown(
        expected=f"one of the sources {', '.join(names) or '(none)'}",
        found=f"{source!r}{did_you_mean(source, names)}, of which there is neither a file nor a table",
        consequence="nothing was changed",
        next_step="name one of those",
        source=source,
    )


def own_tables(source: str) -> list[Table]:
    """The tables of a source's chunks and of its updates, with their names alone."""
    return [Table("bronze", f"{source}{_CHUNKS}", "", ()), Table("trace", f"{source}_updates", "", ())]


def remove_rows(lake: SparkLake, source: str, *, keep: Sequence[Table] = ()) -> None:
    """Remove the rows of a source from all tables that sources share, except those to `keep`."""
    for table in (PUBLISHED, *SHARED):
        if table not in keep and lake.folder.is_stored(table.database, table.table):
            _remove_source(lake, table, source)


def _remove_source(lake: SparkLake, table: Table, source: str) -> None:
    """Remove the rows of one source from a shared table, in one commit that rewrites no file; no commit if there are
    none. Then remove the files, also those of earlier versions."""
    if files_in_use(lake.folder.handle(table), source).files:
        lake.replace_files(table, [], "source", [source])
    lake.folder.remove(f"{lake.folder.path(table)}/source={quote(source)}")


def histories(lake: TableReader, source: str) -> list[Table]:
    """The histories of the windows that a source has or had, by the source that each table notes."""
    tables = [Table("silver", name, "", ()) for name in _folders(lake, "silver") if name.endswith(_HISTORY)]
    stored = [table for table in tables if lake.folder.is_stored(table.database, table.table)]
    return [
        table for table in stored if properties(lake.folder.handle(table)).get(IDENTITY, "").split(",")[0] == source
    ]


def sources_in_lake(lake: TableReader) -> list[str]:
    """The names of the sources that have a table of chunks."""
    return [name.removesuffix(_CHUNKS) for name in _folders(lake, "bronze") if name.endswith(_CHUNKS)]


def _folders(lake: TableReader, database: str) -> list[str]:
    from pyarrow.fs import FileSelector, FileType

    listed = lake.folder.files().get_file_info(FileSelector(f"{database}.db", allow_not_found=True))
    return sorted(entry.base_name for entry in listed if entry.type == FileType.Directory)


@contextmanager
def hold_source(settings: Settings, lake: Lake, source: str, described: Source | None = None) -> Iterator[leases.Lease]:
    """Hold a source that may have no file, with a token greater than all of its tokens in the lake's records.

    If its file is given as `described`, the token is also greater than those in rows that do not count.

    Raises:
        SourceBusy: a stage was at work for longer than `visits.WAIT_S`.
    """
    with leases.visit(settings.home / "leases", source=source, wait_s=WAIT_S) as lease:
        if described is not None:
            follow_lake(lake, described, lease)
        newest = newest_token(lake.folder, source)
        if lease.fence.token <= newest:
            lease.rise_above(newest)
        yield lease
