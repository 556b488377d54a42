"""Make sure of what a source needs: databases, tables and the names that users read.

Tables follow the description before a run writes them: the shared ones that of this version of Tidemark at once, the
source's own once a changed definition is accepted. Names follow once it is published: until then every name that users
read shows what it showed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Iterator

from spark_jobs.definitions.definition import Definition, definitions
from spark_jobs.errors import TidemarkError
from spark_jobs.sources import Source
from spark_jobs.storage import bronze_views, past, views
from spark_jobs.storage.chain_tables import CHAINS, CHAINS_PART
from spark_jobs.storage.chain_views import chain_views
from spark_jobs.storage.extract_table import EXTRACTS
from spark_jobs.storage.lake import Lake
from spark_jobs.storage.lake_format import check_format, mark_format
from spark_jobs.storage.people_tables import DISMISSALS, ERASURES
from spark_jobs.storage.quality_tables import QUALITY
from spark_jobs.storage.schema import Table
from spark_jobs.storage.sql import qualified
from spark_jobs.storage.tables import (
    DATABASES,
    SHARED,
    STATE,
    VALIDITY,
    chunks,
    updates,
)

_VIEW = re.compile(r"CREATE OR REPLACE VIEW `(\w+)`\.`(\w+)`")
_OF_EARLIER_RELEASES = (("bronze", "chunks"), ("bronze", "deltas"), ("silver", "corrections"))
"""Views over all sources, which earlier releases had: one text for all of them ends where the metastore's does."""


class LakeOlder(TidemarkError):
    """Tables of a source lack what this version of Tidemark, or the source file as it is now, reads. Facts: `source`,
    `lacking`: table -> columns, none where the table itself is missing."""

    code = "lake_older"

    def explains(self, failure: str) -> bool:
        """Whether what failed names a column or table that lacks."""
        lacking: dict[str, list[str]] = self.facts["lacking"]
        return any(name in failure for table, columns in lacking.items() for name in columns or [table.split(".")[1]])


def ensure_source(lake: Lake, source: Source) -> None:
    """Create the databases and tables that are missing, and give those that sources share the columns that they lack.

    Raises:
        LakeNewer: a later version of Tidemark has written the lake; nothing was created.
        TableDiffers: a column of a shared table has another type.
    """
    check_format(lake)
    shared = _shared_tables(source)
    created = lake.ensure(DATABASES, source_tables(source))
    mark_format(lake)
    lake.widen([table for table in shared if table not in created])


def widen_tables(lake: Lake, source: Source, changed: Collection[str]) -> None:
    """Let the source's own tables have the columns that they lack; `changed`: what of its definition has, and was
    accepted.

    Raises:
        TableDiffers: the change is none of columns alone.
    """
    own = _own_tables(source)
    if changed:
        for table in own:
            if table.identity:
                lake.check_identity(table)
    # chains that the source gives up are closed in their table, though it needs none any more
    lake.widen([*own, CHAINS] if CHAINS_PART in changed else own)


def check_tables(lake: Lake, source: Source) -> None:
    """Refuse to read tables that no run has given all of their columns yet; nothing to say of a source that never ran.

    Raises:
        LakeNewer: a later version of Tidemark has written the lake.
        LakeOlder: columns, or whole tables, are missing.
        TableDiffers: a column has another type.
    """
    check_format(lake)
    # what was checked, or erased, is written by runs alone: no answer depends on it
    tables = [table for table in source_tables(source) if table not in (*QUALITY, ERASURES, EXTRACTS)]
    present = {database: lake.names_if_present(database) for database in {table.database for table in tables}}
    if chunks(source).table not in present["bronze"]:
        return
    stand = [table for table in tables if table.table in present[table.database]]
    lacking = {table.qualified: [c.name for c in columns] for table, columns in lake.lacking(stand).items()}
    lacking |= {table.qualified: [] for table in tables if table not in stand}
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
    """The views that users read and the catalog lacks, by source; it is asked once for all sources."""
    views = {source.name: _views(source) for source in sources}
    databases = {database for of in views.values() for database, _ in of} & lake.databases()
    present = {(database, name) for database, names in lake.names_in(databases).items() for name in names}
    return {source: sorted(map(".".join, of - present)) for source, of in views.items() if of - present}


