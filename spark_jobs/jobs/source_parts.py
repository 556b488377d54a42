"""What a lake and a home have of a source, told by its name alone: its file may be gone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from spark_jobs.config import Settings
from spark_jobs.errors import ParameterError
from spark_jobs.jobs.pins import pins
from spark_jobs.jobs.tokens import follow_lake
from spark_jobs.jobs.visits import WAIT_S
from spark_jobs.sources import Source, did_you_mean, environments
from spark_jobs.sources.folder import source_files
from spark_jobs.sources.section import is_identifier
from spark_jobs.storage import fence
from spark_jobs.storage.chain_tables import CHAINS
from spark_jobs.storage.lake import Lake
from spark_jobs.storage.people_tables import DISMISSALS, ERASURES
from spark_jobs.storage.quality_tables import QUALITY
from spark_jobs.storage.schema import IDENTITY, Table
from spark_jobs.storage.shown_marts import shown_marts
from spark_jobs.storage.tables import DUPLICATES, FILES, FRONTIERS, LATE, PUBLISHED, QUARANTINE, STATE

SHARED = (FRONTIERS, FILES, QUARANTINE, DUPLICATES, LATE, STATE, CHAINS, *QUALITY, DISMISSALS, ERASURES)
"""Tables that all sources have rows in, each in a partition of its own; beside them `trace.published`."""
_HISTORY, _CHUNKS = "_history", "_chunks"


class SourceUnknown(ParameterError):
    """Neither a file nor a table is the source's. Facts: `source`."""

    code = "source_unknown"


@dataclass(frozen=True)
class SourceParts:
    """What there is of a source.

    file: its source file, None if it is gone. tables: `bronze.<source>_chunks` and `trace.<source>_updates`.
    histories: those of its windows. shared: the tables that have rows of it. marts: those that people see of it.
    pins: those that hold copies of it. environments: those that have tables of it.
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
    def windows(self) -> list[str]:
        """Its windows that have a table."""
        return [table.table.removesuffix(_HISTORY) for table in self.histories]

    def rows(self, lake: Lake) -> dict[str, int]:
        """How many rows each table has of it, those that nothing shows included; by the files' own counts."""
        counts = {}
        for table in (*self.tables, *self.histories):
            counts[table.qualified] = lake.stored(table, []).n_rows
        for table in self.shared:
            counts[table.qualified] = lake.stored(table, [], partitions={"source": [self.source]}).n_rows
        return counts


def source_parts(settings: Settings, lake: Lake, source: str) -> SourceParts:
    """What there is of a source."""
    shared = [
        table
        for table in (PUBLISHED, *SHARED)
        if lake.is_stored(table.database, table.table) and lake.in_use(table, source).files
    ]
    return SourceParts(
        source,
        source_files(settings.sources).get(source),
        [table for table in own_tables(source) if lake.is_stored(table.database, table.table)],
        histories(lake, source),
        shared,
        sorted(shown_marts(settings.home, source).versions),
        [pin.name for pin in pins(lake) if source in pin.sources],
        [one.name for one in environments(settings.home) if source in one.builds()],
    )


def known_parts(settings: Settings, lake: Lake, source: str) -> SourceParts:
    """`source_parts` of a source that there is.

    Raises:
        SourceUnknown: there is none, neither as a file nor in the lake.
    """
    # a name that is none leads to other folders
    parts = source_parts(settings, lake, source) if is_identifier(source) else None
    # what was erased stays erased, also of a source that is gone
    if parts and (parts.file or parts.tables or parts.histories or {*parts.shared} - {ERASURES}):
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
    """The names of the tables of what landed of a source, and of its updates."""
    return [Table("bronze", f"{source}{_CHUNKS}", "", ()), Table("trace", f"{source}_updates", "", ())]


def remove_rows(lake: Lake, source: str, *, keep: Sequence[Table] = ()) -> None:
    """Take the rows of a source out of all tables that sources share, but for those to `keep`."""
    for table in (PUBLISHED, *SHARED):
        if table not in keep and lake.is_stored(table.database, table.table):
            lake.remove_source(table, source)


def histories(lake: Lake, source: str) -> list[Table]:
    """The tables of the windows that a source has had, as they say themselves."""
    tables = [Table("silver", name, "", ()) for name in _folders(lake, "silver") if name.endswith(_HISTORY)]
    stored = [table for table in tables if lake.is_stored(table.database, table.table)]
    return [table for table in stored if lake.properties(table).get(IDENTITY, "").split(",")[0] == source]


def sources_in_lake(lake: Lake) -> list[str]:
    """The sources that have landed anything."""
    return [name.removesuffix(_CHUNKS) for name in _folders(lake, "bronze") if name.endswith(_CHUNKS)]


def _folders(lake: Lake, database: str) -> list[str]:
    from pyarrow.fs import FileSelector, FileType

    listed = lake.root_files().get_file_info(FileSelector(f"{database}.db", allow_not_found=True))
    return sorted(entry.base_name for entry in listed if entry.type == FileType.Directory)


@contextmanager
def hold_source(settings: Settings, lake: Lake, source: str, described: Source | None = None) -> Iterator[fence.Lease]:
    """Hold a source that may have no file, with a token above every one that records of the lake know of it; where it
    is `described`, above those in rows that do not count, too.

    Raises:
        SourceBusy: a stage was at work for longer than `visits.WAIT_S`.
    """
    with fence.visit(settings.home / "leases", source=source, wait_s=WAIT_S) as lease:
        if described is not None:
            follow_lake(lake, described, lease)
        newest = lake.newest_token(source)
        if lease.fence.token <= newest:
            lease.rise_above(newest)
        yield lease
