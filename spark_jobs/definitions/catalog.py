"""Create and update the databases and tables that a source needs, and the names that users read.

Tables are brought up to date before a run writes them: shared tables follow this version of Tidemark at once, the
source's own tables follow a changed definition once it is accepted. Names follow once the definition is published.
Until then every name that users read shows the same as before.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Iterator

from spark_jobs.definitions.definition import Definition, definitions
from spark_jobs.errors import TidemarkError
from spark_jobs.sources import Source
from spark_jobs.storage.coordination.lake_format import check_format, mark_format
from spark_jobs.storage.descriptions.chain_tables import CHAINS, CHAINS_PART
from spark_jobs.storage.descriptions.extract_table import EXTRACTS
from spark_jobs.storage.descriptions.people_tables import DISMISSALS, ERASURES
from spark_jobs.storage.descriptions.quality_tables import QUALITY
from spark_jobs.storage.descriptions.schema import Table
from spark_jobs.storage.descriptions.sql import qualified
from spark_jobs.storage.descriptions.tables import (
    DATABASES,
    PUBLISHED,
    SHARED,
    STATE,
    VALIDITY,
    chunks,
    updates,
)
from spark_jobs.storage.lakes.lake import Lake
from spark_jobs.storage.names import bronze_views, past, views
from spark_jobs.storage.names.chain_views import chain_views

_VIEW = re.compile(r"CREATE OR REPLACE VIEW `(\w+)`\.`(\w+)`")
_OF_EARLIER_RELEASES = (("bronze", "chunks"), ("bronze", "deltas"), ("silver", "corrections"))
"""Views over all sources, which earlier releases had. The text of such a view grows with the number of sources, and the
metastore limits it."""


class LakeOlder(TidemarkError):
    """Tables of a source lack columns that this version of Tidemark, or the present source file, reads. Facts:
    `source`, `lacking`: table -> columns, no columns if the table itself is missing."""

    code = "lake_older"

    def explains(self, failure: str) -> bool:
        """True if the message of a failure names a lacking column or table."""
        lacking: dict[str, list[str]] = self.facts["lacking"]
        return any(name in failure for table, columns in lacking.items() for name in columns or [table.split(".")[1]])


def ensure_source(lake: Lake, source: Source) -> None:
    """Create missing databases and tables, and add missing columns to the tables that sources share.

    The names of shared tables come with the tables: the quarantine of a source can be read before it has published.

    Raises:
        LakeNewer: a later version of Tidemark has written the lake; nothing was created.
        TableDiffers: a column of a shared table has another type.
    """
    check_format(lake)
    shared = _shared_tables(source)
    created = lake.catalog.ensure(DATABASES, source_tables(source))
    mark_format(lake)
    if PUBLISHED in created:
        for statement in _shared_names():
            lake.catalog.define(statement)
    lake.catalog.widen([table for table in shared if table not in created])


def widen_tables(lake: Lake, source: Source, changed: Collection[str]) -> None:
    """Add missing columns to the source's own tables. `changed`: the changed parts of its definition, which were
    accepted.

    Raises:
        TableDiffers: the change needs more than new columns.
    """
    tables = _own_tables(source)
    if changed:
        for table in tables:
            if table.identity:
                lake.catalog.check_identity(table)
    # if the source gives up its chains, they are closed in their table, so that table is still needed
    lake.catalog.widen([*tables, CHAINS] if CHAINS_PART in changed else tables)


def check_tables(lake: Lake, source: Source) -> None:
    """Raise for tables that no run has given all of their columns yet. A source that never ran passes.

    Raises:
        LakeNewer: a later version of Tidemark has written the lake.
        LakeOlder: columns, or whole tables, are missing.
        TableDiffers: a column has another type.
    """
    check_format(lake)
    # checks and erasures are written by runs alone: no answer depends on these tables
    tables = [table for table in source_tables(source) if table not in (*QUALITY, ERASURES, EXTRACTS)]
    present = {database: lake.catalog.names_if_present(database) for database in {table.database for table in tables}}
    if chunks(source).table not in present["bronze"]:
        return
    present_tables = [table for table in tables if table.table in present[table.database]]
    lacking = {
        table.qualified: [c.name for c in columns]
        for table, columns in lake.catalog.missing_columns(present_tables).items()
    }
    lacking |= {table.qualified: [] for table in tables if table not in present_tables}
    if lacking:
        raise lake_older(source, lacking)


def lake_older(source: Source, lacking: dict[str, list[str]]) -> LakeOlder:
    """The refusal to read tables of `source` without these columns."""
    return LakeOlder(
        expected=f"the tables of {source.name} as this version of Tidemark and {source.name}.yml have them",
        found="; ".join(f"{table} without {', '.join(c)}" if c else f"no {table}" for table, c in lacking.items()),
        consequence="no answer was given",
        next_step=f"run any drop of {source.name}, one that has landed will do: `tidemark run {source.name} --from … "
        "--to …` gives the tables what they lack; with --accept-definition where the source file has changed",
        source=source.name,
        lacking=lacking,
    )


def names_lacking(lake: Lake, sources: Iterable[Source]) -> dict[str, list[str]]:
    """The views that users read and that the catalog lacks, by source. The catalog is asked once for all sources."""
    views = {source.name: _views(source) for source in sources}
    databases = {database for of in views.values() for database, _ in of} & lake.catalog.databases()
    present = {(database, name) for database, names in lake.catalog.names_in(databases).items() for name in names}
    return {source: sorted(map(".".join, of - present)) for source, of in views.items() if of - present}


def _views(source: Source) -> set[tuple[str, str]]:
    """The database and name of each view that users read of the source."""
    return {(match[1], match[2]) for statement in name_definitions(source) if (match := _VIEW.match(statement))}


def names_version(source: Source) -> str:
    """A hash of the definitions of all names that users read of the source: equal for equal definitions."""
    return hashlib.sha256("\n".join(name_definitions(source)).encode()).hexdigest()[:32]


def define_names(lake: Lake, source: Source, gone: Iterable[str] = ()) -> None:
    """Define the names that users read by the definition as it is now; `gone`: the windows that lose their names."""
    for statement in name_definitions(source):
        lake.catalog.define(statement)
    for window in sorted(gone):
        _drop_reads(lake, "silver", window)
    kept = {window for window, spec in source.windows.items() if spec.keep_us is not None}
    unkept = [("silver", f"{window}_corrections") for window in sorted({*source.windows} - kept)]
    for database, view in (*unkept, *_OF_EARLIER_RELEASES):
        lake.catalog.define(f"DROP VIEW IF EXISTS {qualified(database, view)}")


def drop_names(lake: Lake, source: str, windows: Collection[str]) -> None:
    """Remove the names that users read of a source and its windows."""
    present = lake.catalog.databases()
    for database, gone in (("silver", sorted(windows)), ("gold", [source])):
        for name in gone if database in present else ():
            _drop_reads(lake, database, name)
    for database, view in (("bronze", f"{source}_deltas"), ("trace", f"{source}_corrections")):
        if database in present:
            lake.catalog.define(f"DROP VIEW IF EXISTS {qualified(database, view)}")


def _drop_reads(lake: Lake, database: str, gone: str) -> None:
    """Drop a published name, the function that reads it as of a time, and its other views: its changelog, the causes of
    its changes, and the retractions to come."""
    lake.catalog.define(f"DROP FUNCTION IF EXISTS {qualified(database, f'{gone}_as_of')}")
    for view in (f"{gone}_corrections", f"{gone}_causes", f"{gone}_changes", gone):
        lake.catalog.define(f"DROP VIEW IF EXISTS {qualified(database, view)}")


def source_tables(source: Source) -> list[Table]:
    """All tables that have rows of the source. The table of its chunks comes last: a source that has it counts as one
    that has run, so it is created after all other tables."""
    return [*_shared_tables(source), *_own_tables(source)]


def _shared_tables(source: Source) -> list[Table]:
    """The tables that have rows of other sources, too."""
    of_kind = [*([CHAINS] if source.keeps_chains else []), *([EXTRACTS] if source.extract else [])]
    return [*SHARED, *QUALITY, DISMISSALS, ERASURES, *of_kind]


def _own_tables(source: Source) -> list[Table]:
    return [updates(source), *[definition.table() for definition in definitions(source)], chunks(source)]


def name_definitions(source: Source) -> Iterator[str]:
    """Yield the SQL statements that define the names that all sources share, and the source's own names."""
    yield from _shared_names()
    if source.keeps_chains:
        yield from chain_views()
    yield from (bronze_views.deltas_view(source), past.future_deltas_view(source))
    for definition in definitions(source):
        yield from _window_names(definition)
    yield from _state_names(source)