def _views(source: Source) -> set[tuple[str, str]]:
    """Database and name of each view that users read of the source."""
    return {(match[1], match[2]) for statement in name_definitions(source) if (match := _VIEW.match(statement))}


def names_version(source: Source) -> str:
    """Equal for equal definitions of all names that users read of the source."""
    return hashlib.sha256("\n".join(name_definitions(source)).encode()).hexdigest()[:32]


def define_names(lake: Lake, source: Source, gone: Iterable[str] = ()) -> None:
    """Let the names that users read show the definition as it is now; `gone`: the windows that lose their names."""
    for statement in name_definitions(source):
        lake.define(statement)
    for window in sorted(gone):
        _drop_reads(lake, "silver", window)
    kept = {window for window, spec in source.windows.items() if spec.keep_us is not None}
    unkept = [("silver", f"{window}_corrections") for window in sorted({*source.windows} - kept)]
    for database, view in (*unkept, *_OF_EARLIER_RELEASES):
        lake.define(f"DROP VIEW IF EXISTS {qualified(database, view)}")


def drop_names(lake: Lake, source: str, windows: Collection[str]) -> None:
    """Remove the names that users read of a source and its windows."""
    present = lake.databases()
    for database, gone in (("silver", sorted(windows)), ("gold", [source])):
        for name in gone if database in present else ():
            _drop_reads(lake, database, name)
    for database, view in (("bronze", f"{source}_deltas"), ("trace", f"{source}_corrections")):
        if database in present:
            lake.define(f"DROP VIEW IF EXISTS {qualified(database, view)}")


def _drop_reads(lake: Lake, database: str, gone: str) -> None:
    """Drop a published name, the function that reads it as of a time, its changelog, what caused each change, and what
    is to come."""
    lake.define(f"DROP FUNCTION IF EXISTS {qualified(database, f'{gone}_as_of')}")
    for view in (f"{gone}_corrections", f"{gone}_causes", f"{gone}_changes", gone):
        lake.define(f"DROP VIEW IF EXISTS {qualified(database, view)}")


def source_tables(source: Source) -> list[Table]:
    """All tables that have rows of the source. Its chunks come last: a source that has them counts as one that has run,
    so they are created once all its other tables stand."""
    return [*_shared_tables(source), *_own_tables(source)]


def _shared_tables(source: Source) -> list[Table]:
    """Tables that other sources have rows in, too."""
    of_kind = [*([CHAINS] if source.keeps_chains else []), *([EXTRACTS] if source.extract else [])]
    return [*SHARED, *QUALITY, DISMISSALS, ERASURES, *of_kind]


def _own_tables(source: Source) -> list[Table]:
    return [updates(source), *[definition.table() for definition in definitions(source)], chunks(source)]


def name_definitions(source: Source) -> Iterator[str]:
    """The names that all sources share, the publications first since changelogs read them, and the source's own."""
    yield from (past.publications_view(), views.late_view(), views.state_view(), past.late_as_of(), past.state_as_of())
    yield from (bronze_views.quarantine_view(), bronze_views.duplicates_view())
    if source.keeps_chains:
        yield from chain_views()
    yield from (bronze_views.deltas_view(source), past.future_deltas_view(source))
    for definition in definitions(source):
        yield from _window_names(definition)
    yield from _state_names(source)


def _window_names(definition: Definition) -> Iterator[str]:
    """A window's view, the function that reads it as of a time, its changelog, what caused each change, and of windows
    that are kept for a while when they leave."""
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
    """The same of a source's state; nothing for a source without."""
    if source.state is None:
        return
    held = {column.name for column in VALIDITY} | {"source"}
    yield views.source_state_view(source)
    yield past.source_state_as_of(source)
    yield past.changes_view("gold", source.name, source, STATE, [c for c in STATE.columns if c.name not in held])
    yield past.causes_view("gold", source.name, source, ["entity"], "u.entity = c.entity")