def _shared_names() -> Iterator[str]:
    """Yield the statements for the names of tables that all sources share. The view of publications comes first, since
    changelogs read it."""
    yield from (past.publications_view(), views.late_view(), views.state_view(), past.late_as_of(), past.state_as_of())
    yield from (bronze_views.quarantine_view(), bronze_views.duplicates_view())


def _window_names(definition: Definition) -> Iterator[str]:
    """Yield the statements for a window's view, the function that reads it as of a time, its changelog, and the causes
    of its changes. If windows are kept for a limited time, the view of their retractions follows."""
    source, table = definition.source, definition.table()
    yield views.window_view(source, definition.name, table, definition.identity, definition.final_condition())
    yield past.window_as_of(source, definition.name, table, definition.identity)
    yield past.changes_view("silver", definition.name, source, table, definition.value_columns())
    listed = list(dict.fromkeys([*definition.identity, "window_end"]))
    yield past.causes_view("silver", definition.name, source, listed, definition.behind_condition())
    if definition.window.keep_us is not None:
        columns = [column for column in table.columns if column.name in definition.identity]
        yield past.window_corrections_view(source, definition.name, columns, definition.window.keep_us)


def _state_names(source: Source) -> Iterator[str]:
    """Yield the same statements for a source's state; none for a source without state."""
    if source.state is None:
        return
    columns_of_validity = {column.name for column in VALIDITY} | {"source"}
    yield views.source_state_view(source)
    yield past.source_state_as_of(source)
    yield past.changes_view(
        "gold", source.name, source, STATE, [c for c in STATE.columns if c.name not in columns_of_validity]
    )
    yield past.causes_view("gold", source.name, source, ["entity"], "u.entity = c.entity")
